"""The doctor, before clusters that are well and ill in every way that can be made here."""

import http.server
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest
from tests.wire_tools import reply_from

from rocketwire.cli.admin import Inspector
from rocketwire.cli.doctor.brokers import _reason, check_addresses, version_name
from rocketwire.cli.doctor.findings import Report, Verdict
from rocketwire.cli.doctor.proxies import check_ways
from rocketwire.cli.doctor.reach import Peer, kind_of_host, look_at
from rocketwire.cli.doctor.servers import (
    is_about_identity,
    is_refused_for_credentials,
    report_credentials,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.command import RESPONSE, Command
from rocketwire.wire.route import BrokerData, ClusterInfo


@pytest.fixture
def own_cluster():
    with EmbeddedCluster(2) as running:
        yield running


def findings(done, verdict):
    return [f for f in done.json["findings"] if f["verdict"] == verdict]


def test_a_healthy_cluster_gets_a_clean_bill_and_the_code_to_go_on(rocketwire, cluster):
    done = rocketwire("doctor", cluster=cluster)
    assert done.code == 0
    assert "All is well" in done.out
    assert f'Producer("{cluster.name_server}")' in done.out
    for part in ("name server", "broker-a (master)", "probe of broker-b", "clock of broker-a"):
        assert f"ok   {part}" in done.out


def test_in_json_every_finding_has_its_parts(rocketwire, cluster):
    done = rocketwire("doctor", "--json", cluster=cluster)
    assert done.json["well"]
    assert {"check", "verdict", "saw", "means", "remedy"} == set(done.json["findings"][0])


def test_a_topic_that_sending_would_make_is_a_remark(rocketwire, cluster):
    done = rocketwire("doctor", "not-there", "--json", cluster=cluster)
    assert done.code == 0
    (remark,) = findings(done, "remark")
    assert "rocketwire topic create not-there" in remark["remedy"][0]


def test_a_topic_that_nobody_will_make_is_ill(rocketwire):
    with EmbeddedCluster(1, auto_create_topics=False) as strict:
        done = rocketwire("doctor", "not-there", "--json", cluster=strict)
    assert done.code == 1
    (ill,) = findings(done, "ill")
    assert ill["remedy"] == ["rocketwire topic create not-there"]


def test_a_topic_without_write_permission_names_the_broker_and_the_remedy(rocketwire, own_cluster):
    own_cluster.create_topic("orders", permission=4)
    done = rocketwire("doctor", "orders", "--json", cluster=own_cluster)
    assert done.code == 1
    (ill,) = findings(done, "ill")
    assert ill["check"] == "topic orders"
    assert "no queue takes messages" in ill["means"]
    remedy = ill["remedy"][0].partition(",")[0]
    assert remedy == "rocketwire topic alter orders --can-write"
    assert rocketwire(*remedy.split()[1:], cluster=own_cluster).code == 0
    assert rocketwire("doctor", "orders", "--probe", cluster=own_cluster).code == 0


def test_one_read_only_broker_is_a_remark(rocketwire, own_cluster):
    own_cluster.create_topic("orders")
    own_cluster.broker("broker-a").read_only()
    done = rocketwire("doctor", "orders", "--probe", "--json", cluster=own_cluster)
    assert done.code == 0
    assert any("topic orders on broker-a" in f["check"] for f in findings(done, "remark"))


def test_a_probe_of_the_topic_itself_is_sent_only_when_asked_for(rocketwire, own_cluster):
    own_cluster.create_topic("orders")
    rocketwire("doctor", "orders", cluster=own_cluster)
    assert own_cluster.messages("orders") == []
    rocketwire("doctor", "orders", "--probe", cluster=own_cluster)
    assert {m.tags for m in own_cluster.messages("orders")} == {"rocketwire-doctor"}


def test_without_probes_nothing_is_sent(rocketwire, own_cluster):
    done = rocketwire("doctor", "--no-probe", cluster=own_cluster)
    assert done.code == 0
    assert own_cluster.journal.sends() == []


def test_a_broker_that_is_down_is_named(rocketwire, own_cluster):
    own_cluster.broker("broker-b").refuse()
    done = rocketwire("doctor", "--json", cluster=own_cluster)
    assert done.code == 1
    (ill,) = findings(done, "ill")
    assert ill["check"] == "broker-b (master)"
    assert "refused the connection" in ill["saw"]


def test_a_wrong_clock_is_told_with_its_size(rocketwire, own_cluster):
    own_cluster.broker("broker-a").clock(90.0)
    own_cluster.broker("broker-b").clock(-45.0)
    done = rocketwire("doctor", "--json", cluster=own_cluster)
    saw = {f["check"]: f["saw"] for f in findings(done, "remark")}
    assert saw["clock of broker-a"] == "it is 90.0 s ahead of ours"
    assert saw["clock of broker-b"] == "it is 45.0 s behind ours"


def test_a_broker_that_takes_nothing_is_ill(rocketwire, own_cluster):
    own_cluster.broker("broker-a").disk_full()
    done = rocketwire("doctor", "--json", cluster=own_cluster)
    assert done.code == 1
    assert [f["check"] for f in findings(done, "ill")] == ["probe of broker-a"]


def test_a_container_address_gets_an_address_map_that_works(rocketwire, own_cluster, monkeypatch):
    # A broker that advertises an address which leads nowhere, as one in a container does.
    for broker in own_cluster._brokers.values():
        monkeypatch.setattr(
            type(broker), "address", property(lambda self: f"127.250.0.9:{self.port}")
        )
        own_cluster._check_running().run(broker.register_now)
    done = rocketwire("doctor", "--json", cluster=own_cluster)
    assert done.code == 1
    (suggestion,) = [f for f in findings(done, "remark") if f["check"] == "address_map"]
    here = next(line for line in suggestion["remedy"] if line.startswith("here: -o "))
    option = here.removeprefix("here: -o ").strip("'")
    mended = rocketwire("doctor", "-o", option, cluster=own_cluster)
    assert mended.code == 0, mended.out
    assert "by address_map 127.0.0.1:" in mended.out


@pytest.mark.parametrize(
    ("advertised", "server", "said"),
    [
        ("127.0.0.1:10911", "10.1.2.3:9876", "only its own machine can use"),
        ("172.17.0.2:10911", "127.0.0.1:9876", "probably a container's address"),
        ("172.17.0.2:10911", "172.17.0.1:9876", "is down, or a firewall"),
        ("broker-0.invalid:10911", "127.0.0.1:9876", "only its own network resolves"),
        ("localhost:1", "127.0.0.1:9876", "is down, or a firewall"),
        ("8.8.8.8:10911", "127.0.0.1:9876", "is down, or a firewall"),
        ("[::1]:10911", "10.1.2.3:9876", "only its own machine can use"),
    ],
)
def test_why_an_advertised_address_does_not_work_from_here(advertised, server, said):
    assert said in _reason(advertised, server)


def test_a_replica_that_can_not_be_reached_is_told_apart_from_its_master(rocketwire, own_cluster):
    master = own_cluster.broker("broker-a").address
    info = ClusterInfo(
        {"broker-a": BrokerData("c", "broker-a", {0: master, 1: "127.0.0.1:1"})},
        {"c": ("broker-a",)},
    )
    report = Report()
    with Inspector(own_cluster.name_server, background=False) as admin:
        known = check_addresses(report, admin, info, own_cluster.name_server)
    assert [(each.name, each.address) for each in known] == [("broker-a", master)]
    told = {finding.check: finding.verdict for finding in report.findings}
    assert told == {"broker-a (master)": Verdict.WELL, "broker-a (replica 1)": Verdict.ILL}


def test_no_other_broker_is_taken_for_the_one_that_can_not_be_reached(rocketwire, own_cluster):
    """At the same port of the name server's host there is one, but it has another name."""
    port = own_cluster.broker("broker-b").address.rpartition(":")[2]
    info = ClusterInfo(
        {"broker-a": BrokerData("c", "broker-a", {0: f"127.250.0.9:{port}"})}, {"c": ("broker-a",)}
    )
    report = Report()
    with Inspector(own_cluster.name_server, background=False) as admin:
        assert check_addresses(report, admin, info, own_cluster.name_server) == []
    (ill,) = report.findings
    assert ill.verdict is Verdict.ILL
    assert not any("answers at" in line for line in ill.remedy)


def test_a_way_through_a_proxy_that_leads_nowhere_gets_a_map(rocketwire, own_cluster):
    own_cluster.create_topic("orders", 1)
    server = own_cluster.name_server
    nowhere = {own_cluster.broker(name).address: "127.0.0.1:1" for name in ("broker-a", "broker-b")}
    report = Report()
    with Inspector(server, background=False, address_map=nowhere) as admin:
        assert check_ways(report, admin, ["orders", "not-there"], server) == []
    assert [finding.verdict for finding in report.findings] == [Verdict.ILL] * 2
    for finding in report.findings:
        assert any("-o 'address_map={" in line and server in line for line in finding.remedy)
        assert any("remotingAccessAddr" in line for line in finding.remedy)
    report = Report()
    with Inspector(server, background=False) as admin:
        found = check_ways(report, admin, ["not-there", "orders"], server)
        assert sorted(each.name for each in found) == ["broker-a", "broker-b"]
        assert check_ways(report, admin, ["not-there"], server) == []
    assert report.findings[-1].verdict is Verdict.SKIPPED


def test_a_broker_given_as_name_server_is_recognised(rocketwire, cluster):
    done = rocketwire("doctor", "-n", cluster.broker("broker-a").address, "--json")
    assert done.code == 1
    (ill,) = findings(done, "ill")
    assert ill["saw"] == "it is a broker, not a name server"


def test_no_brokers_at_all(rocketwire):
    with EmbeddedCluster(0) as empty:
        done = rocketwire("doctor", "--json", cluster=empty)
    assert done.code == 1
    assert "knows no broker" in findings(done, "ill")[0]["saw"]


class Listener:
    """Listens, and does one thing with whoever comes."""

    def __init__(self, act):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.act = act
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.getsockname()[1]}"

    def _serve(self):
        while True:
            connection, _ = self.server.accept()
            if self.act is None:
                connection.close()
                return
            with connection:
                self.act(connection)

    def close(self):
        self.act = None
        socket.create_connection(self.server.getsockname()).close()
        self.thread.join(10)
        self.server.close()


