"""Web servers with worker processes, as the pages of the documentation start them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.docs.markdown_blocks import ROOT, blocks_of
from tests.wire_tools import decode_message_id

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

WSGI = """
import messaging

FIRST = messaging.announce("orders", "from the one that forks", "first")


def app(environ, start_response):
    answer = messaging.announce("orders", "paid", "order")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer.encode()]
"""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("orders", queues=2)
        yield running


def block(page: str, title: str) -> str:
    (found,) = [b.code for b in blocks_of(ROOT / "docs/howto" / page) if b.title == title]
    return found


@contextmanager
def serving(folder: Path, name_server: str, *command: str) -> Iterator[str]:
    """A server, started and ended by its process; gives its address. It has to end well."""
    server = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=os.environ | {"NAMESRV_ADDR": name_server},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    said = ""
    try:
        for line in server.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                wait_for(int(found[1]))
                yield found[0]
                break
    finally:
        server.send_signal(signal.SIGTERM)
        said += server.communicate(timeout=60)[0]
    assert server.returncode == 0, said
    assert "Traceback" not in said, said


def wait_for(port: int) -> None:
    """Servers tell of their port before anybody listens there."""
    for _ in range(1000):
        with (
            contextlib.suppress(ConnectionRefusedError),
            socket.create_connection(("127.0.0.1", port)),
        ):
            return
        time.sleep(0.02)


def ask_until_both_have_answered(ask: object) -> list[str]:
    """The ids of what was sent, by as many workers as there are."""
    ids: list[str] = []
    with ThreadPoolExecutor(8) as threads:
        for _ in range(100):
            ids += threads.map(lambda _: ask(), range(16))  # type: ignore[operator]
            if len({decode_message_id(message_id).pid for message_id in ids}) == 2:
                return ids
    raise AssertionError("one worker got everything")


def goodbyes(cluster: EmbeddedCluster) -> int:
    """How many clients have left in good order, as the first broker heard it."""
    entries = [e for e in cluster.journal if e.code == RequestCode.UNREGISTER_CLIENT]
    return len({entry.client for entry in entries if entry.server == "broker-a"})


def test_each_uvicorn_worker_has_a_producer_of_its_own(cluster, tmp_path) -> None:
    (tmp_path / "shop.py").write_text(block("fastapi.md", "shop.py"))
    command = ("uvicorn", "shop:app", "--workers", "2", "--host", "127.0.0.1", "--port", "0")
    with serving(tmp_path, cluster.name_server, *command) as address:

        def pay() -> str:
            answer = httpx.post(f"{address}/orders/7/pay", timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()["message"]

        ids = ask_until_both_have_answered(pay)
        assert "broker-a" in httpx.get(f"{address}/health", timeout=60).json()
    assert {m.message_id for m in cluster.messages("orders")} == set(ids)
    assert len(set(ids)) == len(ids)
    assert goodbyes(cluster) == 2


def test_gunicorn_workers_use_the_producer_that_was_open_before_the_fork(cluster, tmp_path) -> None:
    code = block("django-celery.md", "messaging.py")
    (tmp_path / "messaging.py").write_text(code.replace("127.0.0.1:9876", cluster.name_server))
    (tmp_path / "wsgi.py").write_text(WSGI)
    command = (
        "gunicorn",
        "--preload",
        "--no-control-socket",
        "--workers",
        "2",
        "--bind",
        "127.0.0.1:0",
        "wsgi:app",
    )
    with serving(tmp_path, cluster.name_server, *command) as address:
        ids = ask_until_both_have_answered(lambda: httpx.get(address, timeout=60).text)
    found = {m.message_id: m.body for m in cluster.messages("orders")}
    assert len(set(ids)) == len(ids)
    assert set(ids) <= set(found)
    (first,) = set(found) - set(ids)
    assert found[first] == b"from the one that forks"
    pids = {decode_message_id(message_id).pid for message_id in found}
    assert len(pids) == 3
    assert goodbyes(cluster) == 3
