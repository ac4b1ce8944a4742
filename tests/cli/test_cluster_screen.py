"""What a running cluster shows, in windows of any width."""

import io
import re

import pytest
from rich.console import Console

from rocketwire import Message, Producer
from rocketwire.cli.cluster_screen import ClusterScreen
from rocketwire.cli.invocation import Invocation


@pytest.fixture(scope="module")
def busy(cluster):
    cluster.create_topic("seen", queues=1)
    with Producer(cluster.name_server) as producer:
        producer.send([Message("seen", b"x" * 1000) for _ in range(50)])
    cluster.brokers[0].slow(0.01)
    yield cluster
    cluster.brokers[0].heal()


def shown(cluster, width):
    here = Invocation(console=Console(file=io.StringIO(), width=width, force_terminal=False))
    screen = ClusterScreen(
        here, lambda: cluster.brokers, headline=["RocketMQ, embedded", "try: it"], interval=1.0
    )
    views = screen._watch.look()
    here.console.print(screen._screen(views))
    return here.console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 109, 110, 160])
def test_every_value_stays_in_one_piece_and_every_word_is_explained(busy, width):
    text = shown(busy, width)
    assert max(map(len, text.splitlines())) <= width
    for broker in busy.brokers:
        assert re.search(rf"{broker.name}\b.*{broker.address}\b", text), (
            "name and address in a line"
        )
    assert re.search(r"broker-a.*slow", text)
    legend = " ".join(text.split("\n\n")[-1].split())
    for word in ("in, out: messages a second", "stored:", "log:", "not indexed:", "Ctrl-C"):
        assert word in legend
    for word in ("stored", "log", "topics"):
        assert word in text.removesuffix(legend)
