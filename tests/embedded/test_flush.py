"""When a send is acknowledged, and that waiting for the disk keeps nobody else waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from wire_client import WireClient, send_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.embedded.store.disk import Disk
from rocketwire.wire.codes import RequestCode, ResponseCode


class GatedDisk(Disk):
    """Syncs only while the gate is open."""

    gate = threading.Event()
    fail = False
    syncs = 0

    def sync(self, descriptor: int) -> None:
        assert self.gate.wait(20)
        GatedDisk.syncs += 1
        if GatedDisk.fail:
            raise OSError(5, "the disk is broken on purpose")
        super().sync(descriptor)


@pytest.fixture
def gated() -> Iterator[EmbeddedCluster]:
    GatedDisk.gate.set()
    GatedDisk.fail = False
    cluster = EmbeddedCluster(flush="sync", flush_interval=30.0, make_disk=GatedDisk)
    try:
        with cluster:
            yield cluster
            GatedDisk.gate.set()
            GatedDisk.fail = False
    finally:
        GatedDisk.gate.set()


def test_a_synchronous_send_is_acknowledged_after_the_sync(gated: EmbeddedCluster) -> None:
    address = gated.broker("broker-a").address
    with WireClient(address) as client, WireClient(address) as other:
        assert client.send_message("t").code == 0
        GatedDisk.gate.clear()
        opaque = client.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"waits")
        # The broker goes on meanwhile: for readers, and for senders who do not wait.
        assert other.call(30, {"topic": "t", "queueId": 0}).code == 0
        assert other.send_message("t", properties="WAIT\x01false\x02").code == 0
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.receive()
        GatedDisk.gate.set()
        client.socket.settimeout(10)
        reply = client.receive()
        assert (reply.opaque, reply.code) == (opaque, 0)


def test_one_sync_serves_everybody_who_waits(gated: EmbeddedCluster) -> None:
    with WireClient(gated.broker("broker-a").address) as client:
        client.send_message("t")
        GatedDisk.gate.clear()
        GatedDisk.syncs = 0
        for n in range(200):
            client.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"%d" % n)
        gated.journal.wait_for(lambda entries: sum(e.code == 310 for e in entries) == 201)
        GatedDisk.gate.set()
        assert {client.receive().code for _ in range(200)} == {0}
    assert GatedDisk.syncs < 20


def test_batches_wait_for_the_sync_too(gated: EmbeddedCluster) -> None:
    batch = b"\0\0\0\x17" + b"\0" * 12 + b"\0\0\0\1" + b"x\0\0"
    with WireClient(gated.broker("broker-a").address) as client:
        client.send_message("t")
        GatedDisk.gate.clear()
        client.send(RequestCode.SEND_BATCH_MESSAGE, send_ext("t", m="true"), batch)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.receive()
        GatedDisk.gate.set()
        client.socket.settimeout(10)
        assert client.receive().code == 0


def test_a_disk_that_can_not_sync_is_a_flush_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketwire.embedded import group_commit

    monkeypatch.setattr(group_commit, "_TIMEOUT", 0.1)
    GatedDisk.gate.set()
    with EmbeddedCluster(flush="sync", flush_interval=0.05, make_disk=GatedDisk) as cluster:
        with WireClient(cluster.broker("broker-a").address) as client:
            GatedDisk.fail = True
            reply = client.send_message("t", b"stored all the same")
            assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert reply.ext["queueOffset"] == "0"
            GatedDisk.fail = False
            # A busy machine may need longer than a broken disk is waited for here.
            monkeypatch.setattr(group_commit, "_TIMEOUT", 60.0)
            assert client.send_message("t").code == 0
        assert len(cluster.messages("t")) == 2


def test_an_asynchronous_send_does_not_wait() -> None:
    GatedDisk.gate.clear()
    try:
        with EmbeddedCluster(flush_interval=0.01, make_disk=GatedDisk) as cluster:
            with WireClient(cluster.broker("broker-a").address) as client:
                for _ in range(20):
                    assert client.send_message("t").code == 0
            GatedDisk.gate.set()
    finally:
        GatedDisk.gate.set()


def test_the_timer_moves_the_checkpoint(cluster: EmbeddedCluster, broker: WireClient) -> None:
    broker.send_message("t")
    store = cluster._brokers["broker-a"].store
    waiting = threading.Event()
    for _ in range(1000):
        if store.checkpointed == store.log.end:
            break
        waiting.wait(0.01)
    assert store.checkpointed == store.log.end > 0
