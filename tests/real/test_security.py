"""Signed and encrypted clusters of both generations: what works, and what the refusals say."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.shells import SHELLS
from tests.interop.driver import JavaDriver, body_of
from tests.real import settings
from tests.real.apache import ApacheCluster
from tests.real.running import unique
from tests.real.settings import ADMIN, WRITER, Account, TlsFiles

from rocketwire import (
    Consumer,
    Credentials,
    Message,
    NameServerUnavailableError,
    Outcome,
    PermissionDeniedError,
    Producer,
    Reply,
    RocketMQError,
    SendFailedError,
    SimpleConsumer,
    Tls,
    TransactionState,
)

ADMIN_KEYS = Credentials(ADMIN.access_key, ADMIN.secret_key)


@pytest.fixture(params=list(SHELLS))
def open_shell(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def open_one(name_server: str, **options: Any) -> Any:
        shell = SHELLS[request.param](name_server, **({"group": unique("ours")} | options))
        opened.append(shell.__enter__())
        return shell

    yield open_one
    for shell in reversed(opened):
        shell.__exit__()


def new_topic(cluster: ApacheCluster) -> str:
    name = unique("topic")
    cluster.create_topic(name)
    return name


def test_signed_requests_work_for_every_command(guarded: ApacheCluster, open_shell: Any):
    topic = unique("topic")
    shell = open_shell(guarded.name_server, credentials=ADMIN_KEYS, trace=True)
    shell.create_topic(topic, 4)
    single = shell.send(Message(topic, b"one", keys="k1", properties={"ä": "ö"}))
    batch = shell.send([Message(topic, b"two"), Message(topic, b"three")])
    shell.submit(Message(topic, b"four"))()
    shell.send_oneway(Message(topic, b"five"))
    assert all(result.queue for result in shell.send_many([Message(topic, b"six")] * 3))
    shell.flush()
    bodies: set[bytes] = set()
    while len(bodies) < 6:
        bodies = {found.body for found in shell.read(topic)}
    assert bodies == {b"one", b"two", b"three", b"four", b"five", b"six"}
    assert shell.ask_reader("message_by_id", single.offset_message_id).body == b"one"
    assert shell.ask_reader("max_offset", batch.queue) >= 2
    assert shell.ask_reader("min_offset", batch.queue) == 0
    assert shell.ask_reader("offset_for_time", batch.queue, 0.0) == 0


@pytest.mark.parametrize(
    "credentials",
    [
        None,
        Credentials(ADMIN.access_key, "not the secret"),
        Credentials("somebody-else", ADMIN.secret_key),
    ],
    ids=["missing", "wrong-secret", "unknown-key"],
)
def test_a_wrong_or_missing_key_is_said_to_be_that(
    guarded: ApacheCluster, open_shell: Any, credentials: Credentials | None
):
    topic = new_topic(guarded)
    shell = open_shell(guarded.name_server, credentials=credentials)
    with pytest.raises(SendFailedError) as caught:
        shell.send(Message(topic, b"x"))
    error = caught.value
    assert error.outcome is Outcome.REJECTED
    assert isinstance(error.__cause__, PermissionDeniedError)
    assert "credentials" in str(error)
    assert "route" not in str(error).lower()
    with pytest.raises(PermissionDeniedError, match="credentials"):
        shell.read(topic)


def test_conversations_are_signed(guarded: ApacheCluster, open_shell: Any, version: str):
    """Transactions, requests with their replies, and receiving: each has requests of its own."""
    topic, at = new_topic(guarded), guarded.name_server
    shell = open_shell(at, credentials=ADMIN_KEYS)
    assert shell.transact(Message(topic, b"kept")).state is TransactionState.COMMITTED
    dropped = shell.transact(Message(topic, b"dropped"), "rollback")
    assert dropped.state is TransactionState.ROLLED_BACK
    if not version.startswith("4."):
        keys = {"credentials": ADMIN_KEYS}
        receiver = SimpleConsumer(at, group=unique("group"), start="earliest", **keys)
        with receiver.subscribe(topic):
            (message,) = receiver.receive(wait=20)
            assert message.text == "kept"
            message.extend(60)
            message.ack()
    asked = new_topic(guarded)
    service = Consumer(at, group=unique("group"), start="earliest", credentials=ADMIN_KEYS)
    with service.subscribe(asked):
        service.join()
        answering = threading.Thread(target=service.run, args=(lambda m: Reply(m.body),))
        answering.start()
        try:
            assert shell.request(Message(asked, b"question"), timeout=30).text == "question"
        finally:
            service.stop()
            answering.join()


def test_a_wrong_key_is_told_in_conversations_too(
    guarded: ApacheCluster, open_shell: Any, version: str
):
    topic, wrong = new_topic(guarded), Credentials(ADMIN.access_key, "not the secret")
    shell = open_shell(guarded.name_server, credentials=wrong)
    for call in (shell.transact, shell.request):
        with pytest.raises(SendFailedError, match="credentials") as caught:
            call(Message(topic, b"x"))
        assert caught.value.outcome is Outcome.REJECTED
        assert isinstance(caught.value.__cause__, PermissionDeniedError)
    if not version.startswith("4."):
        receiver = SimpleConsumer(guarded.name_server, group=unique("group"), credentials=wrong)
        refused = pytest.raises(PermissionDeniedError, match="credentials")
        with refused, receiver.subscribe(topic) as started:
            started.receive(wait=0)


def test_credentials_may_rotate(guarded: ApacheCluster, open_shell: Any):
    topic = new_topic(guarded)
    current = [ADMIN_KEYS]
    shell = open_shell(guarded.name_server, credentials=lambda: current[0])
    shell.send(Message(topic, b"before"))
    current[0] = Credentials(ADMIN.access_key, "rotated away")
    with pytest.raises(SendFailedError):
        shell.send(Message(topic, b"refused"))
    current[0] = ADMIN_KEYS
    shell.send(Message(topic, b"after"))
    bodies: list[bytes] = []
    while len(bodies) < 2:
        bodies = sorted(found.body for found in shell.read(topic))
    assert bodies == [b"after", b"before"]


def test_a_user_without_rights_is_refused_and_with_rights_is_not(
    guarded: ApacheCluster, open_shell: Any, java: JavaDriver, version: str
):
    topic = new_topic(guarded)
    user = WRITER if version.startswith("4.") else Account(unique("user"), "user-secret-1")
    keys = Credentials(user.access_key, user.secret_key)
    if not version.startswith("4."):
        create_user(guarded, java, user)
        shell = open_shell(guarded.name_server, credentials=keys)
        with pytest.raises(SendFailedError) as caught:
            shell.send(Message(topic, b"x"))
        assert isinstance(caught.value.__cause__, PermissionDeniedError)
        assert topic in str(caught.value)
        allow(guarded, java, user, topic)
    shell = open_shell(guarded.name_server, credentials=keys)
    assert shell.send(Message(topic, b"x")).offset == 0


def create_user(cluster: ApacheCluster, java: JavaDriver, user: Account) -> None:
    words = ("-c", settings.CLUSTER, "-u", user.access_key, "-p", user.secret_key)
    run_signed(cluster, java, "createUser", *words, "-t", "Normal")


def allow(cluster: ApacheCluster, java: JavaDriver, user: Account, topic: str) -> None:
    words = ("-c", settings.CLUSTER, "-s", f"User:{user.access_key}", "-r", f"Topic:{topic}")
    run_signed(cluster, java, "createAcl", *words, "-a", "Pub,Sub", "-d", "Allow")


def run_signed(cluster: ApacheCluster, java: JavaDriver, *words: str) -> None:
    printed = java.mqadmin(
        cluster.name_server, *words, access_key=ADMIN.access_key, secret_key=ADMIN.secret_key
    )
    assert "success" in printed, printed


def client_tls(files: TlsFiles, **changes: Any) -> Tls:
    values = {
        "ca_file": str(files.ca),
        "cert_file": str(files.client_certificate),
        "key_file": str(files.client_key),
    }
    return Tls(**(values | changes))


def test_mutual_tls_works(encrypted: ApacheCluster, open_shell: Any, tls_files: TlsFiles):
    topic = new_topic(encrypted)
    shell = open_shell(encrypted.name_server, tls=client_tls(tls_files))
    shell.send(Message(topic, b"secret"))
    shell.submit(Message(topic, b"x" * 1_000_000))()
    bodies: set[int] = set()
    while len(bodies) < 2:
        bodies = {len(found.body) for found in shell.read(topic)}
    assert bodies == {6, 1_000_000}


def test_an_unknown_authority_is_refused(
    encrypted: ApacheCluster, open_shell: Any, tls_files: TlsFiles
):
    shell = open_shell(
        encrypted.name_server, tls=client_tls(tls_files, ca_file=str(tls_files.strange_ca))
    )
    with pytest.raises(RocketMQError, match=r"(?i)certificate|verify|authority"):
        shell.send(Message("any", b"x"))


def test_a_wrong_host_name_is_refused(
    encrypted: ApacheCluster, open_shell: Any, tls_files: TlsFiles
):
    shell = open_shell(
        encrypted.name_server, tls=client_tls(tls_files, server_name="other.rocketwire.test")
    )
    with pytest.raises(RocketMQError, match=r"(?i)certificate|host ?name"):
        shell.send(Message("any", b"x"))


def test_verification_is_on_unless_it_is_turned_off(
    encrypted: ApacheCluster, open_shell: Any, tls_files: TlsFiles
):
    topic = new_topic(encrypted)
    own = {"cert_file": str(tls_files.client_certificate), "key_file": str(tls_files.client_key)}
    with pytest.raises(RocketMQError, match=r"(?i)certificate|verify"):
        open_shell(encrypted.name_server, tls=Tls(**own)).send(Message(topic, b"x"))
    trusting = open_shell(encrypted.name_server, tls=Tls(verify=False, **own))
    assert trusting.send(Message(topic, b"x")).offset == 0


def test_a_client_without_a_certificate_is_refused(
    encrypted: ApacheCluster, open_shell: Any, tls_files: TlsFiles
):
    shell = open_shell(encrypted.name_server, tls=Tls(ca_file=str(tls_files.ca)), send_timeout=5.0)
    with pytest.raises(RocketMQError):
        shell.send(Message("any", b"x"))


def test_a_plain_client_is_refused_by_an_encrypted_cluster(
    encrypted: ApacheCluster, open_shell: Any
):
    with pytest.raises(RocketMQError):
        open_shell(encrypted.name_server).send(Message("any", b"x"))


def test_java_reads_what_we_wrote_under_a_namespace(
    cluster: ApacheCluster, open_shell: Any, java: JavaDriver
):
    space, name = unique("space"), unique("topic")
    cluster.create_topic(f"{space}%{name}")
    shell = open_shell(cluster.name_server, namespace=space)
    result = shell.send(Message(name, b"spaced"))
    assert result.queue.topic == name
    consumer = unique("consumer")
    java.call(
        "push.start",
        consumer=consumer,
        group=consumer,
        topic=name,
        name_server=cluster.name_server,
        options={"namespace": space, "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
    )
    (found,) = java.call("push.take", consumer=consumer, count=1, timeout_ms=60_000)
    assert body_of(found) == b"spaced"
    assert found["topic"] == name
    assert found["msg_id"] == result.message_id
    bodies: list[bytes] = []
    while not bodies:
        bodies = [found.body for found in shell.read(name)]
    assert bodies == [b"spaced"]
    java.begin("consumer.stop", consumer=consumer)


def test_a_namespace_of_the_second_kind_changes_no_name(
    cluster: ApacheCluster, open_shell: Any, topic: str
):
    shell = open_shell(cluster.name_server, namespace_v2=unique("space"))
    result = shell.send(Message(topic, b"beside"))
    assert result.queue.topic == topic
    bodies: list[bytes] = []
    while not bodies:
        bodies = [found.body for found in shell.read(topic)]
    assert bodies == [b"beside"]


def test_secrets_are_never_shown(guarded: ApacheCluster, caplog: pytest.LogCaptureFixture):
    caplog.set_level("DEBUG")
    topic = new_topic(guarded)
    secret = "a-secret-nobody-may-see"
    keys = Credentials(ADMIN.access_key, secret)
    with Producer(guarded.name_server, group=unique("ours"), credentials=keys) as producer:
        with pytest.raises(SendFailedError) as caught:
            producer.send(Message(topic, b"x"))
        shown = f"{keys!r} {producer!r} {caught.value!r} {caught.value} {caplog.text}"
    assert not re.search(secret, shown)


def test_a_closed_port_is_told_as_such(open_shell: Any):
    with pytest.raises(SendFailedError, match=r"127\.0\.0\.1:1 refused") as caught:
        open_shell("127.0.0.1:1", send_timeout=2.0).send(Message("any", b"x"))
    assert isinstance(caught.value.__cause__, NameServerUnavailableError)
    assert caught.value.outcome is Outcome.NOT_SENT
