"""How options are called: ours in camel case, and what Kafka's source says."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from rocketwire.config import ProducerConfig, ReaderConfig, Tls
from rocketwire.errors import RocketMQError

#: Options that are parts of one setting of a client.
SCATTERED: Final = (
    "accessKey", "secretKey", "securityToken", "credentialsFile", "tlsCaFile", "tlsCertFile",
    "tlsKeyFile", "tlsKeyPassword", "tlsVerify", "tlsServerName",
)  # fmt: skip
#: What Kafka's source calls things, by folded name: as it is written there, and our word.
KAFKAS: Final = {
    theirs.lower(): (theirs, ours)
    for theirs, ours in {
        "kafka.bootstrap.servers": "nameServers",
        "subscribe": "topics",
        "subscribePattern": "topicPattern",
        "kafka.group.id": "groupId",
        "groupIdPrefix": "groupId",
        "includeHeaders": "includeProperties",
        "fetchOffset.numRetries": "offsetRetries",
        "fetchOffset.retryIntervalMs": "offsetRetryInterval",
        "kafkaConsumer.pollTimeoutMs": "readTimeout",
        "startingOffsetsByTimestampStrategy": "startingTimestampStrategy",
    }.items()
}


def camel(name: str) -> str:
    """A setting's name as Spark's users write it."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _spelled() -> dict[str, str]:
    names = {
        spec.name for cls in (ProducerConfig, ReaderConfig) for spec in dataclasses.fields(cls)
    }
    found = {name: camel(name) for name in names if "_" in name}
    found |= {re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", name): name for name in SCATTERED}
    parts = [spec.name for spec in dataclasses.fields(Tls) if "_" in spec.name]
    return found | {name: camel(f"tls_{name}") for name in parts}


_SPELLED: Final = _spelled()


def in_camel_case(text: str) -> str:
    """An error text of the client with option names as Spark's users write them."""
    return re.sub(r"\b[a-z]+(?:_[a-z0-9]+)+\b", lambda m: _SPELLED.get(m[0], m[0]), text)


@contextlib.contextmanager
def in_option_words() -> Iterator[None]:
    """Let errors name options as Spark's users write them, wherever they are raised."""
    try:
        yield
    except RocketMQError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_camel_case(error.args[0]), *error.args[1:])
        raise
