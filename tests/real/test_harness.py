"""The harness does what the other real tests rely on."""

import struct
from pathlib import Path

import pytest
from tests.interop.driver import DriverError, JavaDriver, body_of, message
from tests.real import jars
from tests.real.apache import ApacheCluster, JavaProcess, ServerFailedError, free_port
from tests.real.frames import BINARY, JSON, decode, encode
from tests.real.running import unique

LISTENING = "0A"


def listeners(pid: int) -> list[str]:
    """The hexadecimal addresses on which a process listens, from the system's own tables."""
    sockets = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(handle.readlink()))
        except FileNotFoundError:
            continue
    found = []
    for table in (Path(f"/proc/{pid}/net/tcp"), Path(f"/proc/{pid}/net/tcp6")):
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                found.append(fields[1])
    return found


def on_loopback(address: str) -> bool:
    # The table shows the four bytes as one number in the order of this machine.
    host = struct.pack("=I", int(address.partition(":")[0], 16))
    return host[0] == 127


def test_every_listener_is_on_loopback(cluster: ApacheCluster):
    for process in (cluster.server, *cluster.brokers):
        addresses = listeners(process.pid)
        expected = 1 if process is cluster.server else 3
        assert len(addresses) == expected, f"{process.name} listens on {addresses}"
        assert all(on_loopback(address) for address in addresses), addresses


def test_a_created_topic_is_in_the_route_of_every_broker(cluster: ApacheCluster, topic: str):
    assert cluster.route(topic) == {"broker-a": (4, 6), "broker-b": (4, 6)}
    assert cluster.route(unique("unknown")) == {}
    assert set(cluster.max_offsets(topic).values()) == {0}


def test_brokers_answer_json_and_binary_headers(cluster: ApacheCluster, topic: str):
    with cluster.connect(cluster.brokers[0].listen) as connection:
        for header_type in (JSON, BINARY):
            answer = connection.call(30, {"topic": topic, "queueId": 0}, header_type=header_type)
            assert (answer.code, answer.ext["offset"]) == (0, "0")


def test_java_sends_and_reads_back(cluster: ApacheCluster, java: JavaDriver, topic: str):
    producer, consumer = unique("producer"), unique("consumer")
    java.call("producer.start", producer=producer, group=producer, name_server=cluster.name_server)
    sent = java.call(
        "producer.send",
        producer=producer,
        message=message(topic, "grüße", tags="TagA", keys="k1", properties={"größe": "二"}),
    )
    assert sent["status"] == "SEND_OK"
    java.call("pull.start", consumer=consumer, group=consumer, name_server=cluster.name_server)
    queue = {"topic": topic, "broker": sent["broker"], "queue": sent["queue"]}
    # The broker makes a message visible to readers a moment after it has acknowledged it.
    pulled = java.call("pull.pull", consumer=consumer, queue=queue, offset=0, block=True)
    assert pulled["status"] == "FOUND"
    (found,) = pulled["messages"]
    assert body_of(found).decode() == "grüße"
    assert (found["tags"], found["keys"]) == ("TagA", "k1")
    assert found["properties"]["größe"] == "二"
    assert found["msg_id"] == sent["msg_id"]
    viewed = java.call(
        "admin.view", name_server=cluster.name_server, topic=topic, id=sent["offset_msg_id"]
    )
    assert body_of(viewed).decode() == "grüße"
    java.call("consumer.stop", consumer=consumer)
    java.call("producer.stop", producer=producer)


def test_java_refusals_carry_their_code(cluster: ApacheCluster, java: JavaDriver, topic: str):
    producer = unique("producer")
    java.call("producer.start", producer=producer, group=producer, name_server=cluster.name_server)
    with pytest.raises(DriverError) as caught:
        java.call("producer.send", producer=producer, message=message("bad topic", "x"))
    assert caught.value.kind == "MQClientException"
    java.call("producer.stop", producer=producer)
    with pytest.raises(DriverError, match="no command"):
        java.call("nonsense")


def test_mqadmin_shows_the_cluster(cluster: ApacheCluster, java: JavaDriver):
    printed = java.mqadmin(cluster.name_server, "clusterList")
    for broker in cluster.brokers:
        assert broker.name in printed
        assert broker.address in printed
    assert f"V{cluster.version.replace('.', '_')}" in printed


def test_a_broker_can_be_frozen_killed_and_restarted(version: str):
    with ApacheCluster(version, brokers=1) as cluster:
        (broker,) = cluster.brokers
        topic = unique("topic")
        cluster.create_topic(topic)
        broker.pause()
        with cluster.connect(broker.listen, timeout=0.5) as connection, pytest.raises(TimeoutError):
            connection.call(30, {"topic": topic, "queueId": 0})
        broker.resume()
        assert cluster.ask(broker.listen, 30, {"topic": topic, "queueId": 0}).code == 0
        broker.kill()
        cluster.wait_unregistered(broker)
        assert cluster.route(topic) == {}
        cluster.restart(broker)
        assert cluster.route(topic) == {broker.name: (4, 6)}
        added = cluster.add_broker()
        assert added.address in cluster.ask(cluster.name_server, 106).body.decode()
    assert not cluster.folder.exists()


def test_a_server_that_cannot_start_is_reported_with_its_output(tmp_path: Path):
    process = JavaProcess("broken", ["sh", "-c", "echo no such luck; exit 3"], tmp_path)
    with pytest.raises(ServerFailedError, match="was not started"):
        _ = process.pid
    process.start()
    assert process.wait() == 3
    assert not process.alive
    process.kill()
    assert "no such luck" in process.tail()


def test_free_ports_keep_their_distance():
    port = free_port("127.0.0.1", "127.0.0.2", also=(-2,))
    assert 12_000 <= port < 32_000


def test_an_unknown_release_is_named():
    with pytest.raises(ValueError, match=r"'9\.9\.9'.*4\.9\.7, 5\.3\.3, 5\.5\.0"):
        jars.class_path("9.9.9")


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_frames_survive_their_own_decoder(header_type: int):
    frame = encode(105, {"topic": "T", "flag": True}, b"body", opaque=7, header_type=header_type)
    answer = decode(frame)
    assert (answer.code, answer.opaque, answer.body) == (105, 7, b"body")
    assert answer.ext == {"topic": "T", "flag": "true"}
    with pytest.raises(ValueError, match="announced"):
        decode(frame + b"x")
