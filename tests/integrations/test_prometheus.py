"""Numbers for Prometheus, with the real library: clients, a whole cluster, the exporter, rules and board."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketwire import (
    Admin,
    AsyncProducer,
    ConfigError,
    Consumer,
    FaultPolicy,
    Message,
    Producer,
    SendFailedError,
)
from rocketwire.embedded import EmbeddedCluster

pytest.importorskip("prometheus_client", reason="needs rocketwire[prometheus]")

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from rocketwire.integrations.prometheus import ClusterCollector, Collector
from rocketwire.integrations.prometheus.cluster import CLUSTER
from rocketwire.integrations.prometheus.collector import CONSUMER, LATENCY, PRODUCER

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(collector: Any) -> Samples:
    registry = CollectorRegistry()
    registry.register(collector)
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("orders", 1)
        yield cluster


# -- clients -----------------------------------------------------------------------------------


def test_a_producer_has_counters_and_a_histogram_per_broker(cluster):
    # A busy machine makes a broker slow for a moment, which is no matter of this test.
    patient = FaultPolicy(floor=10.0)
    with Producer(cluster.name_server, group="shop", fault=patient) as producer:
        for _ in range(20):
            producer.send(Message("orders", b"12345"))
        producer.send_oneway(Message("orders", b"x"))
        samples = scraped(Collector(producer))
    assert value(samples, "rocketwire_producer_sends_total", group="shop") == 20
    assert value(samples, "rocketwire_producer_bytes_total", group="shop") >= 100
    assert value(samples, "rocketwire_producer_oneway_total", group="shop") == 1
    assert value(samples, "rocketwire_producer_in_flight", group="shop") == 0
    counts = 0.0
    for broker in cluster.brokers:
        labels = {"group": "shop", "broker": broker.name}
        count = value(samples, f"{LATENCY}_count", **labels)
        buckets = sorted(
            (float(dict(found)["le"]), number)
            for (name, found), number in samples.items()
            if name == f"{LATENCY}_bucket" and ("broker", broker.name) in found
        )
        assert buckets[-1] == (float("inf"), count)
        assert [number for _, number in buckets] == sorted(number for _, number in buckets)
        assert len(buckets) == 19
        assert 0 < value(samples, f"{LATENCY}_sum", **labels) < 20
        assert value(samples, "rocketwire_producer_broker_isolated", **labels) == 0
        counts += count
    assert counts == 20


def test_retries_are_counted_by_their_reason(cluster):
    options = {"group": "retrying", "fault": FaultPolicy.off()}
    with (
        EmbeddedCluster(brokers=2, queues=1) as broken,
        Producer(broken.name_server, **options) as producer,
    ):
        broken.create_topic("t", 1)
        producer.send(Message("t", b"x"))
        broken.brokers[0].busy()
        for _ in range(4):
            producer.send(Message("t", b"x"))
        broken.brokers[1].busy()
        with pytest.raises(SendFailedError):
            producer.send(Message("t", b"x"))
        stats = producer.stats()
        samples = scraped(Collector(producer))
    assert sum(stats.retry_reasons.values()) == stats.retries > 2
    for reason, count in stats.retry_reasons.items():
        name = "rocketwire_producer_retries_total"
        assert value(samples, name, group="retrying", reason=reason) == count
    assert set(stats.retry_reasons) == {"SystemBusyError"}
    assert value(samples, "rocketwire_producer_failures_total", group="retrying") == 1


def test_a_broker_that_is_left_out_shows():
    with EmbeddedCluster(brokers=2, queues=1) as broken, Producer(broken.name_server) as producer:
        broken.create_topic("t", 1)
        for _ in range(4):
            producer.send(Message("t", b"x"))
        broken.brokers[0].kill()
        for _ in range(20):
            producer.send(Message("t", b"x"))
        samples = scraped(Collector(producer))
        labels = {"group": "rocketwire", "broker": broken.brokers[0].name}
        assert value(samples, "rocketwire_producer_broker_isolated", **labels) == 1
        assert value(samples, "rocketwire_producer_broker_failures_total", **labels) >= 1


def test_clients_of_a_group_are_added_up_in_both_shells(cluster):
    async def main() -> Samples:
        with Producer(cluster.name_server, group="sum") as one:
            async with AsyncProducer(cluster.name_server, group="sum") as two:
                one.send(Message("orders", b"x"))
                await two.send(Message("orders", b"x"))
                return scraped(Collector(one, two))

    samples = asyncio.run(main())
    assert value(samples, "rocketwire_producer_sends_total", group="sum") == 2


def test_a_consumer_has_its_lag_and_what_became_of_messages(cluster):
    cluster.create_topic("lagging", 1)
    with Producer(cluster.name_server) as producer:
        for _ in range(10):
            producer.send(Message("lagging", b"x"))
    seen: list[Samples] = []

    def handle(message):
        seen.append(scraped(collector))
        if len(seen) == 1:
            raise ValueError
        if len(seen) == 11:
            consumer.stop()

    consumer = Consumer(
        cluster.name_server,
        group="behind",
        start="earliest",
        workers=1,
        ordered=True,
        retry_pause=0.01,
    )
    collector = Collector(consumer)
    assert scraped(collector) == {}, "it never ran"
    consumer.subscribe("lagging").run(handle)
    assert value(seen[0], "rocketwire_consumer_lag", group="behind", topic="lagging") >= 1
    last = scraped(collector)
    assert value(last, "rocketwire_consumer_handled_total", group="behind") == 10
    assert value(last, "rocketwire_consumer_failed_total", group="behind") == 1
    assert value(last, "rocketwire_consumer_retried_total", group="behind") == 1


def test_a_client_that_is_added_twice_counts_once(cluster):
    with Producer(cluster.name_server, group="twice") as producer:
        producer.send(Message("paid", b"x"))
        collector = Collector(producer, producer)
        collector.add(producer)
        sends = "rocketwire_producer_sends_total"
        assert value(scraped(collector), sends, group="twice") == 1
        collector.remove(producer)
        collector.remove(producer)
        assert scraped(collector) == {}


def test_what_is_no_client_is_refused():
    with pytest.raises(ConfigError, match="give a producer or a consumer"):
        Collector(5)


# -- a cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy() -> Iterator[EmbeddedCluster]:
    """Shared by tests that only look at it: in any order they find the same."""
    with busy_cluster() as cluster:
        yield cluster


@contextmanager
def busy_cluster() -> Iterator[EmbeddedCluster]:
    """A cluster with a topic, a group that is behind, and a dead letter."""
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("paid", 1)
        cluster.create_topic("shipped", 1)
        with Producer(cluster.name_server) as producer:
            for number in range(6):
                producer.send(Message("paid", f"{number}"))
        tries: list[str] = []

        def handle(message):
            tries.append(message.text)
            if len(tries) == 1:
                raise ValueError("no such order")
            consumer.stop()

        consumer = Consumer(
            cluster.name_server, group="billing", start="earliest", workers=1, max_attempts=1
        )
        with consumer:
            consumer.subscribe("paid").run(handle)
            deadline = time.monotonic() + 10
            while consumer.stats().dead_lettered < 1 and time.monotonic() < deadline:
                time.sleep(0.02)
        yield cluster


def test_a_cluster_has_brokers_topics_groups_and_dead_letters(busy):
    with Admin(busy.name_server) as admin:
        samples = scraped(ClusterCollector(admin))
    assert value(samples, "rocketwire_cluster_up") == 1
    up = [v for (name, _), v in samples.items() if name == "rocketwire_cluster_broker_up"]
    assert up == [1, 1]
    assert value(samples, "rocketwire_cluster_topic_messages", topic="paid") == 6
    assert value(samples, "rocketwire_cluster_topic_stored_total", topic="paid") == 6
    lag = value(samples, "rocketwire_cluster_group_lag", group="billing", topic="paid")
    consumed = value(
        samples, "rocketwire_cluster_group_consumed_total", group="billing", topic="paid"
    )
    assert lag + consumed == 6
    assert lag >= 1
    assert value(samples, "rocketwire_cluster_dead_letters", group="billing") == 1
    assert value(samples, "rocketwire_cluster_group_members", group="billing") == 0
    assert value(samples, "rocketwire_exporter_complete") == 1
    assert value(samples, "rocketwire_exporter_errors") == 0


def test_a_scrape_is_bounded_and_says_what_it_left_out(busy):
    with Admin(busy.name_server) as admin:
        late = scraped(ClusterCollector(admin, timeout=0.0))
        few = scraped(ClusterCollector(admin, most=1))
    assert value(late, "rocketwire_exporter_complete") == 0
    assert value(late, "rocketwire_exporter_left_out", what="topics") >= 2
    assert value(late, "rocketwire_exporter_left_out", what="groups") >= 1
    topics = [found for (name, found) in few if name == "rocketwire_cluster_topic_messages"]
    assert len(topics) == 1
    assert value(few, "rocketwire_exporter_left_out", what="topics") == 1
    assert value(few, "rocketwire_exporter_complete") == 0


def test_scrapes_in_a_row_ask_the_cluster_once(busy):
    with Admin(busy.name_server) as admin:
        collector = ClusterCollector(admin, keep=60.0)
        first = scraped(collector)
        assert scraped(collector) == first
        seconds = value(first, "rocketwire_exporter_seconds")
        assert value(scraped(collector), "rocketwire_exporter_seconds") == seconds


def test_a_broker_and_a_name_server_that_are_down_show():
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("t", 1)
        with Admin(cluster.name_server, request_timeout=0.5) as admin:
            collector = ClusterCollector(admin, keep=0.0)
            assert value(scraped(collector), "rocketwire_cluster_up") == 1
            cluster.brokers[0].kill()
            down = scraped(collector)
            name = "rocketwire_cluster_broker_up"
            found = {dict(labels)["broker"]: v for (n, labels), v in down.items() if n == name}
            assert found.get(cluster.brokers[1].name) == 1
            assert found.get(cluster.brokers[0].name, 0) == 0
    with Admin("127.0.0.1:1", request_timeout=0.5) as admin:
        assert value(scraped(ClusterCollector(admin)), "rocketwire_cluster_up") == 0


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def test_the_exporter_serves_a_cluster_and_ends_on_request(busy):
    command = [sys.executable, "-m", "rocketwire", "exporter", "--name-server", busy.name_server]
    process = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        found = re.search(r"http://(127\.0\.0\.1):(\d+)/metrics", process.stdout.readline())
        assert found, process.stderr.read()
        samples = parsed(fetch(found[0]))
        assert value(samples, "rocketwire_cluster_topic_messages", topic="paid") == 6
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_exporter_says_what_is_wrong_in_one_line(busy):
    command = [sys.executable, "-m", "rocketwire", "exporter", "--name-server", busy.name_server]
    port = busy.name_server.rpartition(":")[2]
    done = subprocess.run(
        [*command, "--port", port], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "can't be served" in done.stderr
    assert "Traceback" not in done.stderr


# -- rules and board ---------------------------------------------------------------------------


def exported() -> set[str]:
    names = {name for name, *_ in PRODUCER + CONSUMER + CLUSTER}
    return names | {f"{LATENCY}_{part}" for part in ("bucket", "sum", "count")}


def rules() -> list[tuple[str, str]]:
    groups = yaml.safe_load((DASHBOARDS / "alerts.yml").read_text())["groups"]
    return [(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


def queries() -> list[tuple[str, str]]:
    board = json.loads((DASHBOARDS / "grafana.json").read_text())
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$group", ".*"))
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.mark.parametrize(("title", "query"), rules() + queries())
def test_every_query_is_read_and_asks_for_what_we_export(title: str, query: str):
    promql = pytest.importorskip("promql_parser", reason="pip install promql-parser")
    assert promql.parse(query) is not None
    asked = set(re.findall(r"rocketwire_\w+", query))
    assert asked
    assert asked <= exported(), title


def test_the_board_shows_every_kind_of_number_and_no_panel_lies_over_another():
    asked = {name for _, query in queries() for name in re.findall(r"rocketwire_\w+", query)}
    for room in ("producer", "consumer", "cluster", "exporter"):
        assert any(name.startswith(f"rocketwire_{room}_") for name in asked)
    board = json.loads((DASHBOARDS / "grafana.json").read_text())
    places = [tuple(panel["gridPos"][k] for k in "xy") for panel in board["panels"]]
    assert len(places) == len(set(places))


def test_promtool_accepts_the_rules():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here")
    subprocess.run(
        [promtool, "check", "rules", str(DASHBOARDS / "alerts.yml")], check=True, timeout=60
    )


#: What Prometheus would see in two hours, a minute apart, and which alerts stand at its end.
STORIES = {
    "a broker that its name server forgot": (
        {
            "rocketwire_cluster_up": "1x120",
            "rocketwire_cluster_broker_up{cluster='c', broker='broker-a'}": "1x120",
            "rocketwire_cluster_broker_up{cluster='c', broker='broker-b'}": "1x99 stale",
        },
        {("RocketMQBrokerDown", "broker-b")},
    ),
    "a broker that does not answer": (
        {
            "rocketwire_cluster_up": "1x120",
            "rocketwire_cluster_broker_up{cluster='c', broker='broker-a'}": "1x99 0x20",
        },
        {("RocketMQBrokerDown", "broker-a")},
    ),
    "the first dead letter of a group": (
        {
            "rocketwire_cluster_up": "1x120",
            "rocketwire_cluster_dead_letters{group='billing'}": "_x110 1x9",
            "rocketwire_cluster_dead_letters{group='quiet'}": "7x120",
        },
        {("RocketMQDeadLetters", "billing")},
    ),
    "one more": (
        {
            "rocketwire_cluster_up": "1x120",
            "rocketwire_cluster_dead_letters{group='billing'}": "7x110 8x9",
        },
        {("RocketMQDeadLetters", "billing")},
    ),
    "an exporter that is new": (
        {
            "rocketwire_cluster_up": "_x115 1x4",
            "rocketwire_cluster_dead_letters{group='billing'}": "_x115 7x4",
            "rocketwire_cluster_broker_up{cluster='c', broker='broker-a'}": "_x115 1x4",
        },
        set(),
    ),
}


@pytest.mark.parametrize("story", list(STORIES))
def test_promtool_finds_that_the_rules_tell(story, tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here")
    series, alerts = STORIES[story]
    names = {"RocketMQBrokerDown": "broker", "RocketMQDeadLetters": "group"}
    told = [
        {
            "eval_time": "119m",
            "alertname": name,
            "exp_alerts": [
                {"exp_labels": found} for alert, found in map(firing, alerts) if alert == name
            ],
        }
        for name in names
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "alert_rule_test": told,
    }
    bare = tmp_path / "alerts.yml"  # without the words, which are not tested here
    rules_only = yaml.safe_load((DASHBOARDS / "alerts.yml").read_text())
    for group in rules_only["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations")
    bare.write_text(yaml.safe_dump(rules_only))
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(bare)], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def firing(alert: tuple[str, str]) -> tuple[str, dict[str, str]]:
    name, who = alert
    if name == "RocketMQBrokerDown":
        return name, {"severity": "critical", "cluster": "c", "broker": who}
    return name, {"severity": "warning", "group": who}


#: Panels that are empty as long as all goes well.
NOTHING_WRONG = {"Retries by reason", "The exporter"}


@pytest.fixture
def prometheus(tmp_path):
    """A real Prometheus with our rules, that looks at a producer, a consumer and a cluster."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed here")
    with busy_cluster() as cluster:
        yield from watched(cluster.name_server, program, tmp_path)