@pytest.fixture
def listen():
    listeners = []

    def start(act):
        listeners.append(Listener(act))
        return listeners[-1].address

    yield start
    for listener in listeners:
        listener.close()


def answer(data):
    def act(connection):
        connection.recv(1024)
        connection.sendall(data)

    return act


@pytest.mark.parametrize(
    ("data", "peer"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Peer.HTTP),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"x" * 18, Peer.GRPC),
        (b"\x15\x03\x03\x00\x02\x02\x28", Peer.TLS),
        (b"220 mail.example.com ESMTP\r\n", Peer.OTHER),
        (b"", Peer.CLOSES),
    ],
)
def test_whoever_listens_is_told_apart(listen, data, peer):
    assert look_at(listen(answer(data))).peer is peer


def test_a_web_server_that_waits_for_a_whole_request_is_recognised(rocketwire):
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        done = rocketwire("doctor", "-n", f"127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join(10)
    assert done.code == 1
    assert "it is a web server" in done.out
    assert "9876" in done.out


def test_nobody_and_nowhere():
    assert look_at("127.0.0.1:1").peer is Peer.REFUSED
    assert look_at("nowhere.invalid:9876").peer is Peer.UNKNOWN_HOST


@pytest.fixture
def server_context():
    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return authority, context


def test_a_server_that_wants_tls_is_told_and_works_with_the_remedy(
    rocketwire, server_context, tmp_path
):
    authority, context = server_context
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with EmbeddedCluster(1, tls=context) as secure:
        plain = rocketwire("doctor", cluster=secure)
        assert plain.code == 1
        assert "it wants TLS" in plain.out
        assert "-o tls=true" in plain.out
        untrusted = rocketwire("doctor", "-o", "tls=true", cluster=secure)
        assert untrusted.code == 1
        assert "tls_ca_file" in untrusted.out
    assert "Traceback" not in plain.err + untrusted.err


def test_tls_where_the_server_has_none_is_told(rocketwire, cluster):
    done = rocketwire("doctor", "-o", "tls=true", cluster=cluster)
    assert done.code == 1
    assert "leave out tls=true" in done.out


@pytest.mark.parametrize(
    ("code", "remark", "is_refusal"),
    [
        (16, "the topic has no permission", True),
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured", True),
        (1, "[10015:signature-failed] unable to calculate a request signature", True),
        (1, "org.apache.rocketmq.acl.common.AclException: No acl config for somebody", True),
        (1, "java.lang.NullPointerException", False),
        (0, "authentication is fun", False),
    ],
)
def test_refusals_for_credentials_are_known_by_code_and_by_words(code, remark, is_refusal):
    reply = reply_from(Command(code, remark=remark, flag=RESPONSE))
    assert is_refused_for_credentials(reply) is is_refusal


def test_keys_are_to_be_given_where_ps_does_not_show_them():
    told = []
    report = SimpleNamespace(ill=lambda *words: told.extend(words))
    report_credentials(report, "broker-a", "signature validate failed")
    remedy = next(words for words in told if "ROCKETWIRE_SECRET_KEY" in words)
    places = [remedy.index(place) for place in ("environment", "credentials_file", "-o access_key")]
    assert places == sorted(places)
    assert "all users of this machine see it" in remedy


@pytest.mark.parametrize(
    ("remark", "is_nobody"),
    [
        ("AclException: No acl config for somebody", True),
        ("AclException: No accessKey is configured", True),
        ("Check signature failed", True),
        ("Topic orders no default permission to PUB", False),
    ],
)
def test_refusals_of_a_person_are_told_from_refusals_of_a_deed(remark, is_nobody):
    assert is_about_identity(remark) is is_nobody


def test_a_server_that_wants_our_certificate_is_not_said_to_have_a_bad_one(
    rocketwire, server_context, tmp_path
):
    authority, context = server_context
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with EmbeddedCluster(1, tls=context) as strict:
        done = rocketwire(
            "doctor",
            *("-o", "tls=true", "-o", f"tls_ca_file={tmp_path / 'ca.pem'}", "--json"),
            cluster=strict,
        )
    assert done.code == 1
    (ill,) = findings(done, "ill")
    assert "refused us" in ill["means"]
    assert "tls_cert_file" in ill["remedy"][0]


@pytest.mark.parametrize(
    ("number", "name"),
    [(393, "4.9.0"), (401, "4.9.4"), (409, "4.9.8"), (413, "5.0.0"), (441, "5.1.4"),
     (453, "5.2.0"), (475, "5.3.1"), (479, "5.3.3"), (612, ""), (37, "")],
)  # fmt: skip
def test_numbers_in_headers_are_releases(number, name):
    assert version_name(number) == name


@pytest.mark.parametrize(
    ("host", "kind"),
    [("127.0.0.1", "loopback"), ("172.17.0.2", "private"), ("::1", "loopback"),
     ("8.8.8.8", "public"), ("broker-0.brokers.svc", "name")],
)  # fmt: skip
def test_kinds_of_hosts(host, kind):
    assert kind_of_host(host) == kind
