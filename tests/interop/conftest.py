"""Fixtures of the tests that let foreign clients loose on our embedded cluster."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Test modules are imported by file, not by package; the harness is imported by name from everywhere.
_ROOT = str(Path(__file__).parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.interop import targets  # noqa: E402  (needs the path above)
from tests.interop.driver import Driver  # noqa: E402
from tests.interop.targets import Target  # noqa: E402
from tests.real import running  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    running.mark(items, Path(__file__).parent, "interop")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``meeting`` runs for every pair; ``@without`` leaves some out."""
    if "meeting" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("without")
        left_out = set(marker.args) if marker else set()
        chosen = [pair for pair in targets.pairs() if not left_out & {*pair, "/".join(pair)}]
        metafunc.parametrize(
            "meeting", chosen, ids=["-".join(pair) for pair in chosen], indirect=True
        )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "without(*names): targets or clients this cannot run with")


@pytest.fixture(scope="session", autouse=True)
def _shared_until_the_end() -> Iterator[None]:
    yield
    running.close()


@dataclass(repr=False)
class Meeting:
    """One client and one target, with the names of everything started for one test."""

    target: Target
    client: Driver

    def __post_init__(self) -> None:
        self._started: list[tuple[str, dict[str, Any]]] = []

    def topic(self, queues: int = 4) -> str:
        name = running.unique("topic")
        self.target.create_topic(name, queues)
        return name

    def __repr__(self) -> str:
        return f"<{self.client.name} on {self.target.label}>"

    def producer(self, **options: Any) -> str:
        """The producer shared by all tests of this pair, or with options one of its own."""
        if not options:
            key = f"producer-{self.target.name_server}-{id(self.client)}"
            return running.shared(key, self._shared_producer)
        name = running.unique("producer")
        self.call("producer.start", producer=name, group=name, **options)
        self._started.append(("producer.stop", {"producer": name}))
        return name

    @contextmanager
    def _shared_producer(self) -> Iterator[str]:
        # Stopped with its process: a Java producer takes seconds to shut down.
        name = running.unique("producer")
        self.call("producer.start", producer=name, group=name)
        yield name

    def consumer(self, kind: str, topic: str, group: str | None = None, **options: Any) -> str:
        """Start a ``push``, ``lite`` or ``pull`` consumer that reads from the first offset."""
        name = running.unique("consumer")
        if self.client.name != "go" and kind == "push":
            where = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
            options["options"] = where | options.get("options", {})
        self.call(f"{kind}.start", consumer=name, group=group or name, topic=topic, **options)
        self._started.append(("consumer.stop", {"consumer": name}))
        return name

    def call(self, command: str, **arguments: Any) -> Any:
        return self.client.call(command, name_server=self.target.name_server, **arguments)

    def take(self, consumer: str, count: int, seconds: float = 60.0) -> list[dict[str, Any]]:
        """Wait for ``count`` messages of a push consumer; fewer only when the time is over."""
        wait = int(seconds * 1000)
        found = self.client.call(
            "push.take", consumer=consumer, count=count, timeout_ms=wait, limit=seconds + 30
        )
        return list(found)

    def stop(self, name: str) -> None:
        """Stop one producer or consumer before the test ends."""
        for entry in self._started:
            if name in entry[1].values():
                self._started.remove(entry)
                self.client.call(entry[0], **entry[1])
                return

    def close(self) -> None:
        while self._started:
            # Not waited for: a Java client takes three seconds to shut down.
            command, arguments = self._started.pop()
            self.client.begin(command, **arguments)


@pytest.fixture
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    target_name, client_name = request.param
    made = Meeting(targets.target(target_name), targets.client(client_name))
    yield made
    made.close()
