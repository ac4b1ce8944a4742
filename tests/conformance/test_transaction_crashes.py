"""Transactions whose producers, connections and answers are lost, at every step."""

from __future__ import annotations

import subprocess
import sys
import threading
from random import Random
from typing import Any

import pytest
from tests.conformance.members import unique_group
from tests.conformance.shells import SHELLS, read_all

from rocketwire import Message, Producer, RocketMQError
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode

END = RequestCode.END_TRANSACTION
CRASHING = """
import os, sys
from rocketwire import Message, Producer
with Producer(sys.argv[1], group=sys.argv[2]) as producer:
    for number in range(4):
        with producer.transaction(Message(sys.argv[3], str(number), keys=str(number))) as tx:
            if number == 3:
                print(tx.transaction_id, flush=True)
                os._exit(9)
            tx.leave_open()
"""


def test_another_process_answers_for_one_that_crashed():
    """The first process dies between half and commit; a second one, which never sent, decides."""
    asked = []

    def checker(message: Any) -> bool:
        asked.append(message.transaction_id)
        return int(message.keys) % 2 == 1

    with EmbeddedCluster(brokers=2, transaction_check_interval=60.0) as cluster:
        cluster.create_topic("t", 2)
        command = [sys.executable, "-c", CRASHING, cluster.name_server, "g", "t"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 9, ended.stderr
        with SHELLS["blocking"](cluster.name_server, group="g", checker=checker) as shell:
            assert shell.read("t") == []
            while not all(b.connections for b in cluster.brokers):
                pass
            for _ in range(100):  # the clock is put forward until all brokers know the second one
                cluster.clock.advance("61s")
                if len(set(asked)) == 4:
                    break
                threading.Event().wait(0.1)
            assert [m.text for m in sorted(read_all(shell, "t", 2), key=lambda m: m.text)] == [
                "1",
                "3",
            ]
    assert ended.stdout.strip() in asked


class Shop:
    """The business: a table that survives crashes, and a checker that looks into it."""

    def __init__(self) -> None:
        self.paid: set[str] = set()
        self.failed: set[str] = set()

    def check(self, message: Any) -> bool | None:
        if message.keys in self.paid:
            return True
        return False if message.keys in self.failed else None


class CrashError(Exception):
    """The program ends here; nothing after it is done."""


def work(shop: Shop, shell: Any, cluster: EmbeddedCluster, topic: str, key: str, step: str) -> None:
    """One transaction that goes wrong at a step."""

    def pay() -> None:
        shop.paid.add(key)

    def fail() -> None:
        shop.failed.add(key)

    faults = {
        "answer lost": lambda: [b.drop_connections(code=END, next=1, after_handling=True) for b in cluster.brokers],
        "request lost": lambda: [b.drop_connections(code=END, next=1) for b in cluster.brokers],
        "busy": lambda: [b.busy(code=END, next=1) for b in cluster.brokers],
    }  # fmt: skip
    steps: dict[str, tuple[Any, ...]] = {
        "well": (pay,),
        "raises": (fail, ValueError("out of stock")),
        "crash before the change": (fail, "leave_open", CrashError()),
        "crash after the change": (pay, "leave_open", CrashError()),
    } | {name: (pay, fault) for name, fault in faults.items()}
    try:
        shell.transact(Message(topic, key, keys=key), *steps[step])
    except (CrashError, ValueError, RocketMQError):
        pass
    finally:
        for broker in cluster.brokers:
            for fault in broker.faults:
                broker.end_fault(fault)


STEPS = (
    "well", "raises", "crash before the change", "crash after the change", "answer lost",
    "request lost", "busy",
)  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
def test_a_thousand_transactions_with_crashes_at_every_step(name):
    shop, topic, random = Shop(), unique_group(), Random(7)
    with EmbeddedCluster(
        brokers=2, transaction_check_interval=0.2, transaction_timeout=0.2
    ) as cluster:
        cluster.create_topic(topic, 4)
        with SHELLS[name](cluster.name_server, group="shop", checker=shop.check) as shell:
            # Every step at least twenty times, and nine of ten transactions end well.
            plan = [*STEPS * 20, *["well"] * 860]
            random.shuffle(plan)
            for number, step in enumerate(plan):
                work(shop, shell, cluster, topic, f"order-{number}", step)
            found = read_all(shell, topic, len(shop.paid))
            keys = [message.keys for message in found]
    assert set(keys) == shop.paid
    assert len(keys) == len(shop.paid)
    assert len(shop.failed) == 40
    assert len(shop.paid) == 960


def test_a_member_that_is_killed_leaves_its_transactions_to_the_others():
    topic, shop = unique_group(), Shop()
    with EmbeddedCluster(transaction_check_interval=0.1, transaction_timeout=0.1) as cluster:
        cluster.create_topic(topic, 1)
        with (
            Producer(cluster.name_server, group="g", checker=lambda m: None) as first,
            first.transaction(Message(topic, "x", keys="k")) as tx,
        ):
            tx.leave_open()
        shop.paid.add("k")
        with SHELLS["asyncio"](cluster.name_server, group="g", checker=shop.check) as shell:
            assert [m.text for m in read_all(shell, topic, 1)] == ["x"]
