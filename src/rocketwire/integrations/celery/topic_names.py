"""Names of kombu's queues as names of topics, which may have fewer characters.

Letters, digits, ``-`` and ``_`` stay. Any other character becomes ``_`` and two hexadecimal digits for
each byte; so does an underscore that would read as the beginning of such a triple. Two queues never
share a topic.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

#: What RocketMQ allows for a topic.
LONGEST_TOPIC: Final = 127
_DIGEST: Final = 24
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]|_(?=[0-9A-F]{2})")
_TRIPLES: Final = re.compile(r"(?:_[0-9A-F]{2})+")


def topic_name(queue: str, prefix: str = "") -> str:
    """The topic of a queue.

    A name that would be too long is cut, and ends in a digest of the whole.
    """
    topic = prefix + _OTHER.sub(_triples, queue)
    if len(topic) <= LONGEST_TOPIC:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:_DIGEST]
    return f"{topic[: LONGEST_TOPIC - _DIGEST - 1]}-{digest}"


def queue_name(topic: str, prefix: str = "") -> str:
    """The queue of a topic, unless its name was cut."""
    return _TRIPLES.sub(_characters, topic.removeprefix(prefix))


def _triples(match: re.Match[str]) -> str:
    return "".join(f"_{byte:02X}" for byte in match[0].encode())


def _characters(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("_", "")).decode(errors="replace")
