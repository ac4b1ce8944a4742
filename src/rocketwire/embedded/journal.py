"""Every request that a broker or a name server saw, for tests to ask about.

Bounded: when it is full, the oldest entries go, and ``dropped`` counts them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from rocketwire.wire.codes import RequestCode

#: Requests that carry messages.
SEND_CODES: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
PULL_CODES: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class JournalEntry:
    """One request.

    Attributes:
        at: when it came, in seconds since 1970.
        server: name of the broker, or of the name server.
        code: what it asked for.
        ext: its header fields.
        body_size: bytes of its body.
        client: address of its sender.
        oneway: whether no answer was wanted.
        header: ``"json"`` or ``"binary"``.
        response_code: the answer's code; None while, or because, none was given.
        fault: name of the fault that it met, if any.
    """

    __slots__ = (
        "at",
        "body_size",
        "client",
        "code",
        "ext",
        "fault",
        "flag",
        "header_kind",
        "response_code",
        "server",
    )

    def __init__(
        self,
        at: float,
        server: str,
        code: int,
        ext: dict[str, str],
        body_size: int,
        client: str,
        flag: int,
        header_kind: int,
    ) -> None:
        self.at = at
        self.server = server
        self.code = code
        self.ext = ext
        self.body_size = body_size
        self.client = client
        self.flag = flag
        self.header_kind = header_kind
        self.response_code: int | None = None
        self.fault: str | None = None

    @property
    def oneway(self) -> bool:
        """Whether no answer was wanted."""
        return bool(self.flag & 2)

    @property
    def header(self) -> str:
        """How the header was encoded."""
        return "binary" if self.header_kind else "json"

    @property
    def topic(self) -> str | None:
        """The topic it speaks of, if it names one in its header."""
        return self.ext.get("topic") or (self.ext.get("b") if self.code in SEND_CODES else None)

    @property
    def queue_id(self) -> int | None:
        """The queue it speaks of, if it names one."""
        text = self.ext.get("queueId") or (self.ext.get("e") if self.code in SEND_CODES else None)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None

    @property
    def group(self) -> str | None:
        """The group of the producer or consumer, if it is named."""
        for name in ("consumerGroup", "producerGroup", "group"):
            if name in self.ext:
                return self.ext[name]
        return self.ext.get("a") if self.code in SEND_CODES else None

    def __repr__(self) -> str:
        return (
            f"JournalEntry({self.server}, code={self.code}, topic={self.topic!r}, "
            f"queue={self.queue_id}, answer={self.response_code}, fault={self.fault})"
        )


class Journal:
    """A bounded list of requests, safe to read from any thread while servers write to it."""

    def __init__(self, limit: int = 10_000) -> None:
        self._entries: deque[JournalEntry] = deque(maxlen=limit)
        self._limit = limit
        self._seen = 0
        self._cleared = 0
        self._changed = threading.Condition()
        self._waiting = 0

    def add(self, entry: JournalEntry) -> None:
        """Note a request; called by the servers."""
        self._entries.append(entry)
        self._seen += 1
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    @property
    def dropped(self) -> int:
        """How many entries were lost because the journal was full."""
        return max(self._seen - self._cleared - self._limit, 0)

    def requests(
        self,
        *,
        code: int | None = None,
        topic: str | None = None,
        broker: str | None = None,
    ) -> list[JournalEntry]:
        """What came, in order; every condition given must hold."""
        return [
            entry
            for entry in list(self._entries)
            if (code is None or entry.code == code)
            and (topic is None or entry.topic == topic)
            and (broker is None or entry.server == broker)
        ]

    def sends(self, *, topic: str | None = None, broker: str | None = None) -> list[JournalEntry]:
        """The requests that carried messages."""
        found = self.requests(topic=topic, broker=broker)
        return [entry for entry in found if entry.code in SEND_CODES]

    def pulls(self, *, topic: str | None = None, broker: str | None = None) -> list[JournalEntry]:
        """The requests for messages."""
        found = self.requests(topic=topic, broker=broker)
        return [entry for entry in found if entry.code in PULL_CODES]

    def wait_for(
        self, condition: Callable[[list[JournalEntry]], bool], timeout: float = 5.0
    ) -> bool:
        """Wait until a condition on all entries holds; tells whether it does.

        >>> Journal().wait_for(lambda entries: not entries)
        True
        """
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(lambda: condition(list(self._entries)), timeout)
            finally:
                self._waiting -= 1

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
        self._cleared = self._seen

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(list(self._entries))
