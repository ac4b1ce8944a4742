"""The properties of a message that is sent, as brokers store them.

The unique id always comes first and is made last, so it is kept apart: requests and batches put
it before what ``encode_fields`` returns.
"""

from __future__ import annotations

from typing import Final

from rocketwire.message import Message

#: What stands before the unique id, and behind it.
ID_NAME: Final = b"UNIQ_KEY\x01"
ID_END: Final = b"\x02"


def encode_fields(message: Message) -> bytes:
    """All properties of a checked message but its id.

    Written out rather than as a loop over names: every message passes here, and most have a tag, a
    key and a few properties.
    """
    tags, keys = message.tags, message.keys
    if tags is None:
        text = "" if keys is None else f"KEYS\x01{keys}\x02"
    elif keys is None:
        text = f"TAGS\x01{tags}\x02"
    else:
        text = f"TAGS\x01{tags}\x02KEYS\x01{keys}\x02"
    if message.sharding_key is not None:
        text += f"__SHARDINGKEY\x01{message.sharding_key}\x02"
    if not message.wait_store_ok:
        text += "WAIT\x01false\x02"
    if message.delay_level:
        text += f"DELAY\x01{message.delay_level}\x02"
    if message.deliver_at is not None:
        text += f"TIMER_DELIVER_MS\x01{round(message.deliver_at * 1000)}\x02"
    properties = message.raw_properties
    if properties is not None:
        text += "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    return text.encode()


def namespace_field(namespace: str | None) -> bytes:
    """The property that names the namespace of a message; nothing without one."""
    return f"INSTANCE_ID\x01{namespace}\x02".encode() if namespace else b""


#: The property of a whole batch that is not flushed before it is answered.
NO_WAIT: Final = b"WAIT\x01false\x02"


def id_of(properties: bytes) -> str:
    """The unique id that encoded properties begin with; empty if they begin with another one."""
    if not properties.startswith(ID_NAME):
        return ""
    return properties[len(ID_NAME) : properties.index(ID_END)].decode("ascii", "replace")
