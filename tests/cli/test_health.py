import json

from rocketwire import Message, Producer
from rocketwire.embedded import EmbeddedCluster


def test_our_own_probes_show_every_broker(rocketwire, cluster):
    done = rocketwire(
        *["health", "--count", "2", "--interval", "0.3", "--rate", "100", "--json"], cluster=cluster
    )
    assert done.code == 0
    last = done.lines[-1]
    assert {entry["broker"] for entry in last["health"]} == {"broker-a", "broker-b"}
    assert last["stats"]["sent"] > 0


def test_a_table_for_people_has_a_line_per_broker(rocketwire, cluster):
    done = rocketwire("health", "--count", "1", "--rate", "100", cluster=cluster)
    assert done.code == 0
    assert "broker-a  usable" in done.out
    assert "10 small messages" not in done.out
    assert "100 small messages a second to BenchmarkTest" in done.out


def test_a_bad_broker_is_shown_with_the_reason(rocketwire):
    with EmbeddedCluster(3) as own:
        own.broker("broker-b").slow(0.3)
        looks = ["health", "--count", "12", "--interval", "0.3", "--rate", "50", "--json"]
        done = rocketwire(*looks, cluster=own)
    seen = [e for look in done.lines for e in look["health"] if e["broker"] == "broker-b"]
    reasons = [entry["why"] for entry in seen if entry["state"] != "usable"]
    assert any("ms" in reason for reason in reasons)


def test_a_running_application_is_shown_by_its_status_file(rocketwire, cluster, tmp_path):
    path = tmp_path / "orders.status"
    with Producer(cluster.name_server, group="orders", status=str(path)) as producer:
        producer.send(Message("status", b"x"))
        done = rocketwire("health", "--status", str(path), "--count", "1", "--json")
        while done.code and path.exists() is False:
            done = rocketwire("health", "--status", str(path), "--count", "1", "--json")
    assert done.code == 0
    status = json.loads(done.out)
    assert status["group"] == "orders"
    assert {entry["broker"] for entry in status["health"]} == {"broker-a", "broker-b"}


def test_a_status_file_that_nobody_writes_tells_how_to_have_one(rocketwire, tmp_path):
    done = rocketwire("health", "--status", str(tmp_path / "none"), "--interval", "0.1")
    assert done.code == 1
    assert "status=" in done.err
    assert len(done.err.splitlines()) == 1


def test_without_a_cluster_it_is_one_line(rocketwire):
    done = rocketwire("health", "-n", "127.0.0.1:1")
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
