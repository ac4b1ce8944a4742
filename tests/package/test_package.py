"""The wheel and the sdist, built and used outside the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from rocketwire.version import __version__

ROOT = Path(__file__).parents[2]
WHEEL = f"rocketwire-{__version__}-py3-none-any.whl"
SDIST = f"rocketwire-{__version__}.tar.gz"

SMOKE = """
import asyncio
import rocketwire
from rocketwire import AsyncProducer, Consumer, Message, Producer, Reader
from rocketwire.embedded import EmbeddedCluster

with EmbeddedCluster(brokers=2) as cluster:
    with Producer(cluster.name_server, group="smoke") as producer:
        for n in range(8):
            assert producer.send(Message("T", str(n), keys=f"k{n}")).message_id

    async def more():
        async with AsyncProducer(cluster.name_server, group="smoke") as producer:
            await asyncio.gather(*(producer.send(Message("T", str(n))) for n in range(8, 16)))

    asyncio.run(more())
    with Reader(cluster.name_server) as reader:
        assert sorted(int(m.text) for m in reader.read("T")) == list(range(16))
        assert reader.messages_by_key("T", "k3")[0].text == "3"
    seen = set()
    with Consumer(cluster.name_server, group="readers", start="earliest") as consumer:
        for message in consumer.subscribe("T"):
            seen.add(message.text)
            if len(seen) == 16:
                break
print(rocketwire.__version__, rocketwire.__file__)
"""


def interpreters() -> dict[str, str]:
    """Programs of all Pythons here that are served, by release; further ones are in ROCKETWIRE_PYTHONS."""
    folders = os.environ.get("ROCKETWIRE_PYTHONS", "").split(os.pathsep)
    folders += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin"))]
    places = os.pathsep.join([*filter(None, folders), os.environ["PATH"]])
    releases = [f"3.{minor}" for minor in range(11, 15)]
    found = {each: shutil.which(f"python{each}", path=places) for each in releases}
    return {each: program for each, program in found.items() if program is not None}


def run(*command: object, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, cwd=cwd, capture_output=True, text=True, timeout=240)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with an sdist of the tree, and a wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_sdist_and_wheel_are_built_under_the_version_of_the_code(built):
    assert sorted(path.name for path in built.iterdir()) == [WHEEL, SDIST]


def test_the_wheel_has_every_module_and_nothing_else(built):
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        info = {Path(name).name for name in wheel.namelist() if ".dist-info/" in name}
    assert names == sources
    assert "rocketwire/py.typed" in names
    assert {"METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt"} <= info


def test_the_sdist_has_what_is_needed_to_test_it(built):
    with tarfile.open(built / SDIST) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "Makefile", "constraints.txt", "pyproject.toml"} <= names
    assert "tests/package/test_package.py" in names


@pytest.fixture(scope="module")
def empty(built, tmp_path_factory) -> Path:
    """An environment with nothing in it but the wheel; returns its folder of programs."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--no-index", built / WHEEL, cwd=folder)
    return programs


def test_the_wheel_alone_sends_reads_and_consumes_outside_the_tree(empty, tmp_path):
    version, where = run(empty / "python", "-I", "-c", SMOKE, cwd=tmp_path).stdout.split()
    assert version == __version__
    assert Path(where).is_relative_to(empty.parent)


def test_the_command_without_its_extra_says_what_to_install(empty, tmp_path):
    for command in ([empty / "rocketwire"], [empty / "python", "-m", "rocketwire"]):
        done = run(*command, cwd=tmp_path, check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr == (
            "the rocketwire command needs typer and rich: pip install 'rocketwire[cli]'\n"
        )


@pytest.mark.parametrize("release", interpreters())
def test_the_first_snippet_of_the_readme_runs_on_every_python_that_is_here(
    built, tmp_path, release
):
    """In an environment with nothing in it but the wheel, which was built from the sdist."""
    run(interpreters()[release], "-m", "venv", "--without-pip", tmp_path / "empty", cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    run(*pip, built / WHEEL, cwd=tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (snippet, *_) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    told = "import sys; print(*sys.version_info[:2], sep='.')\n"
    done = run(python, "-I", "-W", "error", "-c", told + snippet, cwd=tmp_path)
    version, queue = done.stdout.splitlines()
    assert version == release
    assert re.fullmatch(r"MessageQueue\(topic='orders', broker='broker-[ab]', id=[0-3]\)", queue)
