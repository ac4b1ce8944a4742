"""Without its extra an integration says which one to install, in a line."""

import subprocess
import sys

import pytest

#: What is imported, the module that is missing, and the extra that has it.
IMPORTS = [
    ("import rocketwire.integrations.opentelemetry", "opentelemetry.trace", "otel"),
    ("import rocketwire.integrations.opentelemetry", "opentelemetry.semconv", "otel"),
    ("from rocketwire.integrations.prometheus import Collector", "prometheus_client", "prometheus"),
    ("import rocketwire.integrations.celery", "kombu", "celery"),
    ("from rocketwire.integrations.outbox import Outbox", "sqlalchemy", "outbox"),
]
COMMANDS = [
    (["exporter"], "prometheus_client", "cli,prometheus"),
    (["outbox", "sqlite:///x.db"], "sqlalchemy", "outbox"),
]
#: What the import system does for a module that is not there.
WITHOUT = "import sys; sys.modules[{missing!r}] = None; "


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("line", "missing", "extra"), IMPORTS)
def test_an_import_without_the_extra_names_it(line, missing, extra):
    done = python(WITHOUT.format(missing=missing) + line)
    assert done.returncode == 1
    expected = f"ModuleNotFoundError: {missing} is missing: pip install 'rocketwire[{extra}]'"
    assert done.stderr.splitlines()[-1] == expected


@pytest.mark.parametrize(("words", "missing", "extra"), COMMANDS)
def test_a_command_without_the_extra_names_it(words, missing, extra):
    code = WITHOUT.format(missing=missing)
    done = python(f"{code}from rocketwire.cli.application import run; sys.exit(run({words!r}))")
    assert done.returncode != 0
    assert f"pip install 'rocketwire[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_database_that_can_not_be_used_is_told_in_a_line():
    pytest.importorskip("sqlalchemy", reason="needs rocketwire[outbox]")
    done = python(
        "import sys; from rocketwire.cli.application import run; sys.exit(run(['outbox', 'no url']))"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("rocketwire: the URL of the database can't be used")
    assert len(done.stderr.splitlines()) == 1
