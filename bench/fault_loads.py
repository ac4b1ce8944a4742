"""Clients that send at full speed while a broker goes wrong: ours, Apache's Java producer, Go's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tests.interop.driver import Driver, GoDriver, JavaDriver
from tests.real import running
from tests.real.proxied import BAD
from tests.real.running import unique

from bench.fault_phases import Send
from rocketwire import Message, Producer, SendFailedError, SendResult

_BODY = b"x" * 200
_WARM_JAVA = ("-XX:TieredStopAtLevel=4",)
CLIENTS = {
    "ours": "Rocketwire",
    "java": "Java",
    "java-switch": "Java, its switch on",
    "go": "Go",
}


class Load(Protocol):
    """Sends at full speed between start and stop."""

    def start(self) -> None: ...

    def stop(self) -> list[Send]: ...


class OurLoad:
    """Our producer: blocking sends from some threads, or submits with 64 messages under way."""

    def __init__(self, name_server: str, topic: str, mode: str) -> None:
        self._is_flying = mode == "64"
        self._producer = Producer(name_server, group=unique("bench"), max_in_flight=64)
        self._topic = topic
        self._sends: list[Send] = []
        self._over = threading.Event()
        count = 1 if self._is_flying else int(mode)
        work = self._fly if self._is_flying else self._wait
        self._threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        self._begun = 0.0
        self._used: list[float] = []

    def start(self) -> None:
        self._producer.start()
        self._begun = time.perf_counter()
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[Send]:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        if self._is_flying:
            self._producer.flush(30)
        self._producer.shutdown()
        return self._sends

    def used_after(self, moment: float) -> float | None:
        """When, in seconds from the start, a message sent after ``moment`` was stored by the bad broker."""
        # Copied, because the threads go on; only the end can be of interest.
        return next((at for at in self._used[-2000:] if at > moment), None)

    def isolation(self) -> float | None:
        """How long the present isolation of the bad broker is as a whole."""
        for health in self._producer.health():
            if health.broker == BAD and health.until is not None:
                return health.until - health.since
        return None

    def _note(self, at: float, result: SendResult | None) -> None:
        now = time.perf_counter()
        if result is not None and result.queue.broker == BAD:
            self._used.append(at - self._begun)
        self._sends.append(Send(now - self._begun, now - at, result is not None))

    def _wait(self) -> None:
        while not self._over.is_set():
            at = time.perf_counter()
            try:
                self._note(at, self._producer.send(Message(self._topic, _BODY)))
            except SendFailedError:
                self._note(at, None)

    def _fly(self) -> None:
        while not self._over.is_set():
            self._submit(time.perf_counter())

    def _submit(self, at: float) -> None:
        def stored(result: SendResult) -> None:
            self._note(at, result)

        def failed(_: BaseException) -> None:
            self._note(at, None)

        message = Message(self._topic, _BODY)
        try:
            self._producer.submit(message, on_success=stored, on_error=failed)
        except SendFailedError:  # no room in time
            self._note(at, None)


class ForeignLoad:
    """A foreign client's own producer, in its own process."""

    def __init__(
        self, driver: Driver, name_server: str, topic: str, mode: str, **options: Any
    ) -> None:
        self._driver = driver
        self._topic = topic
        self._how = {"threads": 1, "in_flight": 64} if mode == "64" else {"threads": int(mode)}
        self._name = unique("load")
        driver.call(
            "producer.start",
            producer=self._name,
            group=self._name,
            name_server=name_server,
            **options,
        )

    def start(self) -> None:
        self._driver.call(
            "load.start",
            load=self._name,
            producer=self._name,
            topic=self._topic,
            body_size=len(_BODY),
            **self._how,
        )

    def stop(self) -> list[Send]:
        """The sends.

        Raises:
            RuntimeError: the client's process has ended, as Go's does when asynchronous sends time out.
        """
        found = self._driver.call("load.stop", load=self._name, limit=120)
        self._driver.begin("producer.stop", producer=self._name)
        return [Send(end / 1e6, took / 1e6, good == 1) for end, took, good in found["sends"]]


@contextmanager
def loads(version: str) -> Iterator[dict[str, Callable[..., Load]]]:
    """Something that makes a load, for each client; foreign ones are started when first asked for."""

    def java(*where: str, **options: Any) -> Load:
        driver = running.shared("bench-java", lambda: JavaDriver(version, _WARM_JAVA))
        return ForeignLoad(driver, *where, **options)

    def go(*where: str) -> Load:
        return ForeignLoad(running.shared("bench-go", GoDriver), *where)

    switch = {"sendLatencyFaultEnable": True}
    try:
        yield {
            "ours": OurLoad,
            "java": java,
            "java-switch": lambda *where: java(*where, options=switch),
            "go": go,
        }
    finally:
        running.close()
