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


def settings_of(rocketwire, cluster, name):
    shown = rocketwire("topic", "alter", name, "--queues", "1", "--dry-run", "--json")
    return {each["broker"]: each["before"] for each in shown.json["brokers"]}


def test_a_topic_is_altered_where_asked_and_keeps_the_rest(rocketwire, cluster):
    rocketwire("topic", "create", "changed", "--queues", "2", "--type", "FIFO", cluster=cluster)
    words = ("topic", "alter", "changed", "--cannot-write", "--broker", "broker-b", "--json")
    done = rocketwire(*words, cluster=cluster)
    was = {
        "read_queues": 2,
        "write_queues": 2,
        "can_read": True,
        "can_write": True,
        "message_type": "FIFO",
    }
    now = was | {"can_write": False}
    assert done.json == {
        "topic": "changed",
        "changed": True,
        "brokers": [{"broker": "broker-b", "before": was, "after": now}],
    }
    assert settings_of(rocketwire, cluster, "changed") == {"broker-a": was, "broker-b": now}


def test_an_alteration_is_shown_first_and_done_after(rocketwire, cluster):
    rocketwire("topic", "create", "grown", "--queues", "1", cluster=cluster)
    words = ("topic", "alter", "grown", "--write-queues", "5", "--type", "mixed")
    tried = rocketwire(*words, "--dry-run", cluster=cluster)
    assert "would be" in tried.out
    assert "write queues" in tried.out
    assert "nothing was changed" in tried.out
    assert settings_of(rocketwire, cluster, "grown")["broker-a"]["write_queues"] == 1
    done = rocketwire(*words, cluster=cluster)
    assert done.out.rstrip().endswith("done")
    after = settings_of(rocketwire, cluster, "grown")["broker-b"]
    assert (after["write_queues"], after["read_queues"], after["message_type"]) == (5, 1, "MIXED")
    assert "like that already" in rocketwire(*words, cluster=cluster).out


def test_messages_that_could_not_be_read_after_an_alteration_are_counted(rocketwire, cluster):
    rocketwire("topic", "create", "shrunk", "--queues", "4", cluster=cluster)
    rocketwire("send", "shrunk", "x", "--repeat", "16", cluster=cluster)
    told = rocketwire("topic", "alter", "shrunk", "--queues", "1", "--dry-run", cluster=cluster)
    assert "12 messages in 6 queues can't be read" in told.err
    silent = rocketwire("topic", "alter", "shrunk", "--write-queues", "1", cluster=cluster)
    assert "can't be read" not in silent.err


def test_an_alteration_without_a_change_or_a_topic_is_refused(rocketwire, cluster):
    nothing = rocketwire("topic", "alter", "any", cluster=cluster)
    assert (nothing.code, "--write-queues" in nothing.err) == (2, True)
    unknown = rocketwire("topic", "alter", "nowhere", "--queues", "2", cluster=cluster)
    assert (unknown.code, "nowhere does not exist" in unknown.err) == (1, True)
    rocketwire("topic", "create", "typed", cluster=cluster)
    loud = rocketwire("topic", "alter", "typed", "--type", "LOUD", cluster=cluster)
    assert (loud.code, "one of NORMAL" in loud.err) == (2, True)
    elsewhere = rocketwire("topic", "alter", "typed", "--queues", "2", "--broker", "broker-z")
    assert (elsewhere.code, "broker-z" in elsewhere.err) == (1, True)


def test_the_list_of_an_ordered_topic_follows_its_queues(rocketwire, cluster):
    rocketwire("topic", "create", "journal", "--ordered", "--queues", "2", cluster=cluster)
    asked = {"namespace": "ORDER_TOPIC_CONFIG", "key": "journal"}
    words = ("topic", "alter", "journal", "--queues", "4", "--broker", "broker-a")
    with WireClient(cluster.name_server) as client:
        rocketwire(*words, "--dry-run", cluster=cluster)
        assert client.call(RequestCode.GET_KV_CONFIG, asked).ext["value"] == "broker-a:2;broker-b:2"
        rocketwire(*words, cluster=cluster)
        assert client.call(RequestCode.GET_KV_CONFIG, asked).ext["value"] == "broker-a:4;broker-b:2"


def test_one_of_a_thing_is_told_as_one(rocketwire, cluster):
    made = rocketwire("topic", "create", "single", "--queues", "1", "-n", cluster.name_server)
    assert made.out.startswith("single: 1 queue on each of ")
    rocketwire("send", "single", "hello", "-n", cluster.name_server)
    shown = rocketwire("topic", "show", "single", "-n", cluster.name_server).out
    assert "single: 1 message in " in shown
