"""Transactions by the thousand, on Apache's brokers and embedded ones, in processes that die at every step.

Ten thousand by ``make test-full``; the number is in ``ROCKETWIRE_TRANSACTIONS``.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.real import jars, running
from tests.real.apache import ApacheCluster
from tests.real.running import unique

from rocketwire import Producer, Reader
from rocketwire.embedded import EmbeddedCluster

_log = logging.getLogger("transactions")

COUNT = int(os.environ.get("ROCKETWIRE_TRANSACTIONS", "0"))
pytestmark = [
    pytest.mark.skipif(not COUNT, reason="make test-full runs it (ROCKETWIRE_TRANSACTIONS=10000)"),
    pytest.mark.timeout(1800),
]
#: Asked no more often than brokers of 5.x note what is decided: else they deliver it twice.
CHECKS = {
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "4000",
    "transactionOpBatchInterval": "100",
}
#: One in a hundred dies: before the half message, after it, after the change, or after the commit.
SHOP = """
import asyncio, os, sys
from random import Random
from rocketwire import AsyncProducer, Message, Producer

shell, name_server, group, topic, journal, first, end = sys.argv[1:]
note = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def write(word, key):
    os.write(note, f"{word} {key}\\n".encode())

def plan(number):
    random = Random(number)
    dies = random.choice(("begun", "half", "changed", "over")) if random.random() < 0.01 else ""
    return f"order-{number}", dies, random.random() < 0.1

def step(word, key, dies):
    write(word, key)
    if dies == word:
        os._exit(9)

def change(key, dies, is_refused):
    step("half", key, dies)
    write("refused" if is_refused else "paid", key)
    step("changed", key, dies)
    if is_refused:
        raise ValueError("out of stock")

def blocking():
    with Producer(name_server, group=group) as producer:
        for number in range(int(first), int(end)):
            key, dies, is_refused = plan(number)
            step("begun", key, dies)
            try:
                with producer.transaction(Message(topic, key, keys=key)):
                    change(key, dies, is_refused)
            except ValueError:
                pass
            step("over", key, dies)

async def on_loop():
    async with AsyncProducer(name_server, group=group) as producer:
        for number in range(int(first), int(end)):
            key, dies, is_refused = plan(number)
            step("begun", key, dies)
            try:
                async with producer.transaction(Message(topic, key, keys=key)):
                    change(key, dies, is_refused)
            except ValueError:
                pass
            step("over", key, dies)

blocking() if shell == "blocking" else asyncio.run(on_loop())
"""


class Books:
    """What the processes have written down; it outlives them, and a checker looks into it."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self.asked: set[str] = set()
        self.dead = 0

    def words(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"begun": set(), "half": set(), "paid": set(), "over": set()}
        for line in self._journal.read_text().splitlines():
            word, _, key = line.partition(" ")
            found.setdefault(word, set()).add(key)
        return found

    def check(self, message: Any) -> bool | None:
        with self._lock:
            self.asked.add(str(message.keys))
            words = self.words()
        if message.keys in words["paid"]:
            return True
        # Whoever sent it may still be at it, unless a later one was begun.
        is_last = message.keys == f"order-{len(words['begun']) - 1}"
        return None if is_last and not self.dead else False


@pytest.fixture(params=["embedded", "4.9.7", "5.3.3"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster | EmbeddedCluster:
    """Brokers that ask for open transactions every two seconds."""
    where = request.param
    if where == "embedded":
        return running.shared(
            "many-transactions",
            lambda: EmbeddedCluster(
                brokers=2, transaction_check_interval=2.0, transaction_timeout=4.0
            ),
        )
    jars.require_tools(where)
    return running.shared(
        f"many-transactions-{where}", lambda: ApacheCluster(where, brokers=2, overrides=CHECKS)
    )


def run_all(name_server: str, group: str, topic: str, journal: Path, books: Books) -> None:
    done = 0
    while done < COUNT:
        shell = ("blocking", "asyncio")[books.dead % 2]
        words = [shell, name_server, group, topic, str(journal), str(done), str(COUNT)]
        ended = subprocess.run(
            [sys.executable, "-c", SHOP, *words], capture_output=True, text=True, check=False
        )
        assert ended.returncode in {0, 9}, ended.stderr
        done = len(books.words()["begun"])
        books.dead += ended.returncode == 9


def test_every_committed_transaction_is_delivered_and_no_other(
    cluster: ApacheCluster | EmbeddedCluster, tmp_path: Path
):
    topic, group, journal = unique("orders"), unique("shop"), tmp_path / "journal"
    cluster.create_topic(topic)
    journal.touch()
    books = Books(journal)
    with Producer(cluster.name_server, group=group, checker=books.check):
        run_all(cluster.name_server, group, topic, journal, books)
        paid, found = books.words()["paid"], set[str]()
        deadline = time.monotonic() + 180
        with Reader(cluster.name_server) as reader:
            while not found >= paid and time.monotonic() < deadline:
                time.sleep(1.0)
                found = {message.text for message in reader.read(topic)}
            time.sleep(10.0)  # what is rolled back late must not come, either
            again = [message.text for message in reader.read(topic)]
            found = set(again)
    twice = {key for key, count in Counter(again).items() if count > 1}
    _log.info(
        "%d dead, %d asked about, %d delivered, %d of them twice",
        books.dead, len(books.asked), len(again), len(twice),
    )  # fmt: skip
    assert found == paid
    # A broker that asks while it is told may decide twice; whose end it was told in time is sure.
    assert twice <= books.asked, twice - books.asked
    if isinstance(cluster, EmbeddedCluster):
        assert not twice
    over = books.words()["over"] - books.asked
    assert len(over) >= COUNT * 0.9
    assert len(books.words()["begun"]) == COUNT
    assert books.dead >= COUNT // 200
    assert books.asked
