"""Databases for the outbox: SQLite, and a PostgreSQL of the test's own where its programs are."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/bin", "/usr/pgsql-*/bin", "/opt/homebrew/bin")


def _program(name):
    found = shutil.which(name)
    if found:
        return found
    for place in _PLACES:
        for path in sorted(Path("/").glob(f"{place[1:]}/{name}"), reverse=True):
            return str(path)
    return None


def _owner():
    """PostgreSQL refuses to run as root: another user, or None where that is not needed."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL does not run as root, and there is no user for it")


@contextlib.contextmanager
def postgres():
    """A running PostgreSQL; gives its URL for SQLAlchemy with psycopg."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, server = _program("initdb"), _program("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed: no initdb and postgres on the path")
    owner = _owner()
    more = (
        {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    )
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    try:
        made = subprocess.run(
            [initdb, "-D", str(folder / "data"), "-U", "shop", "-A", "trust", "-N", "-E", "UTF8"],
            capture_output=True, text=True, cwd=folder, check=False, timeout=120, **more,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"initdb does not work here: {made.stderr[-200:]}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [server, "-D", str(folder / "data"), "-p", str(port), "-h", "127.0.0.1", "-k", "",
             "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **more,
        )  # fmt: skip
        try:
            _wait_for(port, process)
            yield f"postgresql+psycopg://shop@127.0.0.1:{port}/postgres"
        finally:
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port, process):
    import psycopg

    end = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(
                f"postgresql://shop@127.0.0.1:{port}/postgres", connect_timeout=2
            ).close()
        except psycopg.OperationalError:
            assert process.poll() is None, "PostgreSQL ended"
            assert time.monotonic() < end, "PostgreSQL did not begin"
            time.sleep(0.1)
        else:
            return
