"""The vectors of Java's fault strategy are what Apache's own classes say.

``python -m tests.real.test_fault_vectors`` writes them anew.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.real import jars

FOLDER = Path(__file__).parents[1] / "vectors" / "java"
SOURCES = [FOLDER / "FaultVectors.java", FOLDER / "FaultMarks.java"]
RELEASES = ("4.9.7", "5.3.3")
_LIMIT = 180.0


def by_java(release: str, folder: Path) -> str:
    """Run Apache's classes of one release; ``folder`` is where they may write logs."""
    command = [
        "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
        f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}",
        "-cp", jars.compiled(release, SOURCES), "FaultVectors",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT, check=True
    )
    # 5.x says something of its logging between the lines.
    return "".join(f"{line}\n" for line in done.stdout.splitlines() if line.startswith("{"))


def path_of(release: str) -> Path:
    return FOLDER / f"faults-{release}.jsonl"


@pytest.mark.parametrize("release", RELEASES)
def test_the_vectors_are_those_of_java(release: str, tmp_path: Path) -> None:
    jars.require_tools(release)
    assert by_java(release, tmp_path) == path_of(release).read_text()


if __name__ == "__main__":
    for each in RELEASES:
        path_of(each).write_text(by_java(each, Path(sys.argv[1])))
