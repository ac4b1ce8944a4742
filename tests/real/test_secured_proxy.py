"""Through a proxy of RocketMQ 5 that insists on keys, rights and TLS, as those of clouds do.

``ROCKETWIRE_REPLICAS=1`` selects these; ``make test-full`` does.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import eventually
from tests.conformance.shells import SHELLS
from tests.real import jars, running, settings
from tests.real.apache import ApacheCluster
from tests.real.grpc_proxy import GrpcProxy, grpc_proxy
from tests.real.running import unique
from tests.real.settings import ADMIN, TlsFiles

from rocketwire import (
    Admin,
    Consumer,
    Credentials,
    Message,
    PermissionDeniedError,
    RocketMQError,
    SendFailedError,
    Tls,
    UnsupportedRequestError,
)

ADMIN_KEYS = Credentials(ADMIN.access_key, ADMIN.secret_key)


@pytest.fixture(params=["5.3.3-blocking", "5.3.3-asyncio", "5.5.0-asyncio"])
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    version, _, kind = str(request.param).partition("-")
    jars.require_tools(version, jars.PROXY_POM)
    return version, kind


@pytest.fixture
def version(way: tuple[str, str]) -> str:
    return way[0]


@pytest.fixture
def proxy(guarded: ApacheCluster, version: str, tls_files: TlsFiles) -> GrpcProxy:
    values, jvm = settings.proxy_security(tls_files, ADMIN)
    return running.shared(
        f"secured-proxy-{version}",
        lambda: grpc_proxy(guarded, "secured-proxy", overrides=values, jvm=jvm),
    )


@pytest.fixture
def tls(tls_files: TlsFiles) -> Tls:
    return Tls(ca_file=str(tls_files.ca))


@pytest.fixture
def open_shell(proxy: GrpcProxy, way: tuple[str, str]) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def open_one(**options: Any) -> Any:
        shell = SHELLS[way[1]](proxy.remoting, **({"group": unique("ours")} | options))
        opened.append(shell.__enter__())
        return shell

    yield open_one
    for shell in reversed(opened):
        shell.__exit__()


@pytest.fixture
def admin(guarded: ApacheCluster) -> Iterator[Admin]:
    """One that asks the brokers themselves."""
    with Admin(guarded.name_server, credentials=ADMIN_KEYS) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = unique("topic")
    admin.create_topic(name, 2, message_type="MIXED")
    return name


def chain(error: BaseException | None) -> list[BaseException]:
    """An error and what caused it."""
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


def test_with_keys_and_tls_all_that_a_proxy_serves_works(
    open_shell: Any, proxy: GrpcProxy, topic: str, tls: Tls
):
    keys = {"credentials": ADMIN_KEYS, "tls": tls}
    shell = open_shell(**keys, checker=lambda message: True)
    shell.send(Message(topic, "one", keys="k", properties={"ä": "ö"}))
    shell.send([Message(topic, "two"), Message(topic, "three")])
    shell.submit(Message(topic, "x" * 1_000_000))()
    shell.send(Message(topic, "ordered", sharding_key="key"))
    shell.send_many([Message(topic, f"many {n}") for n in range(10)])
    shell.transact(Message(topic, "decided"))
    eventually(lambda: len(shell.read(topic)) == 16, 60)
    got: list[str] = []
    with Consumer(proxy.remoting, group=unique("group"), start="earliest", **keys) as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            got.append(message.text)
            if len(set(got)) == 16:
                break
    assert {"one", "two", "three", "ordered", "decided"} < set(got)


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
    open_shell: Any, topic: str, tls: Tls, credentials: Credentials | None
):
    shell = open_shell(credentials=credentials, tls=tls)
    with pytest.raises(SendFailedError, match="credentials") as caught:
        shell.send(Message(topic, b"x"))
    assert any(isinstance(each, PermissionDeniedError) for each in chain(caught.value))
    with pytest.raises(RocketMQError, match="credentials") as read:
        shell.read(topic)
    assert any(isinstance(each, PermissionDeniedError) for each in chain(read.value))


def test_the_missing_right_is_named_and_enough_when_given(
    open_shell: Any, proxy: GrpcProxy, admin: Admin, topic: str, tls: Tls
):
    user = unique("user")
    admin.create_user(user, "user-secret-1")
    shell = open_shell(credentials=Credentials(user, "user-secret-1"), tls=tls)
    with pytest.raises(SendFailedError, match=f"it takes .* on Topic:{topic}") as caught:
        shell.send(Message(topic, b"x"))
    assert any(isinstance(each, PermissionDeniedError) for each in chain(caught.value))
    admin.set_policy(user, f"Topic:{topic}", ["Get"])
    eventually(lambda: f"it takes Pub on Topic:{topic}" in failure_of(shell, topic))
    admin.set_policy(user, f"Topic:{topic}", ["Pub"])
    eventually(lambda: not failure_of(shell, topic))
    with pytest.raises(PermissionDeniedError, match=f"on Topic:{topic}"):
        shell.read(topic)


def failure_of(shell: Any, topic: str) -> str:
    """Why a send fails; empty when it does not."""
    try:
        shell.send(Message(topic, b"x"))
    except SendFailedError as error:
        return str(error)
    return ""


def test_tls_is_insisted_on_and_checked(open_shell: Any, topic: str, tls_files: TlsFiles):
    strange = Tls(ca_file=str(tls_files.strange_ca))
    with pytest.raises(RocketMQError, match=r"(?i)certificate|verify|authority"):
        open_shell(credentials=ADMIN_KEYS, tls=strange).send(Message(topic, b"x"))
    named = Tls(ca_file=str(tls_files.ca), server_name="other.rocketwire.test")
    with pytest.raises(RocketMQError, match=r"(?i)certificate|host ?name"):
        open_shell(credentials=ADMIN_KEYS, tls=named).send(Message(topic, b"x"))
    with pytest.raises(RocketMQError, match=r"(?i)tls|closed"):
        open_shell(credentials=ADMIN_KEYS, send_timeout=5.0).send(Message(topic, b"x"))


def test_what_it_does_not_serve_is_told_in_words_with_keys_too(
    open_shell: Any, proxy: GrpcProxy, topic: str, tls: Tls
):
    keys = {"credentials": ADMIN_KEYS, "tls": tls}
    shell = open_shell(**keys)
    with pytest.raises(UnsupportedRequestError, match="passes no replies on"):
        shell.request(Message(topic, b"question"), timeout=10)
    with Admin(proxy.remoting, **keys) as behind:
        for ask in (behind.topics, behind.brokers, lambda: behind.topic(topic), behind.users):
            with pytest.raises(UnsupportedRequestError, match="proxy"):
                ask()


def test_dead_letters_are_read_and_purged_with_keys(
    proxy: GrpcProxy, topic: str, tls: Tls, open_shell: Any
):
    keys = {"credentials": ADMIN_KEYS, "tls": tls}
    open_shell(**keys).send(Message(topic, "42"))
    group = unique("group")

    def fail(message: Any) -> None:
        raise LookupError("no customer 42")

    with Consumer(
        proxy.remoting, group=group, start="earliest", max_attempts=1, **keys
    ) as consumer:
        consumer.subscribe(topic).join()
        thread = threading.Thread(target=consumer.run, args=(fail,))
        thread.start()
        eventually(lambda: consumer.stats().dead_lettered == 1, 60)
        consumer.stop()
        thread.join(60)
    with Admin(proxy.remoting, **keys) as behind:
        eventually(lambda: bool(letters(behind, group)), 60)
        (letter,) = letters(behind, group)
        assert (letter.message.text, letter.original_topic) == ("42", topic)
        assert "no customer 42" in letter.last_error
        behind.purge_dead_letters(group)
        assert letters(behind, group) == []


def letters(admin: Admin, group: str) -> list[Any]:
    """The dead letters; a proxy can't tell of a group that has none, and is late with a new topic."""
    try:
        return list(admin.dead_letters(group))
    except UnsupportedRequestError:
        return []
