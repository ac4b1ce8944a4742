"""Faults on demand, each seen from the wire."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.wire_tools import iter_records
from wire_client import WireClient, send_ext

from rocketwire.embedded import EmbeddedCluster, Fault, FaultKind
from rocketwire.embedded.remote_control import CONTROL_CODE
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.route import decode_route


def bodies(cluster: EmbeddedCluster, topic: str = "t") -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


def test_slow_requests_keep_their_order(cluster: EmbeddedCluster, broker: WireClient) -> None:
    cluster.broker("broker-a").slow(0.1)
    for n in range(5):
        broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"%d" % n)
    assert [broker.receive().code for _ in range(5)] == [0] * 5
    assert bodies(cluster) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_slow_request_does_not_line_others_up_behind_it(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    cluster.broker("broker-a").slow(60, next=1)
    broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"slow")
    quick = broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"quick")
    assert broker.receive().opaque == quick
    assert bodies(cluster) == [b"quick"]


def test_a_slow_answer_is_never_early(cluster: EmbeddedCluster, broker: WireClient) -> None:
    # It was: timers of the event loop count whole milliseconds and may end before their time.
    handle = cluster.broker("broker-a")
    for n in range(25):
        delay = 0.005 + n * 0.00013
        for fault in (handle.slow, handle.late_replies):
            fault(delay, next=1)
            started = time.monotonic()
            assert broker.send_message("t").code == 0
            # One clock for both sides, and the broker starts to count after us.
            assert time.monotonic() >= started + delay


def test_hang_answers_nothing_until_healed(cluster: EmbeddedCluster, broker: WireClient) -> None:
    handle = cluster.broker("broker-a")
    handle.hang()
    opaque = broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"held")
    broker.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        broker.receive()
    with WireClient(handle.address):
        pass
    assert bodies(cluster) == []
    handle.heal()
    broker.socket.settimeout(10)
    assert broker.receive().opaque == opaque
    assert bodies(cluster) == [b"held"]


def test_refuse_closes_and_refuses_until_healed(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    handle = cluster.broker("broker-a")
    broker.send_message("t")
    handle.refuse()
    with pytest.raises(OSError):
        broker.send_message("t")
    with pytest.raises(OSError):
        WireClient(handle.address)
    handle.heal()
    with WireClient(handle.address) as again:
        assert again.send_message("t").code == 0


def test_busy_refuses_and_stores_nothing(cluster: EmbeddedCluster, broker: WireClient) -> None:
    cluster.broker("broker-a").busy(next=2)
    codes = [broker.send_message("t", b"%d" % n).code for n in range(3)]
    assert codes == [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY, 0]
    assert bodies(cluster) == [b"2"]


def test_any_code_can_be_asked_for(cluster: EmbeddedCluster, broker: WireClient) -> None:
    cluster.broker("broker-a").reject(ResponseCode.FLOW_CONTROL, topic="t", next=1)
    assert broker.send_message("other").code == 0
    assert broker.send_message("t").code == ResponseCode.FLOW_CONTROL
    assert broker.send_message("t").code == 0


def test_drop_closes_the_connection_before_or_after_the_work(
    cluster: EmbeddedCluster,
) -> None:
    handle = cluster.broker("broker-a")
    for after, expected in ((False, []), (True, [b"x"])):
        handle.drop_connections(code=RequestCode.SEND_MESSAGE_V2, next=1, after_handling=after)
        with WireClient(handle.address) as client, pytest.raises(OSError):
            client.send_message("t", b"x")
        assert bodies(cluster) == expected


def test_drop_without_a_condition_closes_what_is_open(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    broker.send_message("t")
    cluster.broker("broker-a").drop_connections()
    with pytest.raises(OSError):
        broker.send_message("t")
    with WireClient(cluster.broker("broker-a").address) as again:
        assert again.send_message("t").code == 0


def test_half_replies_end_in_the_middle(cluster: EmbeddedCluster, broker: WireClient) -> None:
    cluster.broker("broker-a").half_replies(next=1)
    broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"stored")
    data = b""
    while part := broker.socket.recv(4096):
        data += part
    assert 0 < len(data) < int.from_bytes(data[:4], "big") + 4
    assert bodies(cluster) == [b"stored"]


def test_wrong_replies_bear_another_number_or_none(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    handle = cluster.broker("broker-a")
    handle.wrong_replies(next=1)
    opaque = broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"1")
    assert broker.receive().opaque != opaque
    handle.wrong_replies(garbage=True, next=1)
    broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"2")
    with pytest.raises(Exception, match="header"):
        broker.receive()
    assert bodies(cluster) == [b"1", b"2"]


def test_late_and_lost_replies_do_not_delay_the_work(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    handle = cluster.broker("broker-a")
    handle.late_replies(0.3, next=1)
    broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"late")
    with WireClient(handle.address) as other:
        while not list(iter_records(other.pull("t").body)):
            pass
    assert broker.receive().code == 0
    handle.lose_replies(next=1)
    broker.send(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"lost")
    assert broker.send_message("t", b"next").code == 0
    assert bodies(cluster) == [b"late", b"lost", b"next"]


def test_read_only_shows_in_routes_and_refuses_sends(
    cluster: EmbeddedCluster, broker: WireClient, name_server: WireClient
) -> None:
    cluster.create_topic("t", queues=2)
    broker.send_message("t", b"before")
    cluster.broker("broker-a").read_only()
    assert broker.send_message("t").code == ResponseCode.NO_PERMISSION
    assert [r.body for r in iter_records(broker.pull("t").body)] == [b"before"]
    assert decode_route(name_server.call(105, {"topic": "t"}).body).queues[0].permission == 4
    cluster.broker("broker-a").heal()
    assert broker.send_message("t").code == 0
    assert decode_route(name_server.call(105, {"topic": "t"}).body).queues[0].permission == 6


def test_a_full_disk_refuses_sends_and_keeps_reading(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    broker.send_message("t", b"before")
    cluster.broker("broker-a").disk_full()
    assert broker.send_message("t").code == ResponseCode.SERVICE_NOT_AVAILABLE
    batch = b"\0\0\0\x17" + b"\0" * 12 + b"\0\0\0\1" + b"x\0\0"
    reply = broker.call(RequestCode.SEND_BATCH_MESSAGE, send_ext("t", m="true"), batch)
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert [r.body for r in iter_records(broker.pull("t").body)] == [b"before"]
    cluster.broker("broker-a").heal()
    assert broker.send_message("t").code == 0


def test_keys_are_found_while_the_disk_is_full(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    span = {"topic": "t", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**62}
    broker.send_message("t", b"early", properties="KEYS\x01early\x02")
    assert broker.call(12, span | {"key": "early"}).code == 0
    cluster.broker("broker-a").disk_full()
    assert broker.call(12, span | {"key": "early"}).code == 0
    assert broker.call(12, span | {"key": "none"}).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a small file system here")
    try:
        with (
            EmbeddedCluster(folder=folder, flush_interval=0.05) as cluster,
            WireClient(cluster.broker("broker-a").address) as client,
        ):
            codes = []
            while ResponseCode.SERVICE_NOT_AVAILABLE not in codes:
                codes.append(client.send_message("t", b"x" * 20_000).code)
                assert len(codes) < 500
            stored = codes.count(0)
            assert stored > 20
            assert len(bodies(cluster)) == stored
            assert client.pull("t").code == 0
            assert list((folder / "broker-a").glob("index/*")) == []
            cluster.broker("broker-a").kill()
            cluster.broker("broker-a").restart()
            assert len(bodies(cluster)) == stored
    finally:
        # At once or as soon as the last map of a file is gone: nothing stays mounted.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_limit_is_a_full_disk_of_its_own() -> None:
    with (
        EmbeddedCluster(disk_limit=5000) as cluster,
        WireClient(cluster.broker("broker-a").address) as client,
    ):
        codes = [client.send_message("t", b"x" * 500).code for _ in range(20)]
        assert codes[0] == 0
        assert codes[-1] == ResponseCode.SERVICE_NOT_AVAILABLE
        assert len(bodies(cluster)) == codes.count(0)


def test_a_wrong_clock_stamps_wrong_times(cluster: EmbeddedCluster, broker: WireClient) -> None:
    cluster.broker("broker-a").clock(-3600)
    broker.send_message("t")
    (message,) = cluster.messages("t")
    assert abs(time.time() - 3600 - message.stored_at.timestamp()) < 60


def test_faults_add_up_and_end_one_by_one(cluster: EmbeddedCluster, broker: WireClient) -> None:
    handle = cluster.broker("broker-a")
    slow = handle.slow(0.02)
    busy = handle.busy()
    assert set(handle.faults) == {slow, busy}
    assert broker.send_message("t").code == ResponseCode.SYSTEM_BUSY
    handle.end_fault(busy)
    assert broker.send_message("t").code == 0
    handle.heal()
    assert handle.faults == ()
    assert broker.send_message("t").code == 0
    assert [sent.fault for sent in cluster.journal.sends()] == ["slow+busy", "slow", None]


def test_chance_is_the_same_with_the_same_seed() -> None:
    def run(seed: int) -> list[int]:
        with EmbeddedCluster(seed=seed) as cluster:
            cluster.broker("broker-a").busy(probability=0.5)
            with WireClient(cluster.broker("broker-a").address) as client:
                return [client.send_message("t").code for _ in range(40)]

    first = run(7)
    assert first == run(7)
    assert first != run(8)
    assert {0, ResponseCode.SYSTEM_BUSY} == set(first)


def test_one_broker_of_several_is_broken(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.broker("broker-b").busy()
        codes = []
        for handle in cluster.brokers:
            with WireClient(handle.address) as client:
                codes.append(client.send_message("t").code)
        assert codes == [0, ResponseCode.SYSTEM_BUSY, 0]


def test_a_name_server_can_be_broken_too(cluster: EmbeddedCluster) -> None:
    (handle,) = cluster.name_servers
    handle.reject(ResponseCode.SYSTEM_BUSY, code=105, next=1)
    with WireClient(cluster.name_server) as client:
        assert client.call(105, {"topic": "TBW102"}).code == ResponseCode.SYSTEM_BUSY
        assert client.call(105, {"topic": "TBW102"}).code == 0


def test_impossible_faults_are_refused(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    with pytest.raises(ConfigError, match="seconds"):
        handle.slow(-1)
    with pytest.raises(ConfigError, match="probability"):
        handle.busy(probability=0)
    with pytest.raises(ConfigError, match="next"):
        handle.busy(next=0)
    with pytest.raises(ConfigError, match="no broker 'broker-z'"):
        cluster.broker("broker-z")
    assert handle.faults == ()


# Kill and restart


def test_kill_loses_nothing_that_was_acknowledged_and_restart_keeps_the_port(
    cluster: EmbeddedCluster,
) -> None:
    handle = cluster.broker("broker-a")
    address, sent = handle.address, 0
    for _ in range(3):
        with WireClient(address) as client:
            for _ in range(20):
                assert client.send_message("t", b"%d" % sent).code == 0
                sent += 1
            handle.kill()
        assert not handle.running
        handle.restart()
        assert handle.address == address
        assert bodies(cluster) == [b"%d" % n for n in range(sent)]


def test_killing_twice_and_stopping_after_a_kill_do_nothing(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    handle.kill()
    handle.kill()
    handle.stop()
    handle.heal()
    assert not handle.running
    handle.restart()
    assert handle.running


def test_a_stopped_broker_leaves_the_routes_and_no_abort_file(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    folder = handle.folder
    assert (folder / "abort").exists()
    handle.stop()
    assert not (folder / "abort").exists()
    with WireClient(cluster.name_server) as client:
        assert client.call(105, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_can_be_added(cluster: EmbeddedCluster) -> None:
    added = cluster.add_broker()
    assert added.name == "broker-b"
    with WireClient(cluster.name_server) as client:
        route = decode_route(client.call(105, {"topic": "TBW102"}).body)
    assert {data.broker for data in route.brokers} == {"broker-a", "broker-b"}
    with pytest.raises(ConfigError, match="already"):
        cluster.add_broker("broker-b")


def test_handles_may_be_used_from_many_threads(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                handle.end_fault(handle.slow(0.001))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert handle.faults == ()


def test_a_handle_of_a_stopped_cluster_says_so(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    cluster.stop()
    with pytest.raises(ClientClosedError, match="not running"):
        handle.busy()


# From another process


def control(client: WireClient, action: str, broker: str | None = None, **arguments):
    ext = {"action": action} | ({"broker": broker} if broker else {})
    return client.call(CONTROL_CODE, ext, json.dumps(arguments).encode())


def test_a_running_broker_is_broken_and_mended_over_the_wire(
    cluster: EmbeddedCluster, broker: WireClient
) -> None:
    assert control(broker, "busy").code == 0
    assert broker.send_message("t").code == ResponseCode.SYSTEM_BUSY
    assert control(broker, "hang").code == 0
    status = json.loads(control(broker, "status").body)
    assert [fault["kind"] for fault in status["faults"]] == ["busy", "hang"]
    assert control(broker, "heal").code == 0
    assert broker.send_message("t").code == 0


def test_a_refusing_or_killed_broker_is_mended_through_the_name_server(
    cluster: EmbeddedCluster, name_server: WireClient
) -> None:
    handle = cluster.broker("broker-a")
    for breaking, mending in (("refuse", "heal"), ("kill", "restart")):
        assert control(name_server, breaking, "broker-a").code == 0
        with pytest.raises(OSError):
            WireClient(handle.address)
        assert control(name_server, mending, "broker-a").code == 0
        with WireClient(handle.address) as client:
            assert client.send_message("t").code == 0


def test_nonsense_to_the_control_is_named(broker: WireClient, name_server: WireClient) -> None:
    assert control(broker, "explode").code == ResponseCode.INVALID_PARAMETER
    assert "kill" not in (control(broker, "explode").remark or "").split(", ")
    assert control(broker, "slow").code == ResponseCode.INVALID_PARAMETER
    assert control(broker, "slow", seconds=-2).code == ResponseCode.INVALID_PARAMETER
    assert control(broker, "slow", colour=1).code == ResponseCode.INVALID_PARAMETER
    assert control(broker, "kill").code == ResponseCode.INVALID_PARAMETER
    assert control(name_server, "heal", "nobody").code == ResponseCode.QUERY_NOT_FOUND
    assert control(name_server, "heal").code == ResponseCode.QUERY_NOT_FOUND


# The journal


def test_the_journal_lists_what_brokers_saw(cluster: EmbeddedCluster, broker: WireClient) -> None:
    cluster.journal.clear()
    broker.send_message("one", queue=3, group="orders")
    cluster.broker("broker-a").fault(Fault(FaultKind.BUSY, remaining=1))
    broker.send_message("two")
    broker.pull("one")
    first, second = cluster.journal.sends()
    assert (first.topic, first.queue_id, first.group) == ("one", 3, "orders")
    assert (first.response_code, first.fault, first.header) == (0, None, "binary")
    assert (second.response_code, second.fault) == (ResponseCode.SYSTEM_BUSY, "busy")
    assert first.body_size == 4
    assert not first.oneway
    assert [e.topic for e in cluster.journal.sends(topic="two")] == ["two"]
    assert [e.topic for e in cluster.journal.pulls()] == ["one"]
    assert cluster.journal.requests(code=11, broker="broker-a", topic="one")
    assert cluster.journal.requests(broker="nobody") == []


def test_the_journal_is_bounded_and_counts_what_it_dropped() -> None:
    with EmbeddedCluster(journal_limit=10) as cluster:
        with WireClient(cluster.broker("broker-a").address) as client:
            for _ in range(30):
                client.send_message("t")
        assert len(cluster.journal) == 10
        assert cluster.journal.dropped >= 20
        cluster.journal.clear()
        assert (len(cluster.journal), cluster.journal.dropped) == (0, 0)
