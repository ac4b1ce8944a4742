"""Delivery telemetry: one JSON line for each attempt, isolation, return, probe and route.

The sending thread only puts the event in line; a writer thread, which starts with the first event,
formats and writes. When the disk can't keep up, new records are dropped and counted. Nothing that
goes wrong here reaches a send. What the lines hold is told in ``telemetry_lines``. Every file can be
read alone: it begins with a header and the routes that were known then.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rocketwire.hooks import AttemptEvent, BrokerEvent, ProbeEvent, RouteEvent
from rocketwire.system.latch import ThreadSignal
from rocketwire.system.lone_thread import LoneThread
from rocketwire.system.telemetry_lines import DROPPED, Formatter, Record
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


class Telemetry:
    """A hook that records attempts, probes, routes and the comings and goings of brokers.

    Args:
        config: where to, and how much.
        client_id: of the client that it belongs to.
        settings: what each file tells of the client in its first line.
    """

    def __init__(
        self, config: TelemetryConfig, client_id: str, settings: Mapping[str, Any] | None = None
    ) -> None:
        writer = self._writer = Writer(config, client_id, settings or {})
        self._queue = writer.queue
        self._limit = config.max_queue
        self._half = config.max_queue // 2
        # A program that forgets to shut down loses nothing either, at the latest when Python ends.
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

    def broker_probed(self, event: ProbeEvent) -> None:
        """Put a probe in line."""
        self._put(event)

    def route_learned(self, event: RouteEvent) -> None:
        """Put the queues of a topic in line."""
        self._put(event)

    def _put(self, record: Record) -> None:
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


class Writer:
    """The thread that formats and writes, and the line in front of it."""

    def __init__(
        self, config: TelemetryConfig, client_id: str, settings: Mapping[str, Any]
    ) -> None:
        self.queue: deque[Record] = deque()
        self.dropped = 0
        self.is_called = False
        self.is_closed = False
        self._told_dropped = 0
        self._format = Formatter(client_id, config.sharding_key, settings)
        # A file should hold more than its head.
        room = config.rotate_bytes // 4
        self._files = LineFiles(config, client_id, lambda: self._format.head(time.time(), room))
        self._lines: list[bytes] = []
        self._called = ThreadSignal()
        self._hurried = ThreadSignal()
        self._is_closing = False
        #: Whether something went wrong since it is closing.
        self._is_last_try = False
        self._lock = threading.RLock()
        self._thread = LoneThread("rocketwire-telemetry")
        self._pid = os.getpid()
        self._has_trouble = False

    def call(self, *, hurry: bool) -> None:
        """There is something in line; the first call starts the thread."""
        self.is_called = True
        if not self._thread.is_begun:
            with self._lock:
                self._thread.start(self._main)
        self._called.give()
        if hurry:
            self._hurried.give()

    def drop(self, count: int) -> None:
        """Count what is lost; exactly, because it is the measure of what the files lack."""
        with self._lock:
            self.dropped += count

    def close(self, limit: float) -> None:
        """Write what is in line and end the thread; again, if the first call was interrupted."""
        if os.getpid() != self._pid:
            return
        self.is_closed = True
        self._is_closing = True
        self._hurried.give()
        self._called.give()
        self._thread.join(limit)
        if self._thread.is_alive():
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
            while not self._serve_on():
                pass
        finally:
            self._drop_lines()
            self._files.close()

    def _serve_on(self) -> bool:
        """As ``_serve``; what goes wrong in it costs what it had in hand, and nothing that follows."""
        try:
            return self._serve()
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            if not self._has_trouble:
                _log.error("telemetry failed, and goes on with new records", exc_info=error)
            self._has_trouble = True
            self._drop_lines()
            self._called.give()  # there may be more in line
            if not self._is_closing:
                return False
            # What follows is written at the end, too, but tried once only.
            is_over, self._is_last_try = self._is_last_try, True
            return is_over

    def _drop_lines(self) -> None:
        self.drop(sum(not line.startswith(DROPPED) for line in self._lines))
        self._lines.clear()

    def _serve(self) -> bool:
        """Wait for records and write them all; True after the last time."""
        self._called.wait()
        self._hurried.wait(_GATHER)
        self._called.wait(0)
        self._hurried.wait(0)
        # From here on a sender calls again; what was in line before is written now.
        self.is_called = False
        is_last = self._is_closing
        while self._write_some():
            pass
        if not is_last and self._is_closing:
            self._called.give()  # it may have been cleared above
        return is_last

    def _write_some(self) -> bool:
        """Write a chunk; whether to go on."""
        if not self._lines:
            self._take()
        if not self._lines:
            return False
        is_last_try = self._is_closing
        try:
            self._files.write(self._lines)
        except OSError as error:
            return self._suffer(error, is_last_try=is_last_try)
        self._has_trouble = False
        return True

    def _take(self) -> None:
        queue, make = self.queue, self._format
        for _ in range(min(_CHUNK, len(queue))):
            record = queue.popleft()
            try:
                line = make.line(record)
            except Exception as error:  # noqa: BLE001 - one record is lost, and counted
                self.drop(1)
                _log.warning("a telemetry record can't be written: %r", error)
            else:
                self._lines.append(line)
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
        self._hurried.wait(_RETRY)
        return True


class LineFiles:
    """Files of whole lines, each of a limited size; a new one begins when the last is full.

    Files are opened exclusively, so that each has one writer in a shared folder, too. They
    are written without a buffer: after a fork, two processes would flush the same one.

    Args:
        config: where they are, and how large and how many.
        client_id: stands in their names.
        head: makes the lines that each begins with.
    """

    def __init__(
        self, config: TelemetryConfig, client_id: str, head: Callable[[], bytes] = bytes
    ) -> None:
        self._head = head
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
            # With the first lines in one go: no file has records without the head.
            head = b"" if self._size else self._head()
            count, size = 1, len(head) + len(lines[0])
            while count < len(lines) and size + len(lines[count]) <= room:
                size += len(lines[count])
                count += 1
            self._append(head + b"".join(lines[:count]))
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
