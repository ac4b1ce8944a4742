from tests.embedded.wire_client import WireClient

from rocketwire.wire.codes import RequestCode, ResponseCode


def test_a_topic_is_created_listed_shown_and_deleted(rocketwire, cluster):
    made = rocketwire("topic", "create", "life", "--queues", "3", "--json", cluster=cluster)
    assert made.json == {"topic": "life", "queues": 3, "brokers": ["broker-a", "broker-b"]}
    assert "life" in rocketwire("topic", "list", "--json", cluster=cluster).json
    rocketwire("send", "life", "x", "--repeat", "4", cluster=cluster)
    shown = rocketwire("topic", "show", "life", "--json", cluster=cluster).json
    assert shown["messages"] == 4
    assert len(shown["queues"]) == 6
    assert shown["permissions"] == {"broker-a": "read, write", "broker-b": "read, write"}
    gone = rocketwire("topic", "delete", "life", "--yes", cluster=cluster)
    assert gone.out == "life deleted on broker-a, broker-b\n"
    assert "life" not in rocketwire("topic", "list", "--json", cluster=cluster).json


def test_the_list_leaves_out_what_belongs_to_the_system(rocketwire, cluster):
    rocketwire("send", "mine", "x", cluster=cluster)
    plain = rocketwire("topic", "list", cluster=cluster).out.split()
    everything = rocketwire("topic", "list", "--all", cluster=cluster).out.split()
    assert "mine" in plain
    assert "TBW102" not in plain
    assert "broker-a" not in plain
    assert {"TBW102", "broker-a"} < set(everything)


def test_deleting_without_a_terminal_needs_yes(rocketwire, cluster):
    rocketwire("topic", "create", "kept", cluster=cluster)
    done = rocketwire("topic", "delete", "kept", cluster=cluster)
    assert done.code == 2
    assert "--yes" in done.err
    assert "kept" in rocketwire("topic", "list", "--json", cluster=cluster).json


def test_an_unknown_topic_tells_how_to_create_it(rocketwire, cluster):
    done = rocketwire("topic", "show", "nowhere", cluster=cluster)
    assert done.code == 1
    assert "rocketwire topic create nowhere" in done.err


def test_a_topic_may_be_on_some_brokers_only(rocketwire, cluster):
    rocketwire("topic", "create", "partial", "--broker", "broker-b", cluster=cluster)
    shown = rocketwire("topic", "show", "partial", "--json", cluster=cluster).json
    assert {queue["broker"] for queue in shown["queues"]} == {"broker-b"}


def test_an_unknown_broker_is_named(rocketwire, cluster):
    done = rocketwire("topic", "create", "x", "--broker", "broker-z", cluster=cluster)
    assert done.code == 1
    assert "broker-z" in done.err


def test_a_deleted_ordered_topic_leaves_no_list_of_queues_behind(rocketwire, cluster):
    rocketwire("topic", "create", "ledger", "--ordered", cluster=cluster)
    asked = {"namespace": "ORDER_TOPIC_CONFIG", "key": "ledger"}
    with WireClient(cluster.name_server) as client:
        assert client.call(RequestCode.GET_KV_CONFIG, asked).ext["value"] == (
            "broker-a:8;broker-b:8"
        )
        rocketwire("topic", "delete", "ledger", "--yes", cluster=cluster)
        assert client.call(RequestCode.GET_KV_CONFIG, asked).code == ResponseCode.QUERY_NOT_FOUND
