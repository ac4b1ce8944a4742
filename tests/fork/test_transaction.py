"""A child that leaves the block of its parent's transaction decides nothing."""

from __future__ import annotations

import os

import pytest

from rocketwire import Message, Producer, Reader, TransactionError, TransactionState
from rocketwire.embedded import EmbeddedCluster


def test_a_child_does_not_end_its_parents_transaction():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        with Producer(cluster.name_server, group="g") as producer:
            with producer.transaction(Message("t", "x")) as tx:
                child = os.fork()
                if child == 0:
                    with pytest.raises(TransactionError, match="parent process"):
                        tx.commit()
                    tx.__exit__(SystemExit, SystemExit(), None)
                    os._exit(0 if tx.state is TransactionState.OPEN else 1)
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == 0
            assert tx.state is TransactionState.COMMITTED
        with Reader(cluster.name_server) as reader:
            assert [m.text for m in reader.read("t")] == ["x"]