def watched(name_server: str, program: str, tmp_path: Path) -> Iterator[Asked]:
    registry = CollectorRegistry()
    producer = Producer(name_server, group="shop")
    consumer = Consumer(name_server, group="shop-readers", start="earliest")
    with Admin(name_server) as admin, producer, running(consumer.subscribe("paid")):
        producer.send(Message("paid", b"x"))
        registry.register(Collector(producer, consumer))
        registry.register(ClusterCollector(admin, keep=0.0))
        server, thread = start_http_server(0, "127.0.0.1", registry)
        target = f"127.0.0.1:{server.server_port}"
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{DASHBOARDS / 'alerts.yml'}]\n"
            f"scrape_configs: [{{job_name: ours, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        process = subprocess.Popen(
            [program, f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address={address}",
             f"--storage.tsdb.path={tmp_path / 'data'}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Asked(address, producer)
        finally:
            process.kill()
            process.wait(10)
            server.shutdown()
            server.server_close()
            thread.join(5)


@contextmanager
def running(consumer: Consumer) -> Iterator[None]:
    thread = threading.Thread(target=consumer.run, args=(lambda message: None,))
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(30)


class Asked:
    """The API of a Prometheus."""

    def __init__(self, address: str, producer: Producer) -> None:
        self._address = address
        self.producer = producer

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        return json.loads(fetch(url))["data"]

    def wait(self, question: Any) -> Any:
        limit = time.monotonic() + 40
        while time.monotonic() < limit:
            self.producer.send(Message("paid", b"x"))
            try:
                if found := question():
                    return found
            except OSError:  # it is still starting
                pass
            time.sleep(0.2)
        raise AssertionError("Prometheus did not come so far in 40 s")


def test_a_real_prometheus_evaluates_our_rules_and_the_queries_of_the_board(prometheus):
    def healthy() -> list[Any]:
        groups = prometheus.get("rules")["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if found and all(r["health"] != "unknown" for r in found) else []

    evaluated = prometheus.wait(healthy)
    assert {r["name"]: r["health"] for r in evaluated} == {name: "ok" for name, _ in rules()}
    # Two scrapes make a rate.
    sends = "rate(rocketwire_producer_sends_total[5m]) > 0"
    prometheus.wait(lambda: prometheus.get("query", query=sends)["result"])
    answered = {}
    for title, query in queries():
        answered[title, query] = len(prometheus.get("query", query=query)["result"])
    empty = {title for (title, _), series in answered.items() if not series}
    assert empty <= NOTHING_WRONG
    assert len(answered) - len(empty) >= 10


def test_labels_are_bounded():
    """Groups, topics, brokers, clusters, releases and classes of errors; nothing of a message."""
    allowed = {"group", "topic", "broker", "cluster", "version", "reason", "what"}
    used = {label for _, _, _, labels in PRODUCER + CONSUMER + CLUSTER for label in labels}
    assert used == allowed
