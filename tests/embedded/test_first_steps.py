"""The shortest way through: start, send, read back, break, mend."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
import threading
import time

import pytest
from tests.wire_tools import iter_records, offset_id_of
from wire_client import WireClient, batch_item, pull_ext, send_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.embedded.options import BrokerOptions, BrokerSettings
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command, decode_command, encode_command
from rocketwire.wire.route import decode_route


def test_a_message_comes_back_as_it_was_sent(broker: WireClient) -> None:
    sent = broker.send_message("orders", b"paid", properties="TAGS\x01pay\x02KEYS\x01o-1\x02")
    assert sent.code == ResponseCode.SUCCESS
    assert sent.ext["queueOffset"] == "0"
    (record,) = iter_records(broker.pull("orders").body)
    assert record.body == b"paid"
    assert record.properties["TAGS"] == "pay"
    assert offset_id_of(record) == sent.ext["msgId"]
    assert record.properties["CLUSTER"] == "DefaultCluster"


def test_a_batch_becomes_single_messages_in_a_row(broker: WireClient) -> None:
    body = b"".join(batch_item(b"%d" % n, b"KEYS\x01k\x02") for n in range(40))
    sent = broker.call(RequestCode.SEND_BATCH_MESSAGE, send_ext("orders", m="true"), body)
    ids = sent.ext["msgId"].split(",")
    first = broker.pull("orders", count=32)
    rest = broker.pull("orders", offset=int(first.ext["nextBeginOffset"]))
    records = [*iter_records(first.body), *iter_records(rest.body)]
    assert [r.body for r in records] == [b"%d" % n for n in range(40)]
    assert [r.queue_offset for r in records] == list(range(40))
    assert [offset_id_of(r) for r in records] == ids


def test_a_new_topic_is_in_the_routes(broker: WireClient, name_server: WireClient) -> None:
    broker.send_message("fresh")
    deadline = time.monotonic() + 5
    while (reply := name_server.call(105, {"topic": "fresh"})).code and time.monotonic() < deadline:
        pass
    assert [q.write_queues for q in decode_route(reply.body).queues] == [4]


def test_a_handle_tells_what_the_broker_holds(cluster: EmbeddedCluster, broker: WireClient) -> None:
    handle = cluster.broker("broker-a")
    assert (handle.own_topics, handle.index_lag, handle.stored_bytes) == ([], 0, 0)
    broker.send_message("orders", properties="KEYS\x01k\x02")
    assert handle.own_topics == ["orders"]
    assert "TBW102" in handle.topics
    assert handle.stored_bytes > 0
    span = {"topic": "orders", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**62}
    assert broker.call(12, span | {"key": "k"}).code == 0
    assert handle.index_lag == 0


def test_a_killed_broker_keeps_what_it_acknowledged(cluster: EmbeddedCluster) -> None:
    handle = cluster.broker("broker-a")
    with WireClient(handle.address) as client:
        for n in range(50):
            assert client.send_message("orders", b"%d" % n).code == 0
    handle.kill()
    with pytest.raises(OSError):
        WireClient(handle.address)
    with WireClient(cluster.name_server) as client:
        assert client.call(105, {"topic": "orders"}).code == ResponseCode.TOPIC_NOT_EXIST
    handle.restart()
    assert [m.body for m in cluster.messages("orders")] == [b"%d" % n for n in range(50)]
    with WireClient(cluster.name_server) as client:
        assert client.call(105, {"topic": "orders"}).code == ResponseCode.SUCCESS


def test_a_waiting_pull_is_answered_by_the_next_message(cluster: EmbeddedCluster) -> None:
    address = cluster.broker("broker-a").address
    with WireClient(address) as reader, WireClient(address) as writer:
        writer.send_message("orders", b"first")
        reader.send(RequestCode.PULL_MESSAGE, pull_ext("orders", 0, 1, wait_ms=9000))
        cluster.journal.wait_for(lambda es: any(e.code == 11 for e in es))
        writer.send_message("orders", b"second")
        reply = reader.receive()
    assert [r.body for r in iter_records(reply.body)] == [b"second"]


def test_an_unknown_request_is_answered_and_not_ignored(
    broker: WireClient, name_server: WireClient
) -> None:
    assert broker.call(12345).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert name_server.call(12345).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_nothing_is_left_behind() -> None:
    threads = set(threading.enumerate())
    cluster = EmbeddedCluster(flush="sync").start()
    folder, port = cluster.folder, cluster.broker("broker-a").port
    with WireClient(cluster.broker("broker-a").address) as client:
        client.send_message("t")
    assert set(threading.enumerate()) - threads
    cluster.stop()
    assert not folder.exists()
    assert set(threading.enumerate()) <= threads
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    with pytest.raises(ClientClosedError, match="not running"):
        _ = cluster.name_server


def test_start_and_stop_may_be_repeated(tmp_path) -> None:
    cluster = EmbeddedCluster(folder=tmp_path / "store")
    for count in range(3):
        with cluster:
            cluster.start()
            with WireClient(cluster.broker("broker-a").address) as client:
                client.send_message("orders")
            assert len(cluster.messages("orders")) == count + 1
        cluster.stop()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"brokers": -1}, "brokers is -1"),
        ({"brokers": ["../up"]}, "broker name is '../up'"),
        ({"brokers": ["a", "a"]}, "names that differ"),
        ({"flush": "never"}, "flush is 'never'"),
        ({"queues": 0}, "queues is 0"),
        ({"colour": "red"}, "colour"),
        ({"ports": [1, 2, 3]}, "ports has 3 entries"),
        ({"reply_header": "xml"}, "reply_header is 'xml'"),
        ({"name_servers": 0}, "name_servers is 0"),
        ({"delay_levels": "1x"}, "delay_levels has '1x'"),
    ],
)
def test_wrong_settings_are_named(options: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        EmbeddedCluster(**options)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "localhost", "::", ""])
def test_nobody_else_can_be_let_in(host: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        EmbeddedCluster(host=host)


@pytest.mark.parametrize("host", ["127.0.0.3", "::1"])
def test_any_loopback_address_will_do(host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with EmbeddedCluster(host=host) as cluster:
        handle = cluster.broker("broker-a")
        with WireClient(handle.address) as client:
            reply = client.send_message("t", b"hello")
            place = int(reply.ext["msgId"][-16:], 16)
            (record,) = iter_records(client.call(33, {"offset": place}).body)
        assert record.store_host == handle.address
        assert record.born_host.rpartition(":")[0].strip("[]") in {host, "127.0.0.1"}
        handle.kill()
        handle.restart()
        (message,) = cluster.messages("t")
        assert message.body == b"hello"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_everything_can_be_encrypted() -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with EmbeddedCluster(tls=server) as cluster:
        with WireClient(cluster.broker("broker-a").address) as client:
            client.socket = trusting.wrap_socket(client.socket, server_hostname="127.0.0.1")
            assert client.send_message("t", b"secret").code == 0
        with WireClient(cluster.name_server) as client:
            client.socket = trusting.wrap_socket(client.socket, server_hostname="127.0.0.1")
            assert client.call(105, {"topic": "TBW102"}).code == 0
        with WireClient(cluster.name_server) as plain, pytest.raises(OSError):
            plain.call(105, {"topic": "TBW102"})


def test_a_cluster_may_be_used_from_asyncio() -> None:
    async def main() -> None:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic("t", queues=1)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", cluster.broker("broker-a").port
            )
            ext = {k: str(v) for k, v in send_ext("t").items()}
            writer.write(encode_command(Command(310, ext, b"async")))
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert decode_command(await reader.readexactly(size)).code == 0
            writer.close()
            await writer.wait_closed()
            assert [m.body for m in cluster.messages("t")] == [b"async"]

    asyncio.run(main())


def test_a_port_that_is_taken_is_named_and_nothing_is_left_running() -> None:
    threads = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for ports in (port, {"broker-a": port}):
            with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port}"):
                EmbeddedCluster(ports=ports).start()
    assert set(threading.enumerate()) <= threads


def test_ports_can_be_chosen() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        free = [cluster.name_servers[0].port, *(b.port for b in cluster.brokers)]
    with EmbeddedCluster(brokers=2, ports=free) as cluster:
        assert cluster.name_server == f"127.0.0.1:{free[0]}"
        assert [b.port for b in cluster.brokers] == free[1:]


def test_type_checkers_know_the_settings_of_brokers():
    own = {"queues", "auto_create_topics", "flush"}
    known = {spec.name: spec.type for spec in dataclasses.fields(BrokerOptions)}
    typed = {name: hint.__forward_arg__ for name, hint in BrokerSettings.__annotations__.items()}
    assert typed == {name: hint for name, hint in known.items() if name not in own}
