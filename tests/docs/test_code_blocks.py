"""Every code block of the README and the documentation is run."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.docs.markdown_blocks import ROOT, blocks_of, commands_of, pages

from rocketwire.cli.application import COMMANDS, app
from rocketwire.cli.invocation import read_folder_file
from rocketwire.embedded import EmbeddedCluster

SOURCES = ROOT / "src"
RUNNER = Path(__file__).with_name("page_runner.py")
ADDRESS = "127.0.0.1:9876"
#: Written for other machines, or run by other tests.
NOT_RUN = ("pip ", "make ", "docker ", "kubectl ", "git ", "spark-submit ", "rocketwire demo", "cd ",
           "python -m venv", "python -m bench", "source ", "pytest", "uvicorn ", "mqadmin ",
           # Ends with 1 after Ctrl-C, over any transport; its page runs one by itself.
           "celery ",
           # An environment that is shipped to a cluster: needs an index, and a cluster.
           "environment/bin/", "tar xzf environment.tar.gz", "PYSPARK_PYTHON=")  # fmt: skip
KNOWN = {"python", "console", "text", "toml", "json", "yaml", "java", "dockerfile", "sh"}
LONG_RUNNING = ("rocketwire cluster", "rocketwire broker", "rocketwire exporter")
#: Runs a command whose Ctrl-C works, which it does not where the tests were begun in the background.
LIKE_A_TERMINAL = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


#: Pages that need a library of an extra.
NEEDS = {
    "celery.md": ("celery",),
    "integrations.md": ("celery", "sqlalchemy"),
    "outbox.md": ("sqlalchemy", "aiosqlite", "django"),
}


def names(page):
    return str(page.relative_to(ROOT))


def marked():
    for page in pages():
        needs_spark = any("spark" in b.code for b in blocks_of(page) if b.language == "python")
        marks = [pytest.mark.spark, pytest.mark.timeout(900)] if needs_spark else []
        yield pytest.param(page, id=names(page), marks=marks)


def make_place(folder, python=sys.executable):
    """A folder to run in, with a ``rocketwire`` command on its path."""
    for name, module in (("rocketwire", "-m rocketwire"), ("python", "")):
        command = folder / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {python} {module} "$@"\n')
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (folder / "here").mkdir()
    return folder


@pytest.fixture
def place(tmp_path):
    return make_place(tmp_path)


class Page:
    """Runs one page against one cluster."""

    def __init__(self, page, cluster, place, python=sys.executable):
        self.page = page
        self.python = python
        self.cluster = cluster
        self.place = place
        self.here = place / "here"
        self.blocks = blocks_of(page)
        self.scripts = " ".join(
            command
            for b in self.blocks
            if b.language == "console"
            for command in commands_of(b.code)
            if not command.startswith(NOT_RUN)
        )
        # Two hundred partitions for a handful of rows would only take time.
        (place / "spark-defaults.conf").write_text(
            "spark.sql.shuffle.partitions 2\nspark.ui.enabled false\n"
        )
        path = [str(place / "bin"), str(Path(python).parent), os.environ["PATH"]]
        self.environment = os.environ | {
            "PYTHONPATH": str(SOURCES),
            "PATH": os.pathsep.join(path),
            "XDG_CONFIG_HOME": str(place),
            "NAMESRV_ADDR": cluster.name_server,
            "TMPDIR": str(place),
            "SPARK_CONF_DIR": str(place),
        }

    def here_and_now(self, text):
        return text.replace(ADDRESS, self.cluster.name_server)

    def run(self):
        """Python blocks between two console blocks run together, in one process."""
        pending = []
        for block in self.blocks:
            if block.language == "python" and block.title and block.title in self.scripts:
                target = self.here / block.title
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.here_and_now(block.code))
            elif block.language == "python":
                if block.title:
                    (self.here / block.title).write_text(self.here_and_now(block.code))
                pending.append((block.line, self.here_and_now(block.code)))
            elif block.language == "console":
                self.run_python(pending)
                pending = []
                for command in commands_of(block.code):
                    self.run_command(command, block)
        self.run_python(pending)

    def run_python(self, blocks):
        if not blocks:
            return
        listing = self.place / "blocks.json"
        listing.write_text(json.dumps(blocks))
        done = subprocess.run(
            [
                self.python,
                "-W",
                "error::ResourceWarning",
                str(RUNNER),
                str(listing),
                names(self.page),
            ],
            cwd=self.here,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, f"{names(self.page)}:\n{done.stdout}\n{done.stderr}"
        assert "ResourceWarning" not in done.stderr

    def run_command(self, command, block):
        command = self.here_and_now(command)
        if command.startswith(NOT_RUN):
            return
        if command.startswith(LONG_RUNNING):
            words = shlex.split(command)
            check_words(words[1:])
            return
        process = subprocess.Popen(
            [sys.executable, "-c", LIKE_A_TERMINAL, "bash", "-euo", "pipefail", "-c", command],
            cwd=self.here,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        allowed = {0}
        try:
            out, err = process.communicate(timeout=4 if block.endless else 250)
        except subprocess.TimeoutExpired:
            assert block.endless, f"{names(self.page)}: {command} does not end"
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30)
            allowed = {0, 130, -signal.SIGINT}
        assert process.returncode in allowed, f"{names(self.page)}: {command}\n{out}\n{err}"


def check_words(words):
    """Refuse a command line that the parser would refuse."""
    import typer

    group = typer.main.get_command(app)
    name, *rest = words
    assert name in COMMANDS
    group.get_command(None, name).make_context(name, rest)


@pytest.mark.parametrize("page", list(marked()))
def test_the_page_runs(page, place):
    blocks = blocks_of(page)
    if not any(block.language in {"python", "console"} for block in blocks):
        return
    for library in NEEDS.get(page.name, ()):
        pytest.importorskip(library, reason=f"{library} is not installed")
    with EmbeddedCluster(3) as cluster:
        Page(page, cluster, place).run()


@pytest.mark.parametrize("page", pages(), ids=names)
def test_settings_and_data_in_the_page_can_be_read(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page):
        assert block.language in KNOWN, f"{names(page)}:{block.line}: {block.language!r}"
        if block.language == "toml":
            tomllib.loads(block.code)
            if block.title.endswith("rocketwire.toml"):
                (tmp_path / "rocketwire.toml").write_text(block.code)
                assert read_folder_file()
        elif block.language == "json":
            json.loads(block.code)
        elif block.language == "yaml":
            assert yaml.safe_load(block.code)


def test_every_command_line_in_the_documentation_is_understood():
    for page in pages():
        for block in blocks_of(page):
            for command in commands_of(block.code) if block.language in {"console", "text"} else ():
                if command.startswith("rocketwire ") and not set("|&;") & set(command):
                    words = shlex.split(command)[1:]
                    if words[0] in {"topic", "group"} or words[0].startswith("-"):
                        continue
                    check_words([w for w in words if w != "--help"])
