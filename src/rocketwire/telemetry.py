"""Delivery telemetry: one JSON line for each attempt, and for each isolation and return.

The sending thread only puts the event in line; a writer thread, which starts with the first event,
formats and writes. When the disk can't keep up, new records are dropped and counted. Nothing that
goes wrong here reaches a send.

Lines have a ``kind``:

* ``attempt``: ``time`` (seconds since 1970), ``clientId``, ``topic``, ``broker``, ``queueId``,
  ``offset``, ``messageId``, ``shardingKey``, ``bytes``, ``latency`` (seconds), ``outcome``
  (``stored``, ``oneway``, ``rejected``, ``maybe stored``, ``not sent``), ``error``, ``attempt``
  (1 is the first), ``messages`` (in a batch), ``state`` (of the broker when the attempt ended);
* ``isolated`` and ``returned``: ``time``, ``clientId``, ``broker``, ``reason``, and ``until``
  (seconds since 1970, or null) when the broker is avoided for a known time;
* ``dropped``: ``time``, ``clientId``, and ``dropped``: records lost since the last such line.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

from rocketwire.hooks import AttemptEvent, BrokerEvent
from rocketwire.telemetry_config import TelemetryConfig

_log = logging.getLogger("rocketwire.telemetry")

#: How long records gather before they are written together.
_GATHER: Final = 0.1
#: How long a disk that refused gets before it is tried again.
_RETRY: Final = 1.0
#: Records that are formatted and written in one go.
_CHUNK: Final = 1000
#: How long closing waits for a disk that hangs.
CLOSE_LIMIT: Final = 5.0

_quote: Final = lru_cache(maxsize=4096)(json.JSONEncoder().encode)
_quote_once: Final = json.JSONEncoder().encode
_DROPPED: Final = b'{"kind":"dropped"'


class Telemetry:
    """A hook that records attempts and the comings and goings of brokers.

    Args:
        config: where to, and how much.
        client_id: of the client that it belongs to.
    """

    def __init__(self, config: TelemetryConfig, client_id: str) -> None:
        writer = self._writer = Writer(config, client_id)
        self._queue = writer.queue
        self._limit = config.max_queue
        self._half = config.max_queue // 2
        # Whoever forgets to shut down loses nothing either, at the latest when Python ends.
        self._finalizer = weakref.finalize(self, writer.close, CLOSE_LIMIT)

    @property
    def dropped(self) -> int:
        """Records that were lost."""
        return self._writer.dropped

    def after_attempt(self, event: AttemptEvent) -> None:
        """Put an attempt in line."""
        self._put(event)

    def broker_isolated(self, event: BrokerEvent) -> None:
        """Put the beginning of an isolation in line."""
        self._put(("isolated", event.at, event.broker, event.why, event.until))

    def broker_returned(self, event: BrokerEvent) -> None:
        """Put the end of an isolation in line."""
        self._put(("returned", event.at, event.broker, event.why, None))

    def _put(self, record: _Record) -> None:
        queue, writer = self._queue, self._writer
        waiting = len(queue)
        if waiting >= self._limit or writer.is_closed:
            writer.drop(1)
            return
        queue.append(record)
        if not writer.is_called or waiting == self._half:
            writer.call(hurry=waiting >= self._half)

    def close(self, limit: float = CLOSE_LIMIT) -> None:
        """Write everything; a disk that hangs gets no longer than ``limit`` seconds."""
        self._finalizer.detach()
        self._writer.close(limit)

    def forget(self) -> None:
        """In a forked child: leave the file, and what is in line, to the parent."""
        self._finalizer.detach()
        self._writer.forget()


_Record = AttemptEvent | tuple[str, float, str, str, float | None]


class Writer:
    """The thread that formats and writes, and the line in front of it."""

    def __init__(self, config: TelemetryConfig, client_id: str) -> None:
        self.queue: deque[_Record] = deque()
        self.dropped = 0
        self.is_called = False
        self.is_closed = False
        self._told_dropped = 0
        self._format = Formatter(client_id, config.sharding_key)
        self._files = LineFiles(config, client_id)
        self._lines: list[bytes] = []
        self._called = threading.Event()
        self._hurried = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._has_trouble = False

    def call(self, *, hurry: bool) -> None:
        """There is something in line; the first call starts the thread."""
        self.is_called = True
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._main, name="rocketwire-telemetry", daemon=True
                    )
                    thread.start()
                    self._thread = thread
        self._called.set()
        if hurry:
            self._hurried.set()

    def drop(self, count: int) -> None:
        """Count what is lost; exactly, because it is the measure of what the files lack."""
        with self._lock:
            self.dropped += count

    def close(self, limit: float) -> None:
        """Write what is in line and end the thread; a second call does nothing."""
        if self.is_closed or os.getpid() != self._pid:
            return
        self.is_closed = True
        self._closing.set()
        self._hurried.set()
        self._called.set()
        thread = self._thread
        if thread is not None:
            thread.join(limit)
            if thread.is_alive():
                _log.warning("telemetry: the disk hangs, %d records are lost", len(self.queue))
        self.drop(len(self.queue))
        self.queue.clear()

    def forget(self) -> None:
        """Give everything up without touching what the parent's thread may hold."""
        self.is_closed = True
        self.queue.clear()
        self._files.forget()

    def _main(self) -> None:
        try:
            while not self._serve():
                pass
        except Exception:  # noqa: BLE001 - nobody else would hear of it
            _log.exception("telemetry failed")
        finally:
            self.drop(sum(not line.startswith(_DROPPED) for line in self._lines))
            self._files.close()

    def _serve(self) -> bool:
        """Wait for records and write them all; True after the last time."""
        self._called.wait()
        self._hurried.wait(_GATHER)
        self._called.clear()
        self._hurried.clear()
        # From here on a sender calls again; whoever was in line before is written now.
        self.is_called = False
        is_last = self._closing.is_set()
        while self._write_some():
            pass
        if not is_last and self._closing.is_set():
            self._called.set()  # it may have been cleared above
        return is_last

    def _write_some(self) -> bool:
        """Write a chunk; whether to go on."""
        if not self._lines:
            self._take()
        if not self._lines:
            return False
        is_last_try = self._closing.is_set()
        try:
            self._files.write(self._lines)
        except OSError as error:
            return self._suffer(error, is_last_try=is_last_try)
        self._has_trouble = False
        return True

    def _take(self) -> None:
        queue, make = self.queue, self._format
        for _ in range(min(_CHUNK, len(queue))):
            self._lines.append(make.line(queue.popleft()))
        lost = self.dropped - self._told_dropped
        if lost:
            self._told_dropped += lost
            self._lines.append(make.dropped(time.time(), lost))

    def _suffer(self, error: OSError, *, is_last_try: bool) -> bool:
        """Keep what could not be written for another try, unless this was the last one."""
        if not self._has_trouble:
            _log.warning("telemetry can't be written, sends go on: %s", error)
        self._has_trouble = True
        if is_last_try:
            self.drop(len(self.queue))
            self.queue.clear()
            return False
        self._closing.wait(_RETRY)
        return True


