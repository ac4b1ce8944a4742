"""What the runner of all tests says of one that fails, again and only once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[3] / "tools" / "run_tests.py"
TESTS = """
from pathlib import Path
import pytest

def fail_first(name):
    seen = Path(__file__).with_name(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")

def test_good():
    assert True

class TestWithin:
    @pytest.mark.parametrize("word", ["a b", "c.d::e"])
    def test_the_first_time(self, word):
        fail_first(word[0])

@pytest.fixture
def torn_down():
    yield
    fail_first("torn")

def test_fixture(torn_down):
    assert True
"""
BAD = "\ndef test_bad():\n    assert False\n"
CRASH = "\ndef test_crash():\n    import os\n    os._exit(3)\n"


@pytest.fixture
def run(tmp_path):
    # Plugins take most of the time that pytest needs to start, and none is needed here.
    surroundings = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    (tmp_path / "pytest.ini").touch()

    def told(tests, *arguments):
        (tmp_path / "test_some.py").write_text(tests)
        command = [sys.executable, str(RUNNER), "test_some.py", "-q", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines()

    return told


def test_one_that_does_not_fail_again_is_told_as_unsteady(run):
    code, lines = run(TESTS, "--again=3")
    assert (code, lines[-1]) == (0, "4 passed, 0 failed, 0 skipped")
    assert [line.split()[1] for line in lines if line.startswith("UNSTEADY")] == [
        "test_some.py::TestWithin::test_the_first_time[a",
        "test_some.py::TestWithin::test_the_first_time[c.d::e]",
        "test_some.py::test_fixture",
    ]


@pytest.mark.parametrize(
    ("tests", "arguments", "failed"),
    [
        (TESTS, [], 3),
        (TESTS, ["--again=2"], 3),
        (TESTS.replace("fail_first(word[0])", "assert True") + BAD, ["--again=3"], 1),
    ],
    ids=["not asked to look again", "too many for chance", "one that fails again"],
)
def test_a_failure_fails_the_run(run, tests, arguments, failed):
    code, lines = run(tests, *arguments)
    assert code == 1
    assert lines[-1].split(", ")[1] == f"{failed} failed"


def test_a_run_that_ends_early_fails_whatever_else_is_known(run):
    code, _ = run(TESTS + CRASH, "--again=9")
    assert code == 1


def test_a_run_for_the_table_of_releases_has_the_slow_parts_too():
    sys.path.insert(0, str(RUNNER.parent))
    try:
        import run_tests
    finally:
        sys.path.remove(str(RUNNER.parent))
    (slow,) = run_tests.stages(slow=True)[len(run_tests.stages(slow=False)) :]
    assert all(
        (RUNNER.parents[1] / word).is_file() for word in slow[0] if word.startswith("tests/")
    )
    assert "tests/real/test_replicas.py" in slow[0]
