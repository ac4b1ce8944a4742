"""The exporter's numbers of Apache's own brokers."""

from __future__ import annotations

import pytest
from tests.real import running
from tests.real.running import unique

from rocketwire import Admin, Consumer, Message, Producer

pytest.importorskip("prometheus_client", reason="needs rocketwire[prometheus]")

from rocketwire.integrations.prometheus import ClusterCollector


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_brokers_topics_and_groups_have_their_numbers(version: str):
    cluster = running.cluster(version)
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, 2)
    with Producer(cluster.name_server) as producer:
        for number in range(5):
            producer.send(Message(topic, f"{number}"))
    consumer = Consumer(cluster.name_server, group=group, start="earliest", workers=1)
    with consumer:
        consumer.subscribe(topic).run(lambda message: consumer.stop())
    with Admin(cluster.name_server) as admin:
        runtime = {broker.name: broker.runtime for broker in admin.brokers()}
        families = list(ClusterCollector(admin, timeout=30.0).collect())
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert found["rocketwire_cluster_up",] == 1
    assert found["rocketwire_cluster_topic_messages", topic] == 5
    lag = found["rocketwire_cluster_group_lag", group, topic]
    assert lag + found["rocketwire_cluster_group_consumed_total", group, topic] == 5
    assert found["rocketwire_exporter_errors",] == 0
    brokers = [key for key in found if key[0] == "rocketwire_cluster_broker_up"]
    assert len(brokers) == 2
    for _, *labels in brokers:
        # Empty, or not a number yet, in its first ten seconds.
        if runtime[labels[1]]["putTps"].strip()[:1].isdigit():
            assert found["rocketwire_cluster_broker_put_rate", *labels] >= 0
            assert found["rocketwire_cluster_broker_get_rate", *labels] >= 0
        assert 0 < found["rocketwire_cluster_broker_disk_used_ratio", *labels] < 1