class Formatter:
    """Makes lines of records."""

    def __init__(self, client_id: str, sharding_key: str) -> None:
        self._client = _quote_once(client_id)
        self._key: Callable[[str], str | None] = _KEYS[sharding_key]

    def line(self, record: _Record) -> bytes:
        """The line of a record."""
        if isinstance(record, AttemptEvent):
            return self._attempt(record)
        kind, at, broker, reason, until = record
        moment = "null" if until is None else f"{until:.3f}"
        return (
            f'{{"kind":"{kind}","time":{at:.6f},"clientId":{self._client},'
            f'"broker":{_quote(broker)},"reason":{_quote_once(reason)},"until":{moment}}}\n'
        ).encode()

    def _attempt(self, e: AttemptEvent) -> bytes:
        # By hand, since json.dumps of a dict takes three times as long and holds up the senders.
        key = None if e.sharding_key is None else self._key(e.sharding_key)
        return (
            f'{{"kind":"attempt","time":{e.at:.6f},"clientId":{self._client},'
            f'"topic":{_quote(e.topic)},"broker":{_quote(e.broker)},"queueId":{e.queue_id},'
            f'"offset":{"null" if e.offset is None else e.offset},'
            f'"messageId":{_quote_once(e.message_id)},'
            f'"shardingKey":{"null" if key is None else _quote_once(key)},'
            f'"bytes":{e.size},"latency":{e.latency:.6f},"outcome":{_quote(e.outcome)},'
            f'"error":{"null" if e.error is None else _quote_once(e.error)},"attempt":{e.attempt},'
            f'"messages":{e.messages},"state":{_quote(e.state)}}}\n'
        ).encode()

    def dropped(self, at: float, count: int) -> bytes:
        """A line that tells how many there should have been."""
        return (
            f'{{"kind":"dropped","time":{at:.6f},"clientId":{self._client},"dropped":{count}}}\n'
        ).encode()


@lru_cache(maxsize=4096)
def hashed_key(key: str) -> str:
    """16 hexadecimal digits that stand for a sharding key, the same in every process."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_KEYS: Final[dict[str, Callable[[str], str | None]]] = {
    "plain": lambda key: key,
    "hashed": hashed_key,
    "off": lambda _: None,
}


class LineFiles:
    """Files of whole lines, each of a limited size; a new one begins when the last is full.

    Files are opened exclusively, so that each has one writer, whoever else uses the folder. They
    are written without a buffer: after a fork, two processes would flush the same one.
    """

    def __init__(self, config: TelemetryConfig, client_id: str) -> None:
        self._folder = Path(config.folder)
        self._stem = "attempts-" + re.sub(r"[^A-Za-z0-9.-]+", "_", client_id)[:120]
        self._rotate = config.rotate_bytes
        self._keep = config.files
        self._number = 0
        self._descriptor = -1
        self._size = 0
        self._own: deque[Path] = deque()

    def write(self, lines: list[bytes]) -> None:
        """Write lines, and take each from the list when it is in a file.

        Raises:
            OSError: those that are left in the list are in no file.
        """
        while lines:
            room = self._rotate - self._size
            if self._descriptor < 0 or (self._size and len(lines[0]) > room):
                self._begin()
                room = self._rotate
            count, size = 1, len(lines[0])
            while count < len(lines) and size + len(lines[count]) <= room:
                size += len(lines[count])
                count += 1
            self._append(b"".join(lines[:count]))
            del lines[:count]

    def _append(self, data: bytes) -> None:
        try:
            written = os.write(self._descriptor, data)
        except OSError:
            self._cut()
            raise
        if written < len(data):  # the disk is full
            self._cut()
            raise OSError(f"only {written} of {len(data)} bytes fit on the disk")
        self._size += written

    def _cut(self) -> None:
        """Take back half a line; where that fails, go on in a new file."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            self.close()

    def _begin(self) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            self._number += 1
            path = self._folder / f"{self._stem}-{self._number:04d}.jsonl"
            try:
                self._descriptor = os.open(
                    path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
                )
            except FileExistsError:
                continue
            break
        self._size = 0
        self._own.append(path)
        while len(self._own) > self._keep:
            self._own.popleft().unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file that is open."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    #: A forked child closes its copy; the parent's is another.
    forget = close
