"""The properties of a message that is sent, as brokers store them.

The unique id always comes first and is made last, so it is kept apart: requests and batches put
it before what ``encode_fields`` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from rocketwire.message import USUAL, Message
from rocketwire.wire.properties import RESERVED

#: True of text that needs no further look: no separator, no lone surrogate, nothing unprintable.
_is_ordinary: Final = str.isprintable
#: The first character of ordinary text that is not blank.
_FIRST_VISIBLE: Final = "!"

#: What stands before the unique id, and behind it.
ID_NAME: Final = b"UNIQ_KEY\x01"
ID_END: Final = b"\x02"


#: How properties of these names are written, by the names. Programs use few sets of names.
_formats: dict[tuple[str, ...], str] = {}
_MOST_FORMATS: Final = 1000


def _format_of(names: tuple[str, ...]) -> str | None:
    """How properties of these names are written; None if one of them needs a closer look.

    Free names of printable text that is not blank need none. Such text is blank only if it is
    empty or begins with a blank, so that the least of them tells it of all.
    """
    try:
        is_ordinary = (
            bool(names)
            and RESERVED.isdisjoint(names)
            and _is_ordinary("".join(names))
            and min(names) >= _FIRST_VISIBLE
        )
    except TypeError:  # some of it is no text
        return None
    if not is_ordinary:
        return None
    if len(_formats) >= _MOST_FORMATS:
        _formats.clear()
    found = _formats[names] = "".join([f"{name.replace('%', '%%')}\x01%s\x02" for name in names])
    return found


def encode_ordinary(message: Message) -> bytes | None:
    """As ``encode_fields`` for a message that was not checked; None: check it, and encode it so.

    Most messages have a tag, a key and a few properties of printable text. Those are checked while
    they are encoded, by one call of the interpreter for each field.
    """
    tags, keys, properties = message.tags, message.keys, message.raw_properties
    if tags is None:
        text = ""
    elif type(tags) is str and tags and _is_ordinary(tags):
        text = f"TAGS\x01{tags}\x02"
    else:
        return None
    if keys is not None:
        if type(keys) is not str or not keys or not _is_ordinary(keys):
            return None
        text += f"KEYS\x01{keys}\x02"
    sharding_key = message.sharding_key
    if sharding_key is not None:
        if type(sharding_key) is not str or not sharding_key or not _is_ordinary(sharding_key):
            return None
        text += f"__SHARDINGKEY\x01{sharding_key}\x02"
    if message.handling is not USUAL:
        return None
    if properties is not None:
        names, values = tuple(properties), tuple(properties.values())
        form = _formats.get(names) or _format_of(names)
        try:
            if form is None or not _is_ordinary("".join(values)) or min(values) < _FIRST_VISIBLE:
                return None
        except TypeError:  # a value is no text
            return None
        text += form % values
    return text.encode()


#: Stands behind each message where many are one text: no ordinary value has it.
_ROW_END: Final = "\x00"
_CONTROLS: Final = bytes([*range(0x20), 0x7F])
_TEXTS: Final = {str}
_NONE: Final = {type(None)}


def encode_alike(messages: Sequence[Message]) -> list[bytes] | None:
    """As ``encode_ordinary`` for each of some messages with the same fields; None: do it one by one.

    All of them become one text, column by column, which is checked and encoded at once and then
    cut. With a few properties that takes little more than half the time, without any a little more.

    Args:
        messages: at least one, and each with properties.
    """
    starts: list[str] = []
    columns: list[list[Any]] = []
    for name, values in (
        ("TAGS", [m.tags for m in messages]),
        ("KEYS", [m.keys for m in messages]),
        ("__SHARDINGKEY", [m.sharding_key for m in messages]),
    ):
        kinds = set(map(type, values))
        if kinds == _TEXTS:
            starts.append(f"{name}\x01")
            columns.append(values)
        elif kinds != _NONE:
            return None
    if [m for m in messages if m.handling is not USUAL]:  # faster than any()
        return None
    properties: list[Any] = [m.raw_properties for m in messages]
    try:
        names = set(map(tuple, properties))
        own = names.pop()
        if names or (_formats.get(own) or _format_of(own)) is None:
            return None
        starts += ["".join((name, "\x01")) for name in own]  # not by a format, as below
        values = list(chain.from_iterable(map(dict.values, properties)))
        columns += [values[place :: len(own)] for place in range(len(own))]
        return _encode_rows(starts, columns)
    except TypeError:  # some have none, or some of it is no text
        return None


def _encode_rows(starts: list[str], columns: list[list[str]]) -> list[bytes] | None:
    """What stands before each value of a row, and the values of all rows; None if one is not ordinary."""
    count, width, end = len(columns[0]), 2 * len(starts) + 1, ""
    pieces = [""] * (width * count)
    for place, (start, values) in enumerate(zip(starts, columns, strict=True)):
        pieces[2 * place :: width] = [end + start] * count
        pieces[2 * place + 1 :: width] = values
        end = "\x02"  # of a value: one piece with what follows it
    pieces[width - 1 :: width] = [end + _ROW_END] * count
    text = "".join(pieces)
    if "\x01\x02" in text or "\x01 " in text:  # a value is empty, or begins with a blank
        return None
    if text.isascii():
        data = text.encode()
        # A value has a control character if there are more than were put in here. Counting them all
        # takes a quarter of the time of asking ``isprintable`` for each column.
        if len(data) - len(data.translate(None, _CONTROLS)) != width * count:
            return None
    elif all(map(_is_ordinary, map("".join, columns))):
        data = text.encode()
    else:
        return None
    return data.split(_ROW_END.encode())[:-1]


def encode_fields(message: Message) -> bytes:
    """All properties of a checked message but its id."""
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
        # Not by a format, which asks a name of a class of its own (an enum) for other words.
        text += "".join(["".join((n, "\x01", v, "\x02")) for n, v in properties.items()])
    return text.encode()


def namespace_field(namespace: str | None) -> bytes:
    """The property that names the namespace of a message; nothing without one."""
    return f"INSTANCE_ID\x01{namespace}\x02".encode() if namespace else b""


def half_fields(group: str) -> bytes:
    """The properties that make a message the half of a transaction of a producer group."""
    return f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02".encode()


def request_fields(correlation_id: str, client_id: str, timeout: float) -> bytes:
    """The properties that make a message a request of a client, which waits for so many seconds."""
    return (
        f"CORRELATION_ID\x01{correlation_id}\x02REPLY_TO_CLIENT\x01{client_id}\x02"
        f"TTL\x01{max(1, round(timeout * 1000))}\x02"
    ).encode()


def reply_fields(correlation_id: str, client_id: str, ttl: str) -> bytes:
    """The properties that bring a reply to the client that asked."""
    return (
        f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01{correlation_id}\x02"
        f"REPLY_TO_CLIENT\x01{client_id}\x02TTL\x01{ttl}\x02"
    ).encode()


#: The property of a whole batch that is not flushed before it is answered.
NO_WAIT: Final = b"WAIT\x01false\x02"


def id_of(properties: bytes) -> str:
    """The unique id that encoded properties begin with; empty if they begin with another one."""
    if not properties.startswith(ID_NAME):
        return ""
    return properties[len(ID_NAME) : properties.index(ID_END)].decode("ascii", "replace")
