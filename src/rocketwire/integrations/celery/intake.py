"""The messages that a channel has received and not acknowledged yet.

Others get them when their time is over. So a thread keeps them for as long as this process lives:
a task may take hours, and the tasks of a worker that was killed come again soon.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable
from typing import Final

from rocketwire import ReceivedMessage, RocketMQError, SimpleConsumer, TransportError
from rocketwire.integrations.celery.settings import Clients

_log: Final = logging.getLogger("rocketwire.celery")
_AT_ONCE: Final = 32


class Intake:
    """Receives for one channel, and keeps what it received."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._span = clients.settings.visibility_timeout
        # A consumer can't be told to forget a topic: each set of topics has its own.
        self._consumers: dict[frozenset[str], SimpleConsumer] = {}
        self._held: dict[str, ReceivedMessage] = {}
        # Acknowledging and keeping one message at the same time would bring it again.
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        self._pid = os.getpid()

    def receive(self, topics: Iterable[str], count: int, wait: float) -> list[ReceivedMessage]:
        """Up to so many messages; none when nothing came in time."""
        wanted = frozenset(topics)
        if wanted not in self._consumers:
            self._consumers[wanted] = self._clients.consumer(wanted)
        count = min(count, _AT_ONCE)
        return self._consumers[wanted].receive(count, wait=wait, invisible=self._span)

    def keep(self, tag: str, message: ReceivedMessage) -> None:
        """Have a message stay this channel's until it is acknowledged or given back."""
        with self._lock:
            self._held[tag] = message
        if self._keeper is None:
            self._keeper = threading.Thread(
                target=self._keep_all, name="rocketwire-celery-keeper", daemon=True
            )
            self._keeper.start()

    def _keep_all(self) -> None:
        while not self._over.wait(self._span / 3):
            for tag in list(self._held):
                with self._lock:
                    message = self._held.get(tag)
                    if message is not None:
                        self._keep_one(tag, message)

    def _keep_one(self, tag: str, message: ReceivedMessage) -> None:
        try:
            message.extend(self._span)
        except TransportError as error:
            _log.warning("a message of %s can't be kept just now: %s", message.topic, error)
        except RocketMQError as error:
            self._held.pop(tag, None)
            _log.warning("a message of %s was lost to another worker: %s", message.topic, error)
        except Exception:  # noqa: BLE001 - the others must be kept, and this one again
            _log.exception("a message of %s can't be kept just now", message.topic)

    def ack(self, tag: str) -> None:
        """Be done with a message.

        Raises:
            TransportError: the broker could not be reached; the message comes again.
        """
        with self._lock:
            message = self._held.pop(tag, None)
            # What was inherited by a fork is the parent's.
            if message is None or os.getpid() != self._pid:
                return
            try:
                message.ack()
            except TransportError:
                raise
            except RocketMQError as error:
                _log.warning(
                    "a message of %s comes again, its acknowledgement was refused: %s",
                    message.topic,
                    error,
                )

    def release(self, tag: str) -> None:
        """Give a message back: any worker may receive it."""
        with self._lock:
            message = self._held.pop(tag, None)
            if message is None or os.getpid() != self._pid:
                return
            # If this fails, it comes again when its time is over.
            with contextlib.suppress(RocketMQError):
                message.release()

    def purge(self, topic: str) -> int:
        """Acknowledge all that nobody has received; returns how many."""
        count = 0
        while found := self.receive([topic], _AT_ONCE, 0.0):
            self._consumers[frozenset([topic])].acknowledge(found)
            count += len(found)
        return count

    def close(self) -> None:
        """Give everything back, and stop."""
        self._over.set()
        for tag in list(self._held):
            self.release(tag)
        if os.getpid() == self._pid:
            if self._keeper is not None:
                self._keeper.join()
            for consumer in self._consumers.values():
                consumer.shutdown()
        self._consumers.clear()
