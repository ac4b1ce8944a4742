"""Running command lines in this process, and clusters to run them against."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rocketwire.cli import failures
from rocketwire.cli.application import run
from rocketwire.embedded import EmbeddedCluster


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def rocketwire(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Outcome]:
    """Runs a command line with no settings but those given."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))

    def call(*arguments: str, cluster: EmbeddedCluster | None = None) -> Outcome:
        failures.wishes.debug = failures.wishes.as_json = False
        if cluster is not None:
            monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        capfd.readouterr()
        code = run(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
