"""The newest release, in a smaller selection than the others."""

import pytest
from tests.conformance.shells import SHELLS
from tests.interop.driver import JavaDriver, body_of
from tests.real import jars
from tests.real.apache import ApacheCluster
from tests.real.running import unique

from rocketwire import Message

NEWEST = "5.5.0"


@pytest.fixture(params=[NEWEST])
def version(request: pytest.FixtureRequest) -> str:
    jars.require_tools(request.param)
    return str(request.param)


@pytest.fixture(params=list(SHELLS))
def shell_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_form_of_sending_is_read_by_us_and_by_java(
    cluster: ApacheCluster, java: JavaDriver, topic: str, shell_kind: str
):
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours")) as shell:
        first = shell.send(Message(topic, "grüße", tags="T", keys="k", properties={"ä": "二"}))
        shell.submit(Message(topic, "submitted"))()
        shell.send_oneway(Message(topic, "oneway"))
        batch = shell.send([Message(topic, f"batch {number}") for number in range(3)])
        shell.send(Message(topic, "x" * 100_000))
        expected = 7
        found = []
        while len(found) < expected:
            found = shell.read(topic)
    assert len(found) == expected
    viewed = java.call(
        "admin.view", name_server=cluster.name_server, topic=topic, id=first.offset_message_id
    )
    assert body_of(viewed).decode() == "grüße"
    assert viewed["properties"]["ä"] == "二"
    assert len(batch.message_ids) == 3


@pytest.mark.parametrize("header", ["binary", "json"])
def test_both_headers_are_understood(
    cluster: ApacheCluster, topic: str, shell_kind: str, header: str
):
    with SHELLS[shell_kind](cluster.name_server, group=unique("ours"), header=header) as shell:
        assert shell.send(Message(topic, b"x")).offset == 0


def test_mqadmin_shows_our_messages(cluster: ApacheCluster, java: JavaDriver, topic: str):
    with SHELLS["blocking"](cluster.name_server, group=unique("ours")) as shell:
        shell.send(Message(topic, b"x"))
    printed = java.mqadmin(cluster.name_server, "topicStatus", "-t", topic)
    assert "broker-a" in printed
