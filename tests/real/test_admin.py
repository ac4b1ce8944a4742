"""Our admin and Apache's ``mqadmin`` see what the other one changed; rights of both generations."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import MEMBERS
from tests.interop.driver import JavaDriver
from tests.real import jars
from tests.real.apache import CLUSTER, ApacheCluster
from tests.real.running import unique
from tests.real.settings import ADMIN

from rocketwire import (
    Credentials,
    GroupNotFoundError,
    InvalidMessageError,
    Message,
    PermissionDeniedError,
    PlainAccount,
    Producer,
    RocketMQError,
    UnsupportedRequestError,
)

ADMIN_KEYS = Credentials(ADMIN.access_key, ADMIN.secret_key)


@pytest.fixture(params=["4.9.7", "5.3.3", "5.5.0"])
def version(request: pytest.FixtureRequest) -> str:
    """The newest, too: here releases differ."""
    jars.require_tools(request.param)
    return str(request.param)


@pytest.fixture
def open_admin(version: str) -> Iterator[Callable[..., Any]]:
    """One shell for each release: the conformance suite has both of them everywhere."""
    kind = "asyncio" if version == "5.3.3" else "blocking"
    opened: list[Any] = []

    def open_one(cluster: ApacheCluster, **options: Any) -> Any:
        opened.append(ADMINS[kind](cluster.name_server, **options))
        return opened[-1].start()

    yield open_one
    for admin in opened:
        admin.close()


def soon(look: Callable[[], Any], limit: float = 30.0) -> Any:
    end = time.monotonic() + limit
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def run(cluster: ApacheCluster, java: JavaDriver, *words: str, **account: str) -> str:
    printed = java.mqadmin(cluster.name_server, *words, **account)
    assert "Exception" not in printed, printed
    return printed


def test_mqadmin_sees_the_topic_that_we_made(
    cluster: ApacheCluster, java: JavaDriver, open_admin: Any
):
    admin, topic = open_admin(cluster), unique("topic")
    admin.create_topic(topic, 3)
    words = ("topicRoute", "-t", topic)
    # A broker tells its name server of a new topic after it has answered.
    assert soon(lambda: '"writeQueueNums":3' in java.mqadmin(cluster.name_server, *words))
    admin.alter_topic(topic, write_queues=2)
    assert soon(lambda: '"writeQueueNums":2' in java.mqadmin(cluster.name_server, *words))
    admin.delete_topic(topic)
    assert topic not in run(cluster, java, "topicList").split()


def test_we_see_the_topic_that_mqadmin_made(
    cluster: ApacheCluster, java: JavaDriver, open_admin: Any
):
    admin, topic = open_admin(cluster), unique("topic")
    run(cluster, java, "updateTopic", "-c", CLUSTER, "-t", topic, "-r", "3", "-w", "2", "-p", "4")
    assert soon(lambda: topic in {found.name for found in admin.topics()})
    (broker, *_) = admin.topic(topic).brokers
    assert (broker.read_queues, broker.write_queues) == (3, 2)
    assert (broker.can_read, broker.can_write) == (True, False)
    run(cluster, java, "deleteTopic", "-c", CLUSTER, "-t", topic)
    assert topic not in {found.name for found in admin.topics()}


def test_groups_and_settings_are_the_same_from_both_sides(
    cluster: ApacheCluster, java: JavaDriver, open_admin: Any
):
    admin, group = open_admin(cluster), unique("group")
    run(cluster, java, "updateSubGroup", "-c", CLUSTER, "-g", group)
    assert group in {found.name for found in admin.groups()}
    assert admin.group(group).members == ()
    admin.delete_group(group)
    with pytest.raises(GroupNotFoundError):
        admin.group(group)
    address = cluster.brokers[0].address
    words = ("updateBrokerConfig", "-b", address, "-k", "transactionCheckMax", "-v")
    run(cluster, java, *words, "17")
    assert admin.broker_settings("broker-a")["transactionCheckMax"] == "17"
    admin.change_broker_settings("broker-a", {"transactionCheckMax": 15})
    assert "transactionCheckMax" in run(cluster, java, "getBrokerConfig", "-b", address)
    printed = run(cluster, java, "getBrokerConfig", "-b", address).replace(" ", "")
    assert "transactionCheckMax=15" in printed


def test_mqadmin_sees_the_group_that_we_moved(
    cluster: ApacheCluster, java: JavaDriver, open_admin: Any, topic: str
):
    admin, group = open_admin(cluster), unique("group")
    with Producer(cluster.name_server) as producer:
        queue = producer.publish_queues(topic)[0]
        for _ in range(3):
            producer.send(Message(topic, b"x"), queue=queue)
    member = MEMBERS["blocking"](cluster.name_server, group, topic, start="earliest").start()
    member.seen.wait(lambda seen: len(seen.all) >= 3)
    member.stop()
    (change,) = admin.reset(group, topic, {queue: 2})
    assert (change.before, change.after) == (3, 2)
    words = ("consumerProgress", "-g", group)
    assert soon(lambda: "Diff Total: 1" in java.mqadmin(cluster.name_server, *words))


# -- rights


def test_without_rights_every_change_says_so(guarded: ApacheCluster, open_admin: Any):
    for keys in (None, Credentials(ADMIN.access_key, "not-the-secret")):
        admin = open_admin(guarded, credentials=keys)
        for ask in (
            lambda admin=admin: admin.create_topic(unique("topic")),
            lambda admin=admin: admin.groups(),
            lambda admin=admin: admin.broker_settings("broker-a"),
            lambda admin=admin: admin.change_broker_settings("broker-a", {"x": 1}),
        ):
            with pytest.raises(PermissionDeniedError, match=r"broker-a.*check the credentials"):
                ask()


def test_a_user_is_made_given_rights_and_taken_away(
    guarded: ApacheCluster, java: JavaDriver, version: str, open_admin: Any
):
    admin = open_admin(guarded, credentials=ADMIN_KEYS)
    if version.startswith("4."):
        with pytest.raises(UnsupportedRequestError, match=r"5\.3\.0 or later"):
            admin.users()
        return
    name, topic = unique("user"), unique("topic")
    guarded.create_topic(topic)
    assert admin.create_user(name, "user-secret-1") == ("broker-a",)
    found = {user.name: user for user in admin.users()}
    assert (found[name].is_super, found[name].is_enabled) == (False, True)
    assert found[ADMIN.access_key].is_super
    with pytest.raises(InvalidMessageError, match="exists already"):
        admin.create_user(name, "other-secret-1")
    keys = Credentials(name, "user-secret-1")
    assert not can_send(guarded, keys, topic)
    admin.set_policy(name, f"Topic:{topic}", ["pub", "Sub"], sources=["127.0.0.1"])
    (policy,) = admin.policies(name)
    assert (policy.resource, sorted(policy.actions)) == (f"Topic:{topic}", ["Pub", "Sub"])
    assert (policy.is_allowed, policy.sources) == (True, ("127.0.0.1",))
    assert soon(lambda: can_send(guarded, keys, topic))
    account = {"access_key": ADMIN.access_key, "secret_key": ADMIN.secret_key}
    printed = run(guarded, java, "listAcl", "-c", CLUSTER, "-s", f"User:{name}", **account)
    assert f"Topic:{topic}" in printed
    admin.delete_policy(name, f"Topic:{topic}")
    assert admin.policies(name) == ()
    assert soon(lambda: not can_send(guarded, keys, topic))
    admin.change_user(name, is_enabled=False)
    assert not next(user for user in admin.users() if user.name == name).is_enabled
    admin.delete_user(name)
    assert name not in {user.name for user in admin.users()}
    for ask in (
        lambda: admin.delete_user(name),
        lambda: admin.change_user(name, is_enabled=True),
        lambda: admin.set_policy(name, "Topic:*", ["Pub"]),
        lambda: admin.policies(name),
    ):
        with pytest.raises(InvalidMessageError, match=f"no user {name}"):
            ask()


def can_send(cluster: ApacheCluster, keys: Credentials, topic: str) -> bool:
    options = {"credentials": keys, "retries": 0, "fault": "off"}
    try:
        with Producer(cluster.name_server, group="rights", **options) as producer:
            producer.send(Message(topic, b"x"))
    except RocketMQError:
        return False
    return True


def test_an_account_of_the_plain_acl_is_made_changed_and_deleted(
    guarded: ApacheCluster, version: str, open_admin: Any
):
    admin = open_admin(guarded, credentials=ADMIN_KEYS)
    if not version.startswith("4."):
        with pytest.raises(UnsupportedRequestError, match=r"thing of 4\.x"):
            admin.plain_accounts()
        return
    key, topic = unique("account"), unique("topic")
    guarded.create_topic(topic)
    account = PlainAccount(key, topics={topic: "PUB"}, groups={"rights": "PUB|SUB"})
    admin.put_plain_account(account, "account-secret-1")
    found = next(a for a in admin.plain_accounts() if a.access_key == key)
    assert (found.topics, found.groups) == ({topic: "PUB"}, {"rights": "PUB|SUB"})
    assert (found.default_topic, found.is_admin, found.brokers) == ("DENY", False, ("broker-a",))
    assert "secret" not in repr(found)
    keys = Credentials(key, "account-secret-1")
    assert soon(lambda: can_send(guarded, keys, topic))
    account = PlainAccount(key, topics={topic: "DENY"}, groups={"rights": "PUB"})
    admin.put_plain_account(account, "account-secret-1")
    assert soon(lambda: not can_send(guarded, keys, topic))
    admin.delete_plain_account(key)
    assert key not in {a.access_key for a in admin.plain_accounts()}
    with pytest.raises(InvalidMessageError, match="no account"):
        admin.delete_plain_account(key)
