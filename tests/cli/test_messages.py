"""``send`` and ``read``, against an embedded cluster."""

import io
import sys

import pytest

from rocketwire import Message, Producer


def test_what_was_sent_is_read_back_with_all_its_fields(rocketwire, cluster):
    sent = rocketwire(
        *["send", "fields", "paid", "--tag", "pay", "--key", "order-42", "--key", "customer-7"],
        *["--property", "color=red", "--json"],
        cluster=cluster,
    )
    assert sent.code == 0
    assert sent.json["status"] == "SEND_OK"
    (found,) = rocketwire("read", "fields", "--json", cluster=cluster).lines
    assert found["body"] == "paid"
    assert found["tags"] == "pay"
    assert found["keys"] == "order-42 customer-7"
    assert found["properties"]["color"] == "red"
    assert found["message_id"] == sent.json["message_id"]
    assert (found["broker"], found["queue"]) == (sent.json["broker"], sent.json["queue"])


def test_a_line_for_people_tells_status_place_and_time(rocketwire, cluster):
    done = rocketwire("send", "lines", "hello", cluster=cluster)
    assert done.out.startswith("SEND_OK  broker-")
    assert " ms" in done.out


def test_lines_in_batches_are_one_request_each(rocketwire, cluster, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\nc\nd\ne\n")))
    done = rocketwire("send", "batches", "--batch", "2", "--json", cluster=cluster)
    assert [len(line["message_ids"]) for line in done.lines] == [2, 2, 1]
    found = rocketwire("read", "batches", "--raw", cluster=cluster)
    assert sorted(found.out.split()) == ["a", "b", "c", "d", "e"]


def test_a_file_is_one_message(rocketwire, cluster, tmp_path):
    (tmp_path / "order.json").write_bytes(b'{"id": 42}\n')
    rocketwire("send", "files", "--file", str(tmp_path / "order.json"), cluster=cluster)
    (found,) = rocketwire("read", "files", "--json", cluster=cluster).lines
    assert found["body"] == '{"id": 42}\n'


def test_a_missing_file_is_one_line(rocketwire, cluster):
    done = rocketwire("send", "files", "--file", "nowhere.txt", cluster=cluster)
    assert done.code == 1
    assert done.err == "rocketwire: No such file or directory nowhere.txt\n"


def test_ordered_messages_are_in_one_queue_in_order(rocketwire, cluster):
    rocketwire("topic", "create", "ordered", cluster=cluster)
    for body in ("1", "2", "3"):
        rocketwire("send", "ordered", body, "--ordered", "customer-7", cluster=cluster)
    found = rocketwire("read", "ordered", "--json", cluster=cluster).lines
    assert [line["body"] for line in found] == ["1", "2", "3"]
    assert len({(line["broker"], line["queue"]) for line in found}) == 1
    assert {line["sharding_key"] for line in found} == {"customer-7"}


def test_many_messages_are_summarised(rocketwire, cluster):
    done = rocketwire("send", "many", "x", "--repeat", "30", cluster=cluster)
    assert done.out.splitlines()[-1].startswith("30 messages in ")


def test_oneway_messages_arrive(rocketwire, cluster):
    rocketwire("topic", "create", "oneway", cluster=cluster)
    done = rocketwire("send", "oneway", "x", "--oneway", cluster=cluster)
    assert done.code == 0
    assert cluster.journal.wait_for(
        lambda entries: any(e.topic == "oneway" and e.oneway for e in entries)
    )


def test_a_send_that_fails_tells_the_outcome_and_exits_1(rocketwire, cluster):
    done = rocketwire("send", "no/topic", "x", cluster=cluster)
    assert done.code == 2
    assert "no/topic" in done.err


def test_body_and_file_exclude_one_another(rocketwire, cluster):
    done = rocketwire("send", "orders", "x", "--file", "y", cluster=cluster)
    assert done.code == 2
    assert "not both" in done.err


@pytest.fixture
def numbered(cluster):
    """A topic of one queue with ten messages."""
    cluster.create_topic("numbered", 1, brokers=["broker-a"])
    if not cluster.messages("numbered"):
        with Producer(cluster.name_server) as producer:
            for number in range(10):
                producer.send(
                    Message("numbered", str(number), tags="even" if number % 2 == 0 else "odd")
                )
    return "numbered"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], list(range(10))),
        (["--limit", "3"], [0, 1, 2]),
        (["--from", "7"], [7, 8, 9]),
        (["--from", "2", "--to", "4"], [2, 3]),
        (["--from", "1h"], list(range(10))),
        (["--from", "2020-01-01T00:00"], list(range(10))),
        (["--from", "latest"], []),
        (["--tag", "odd"], [1, 3, 5, 7, 9]),
        (["--queue", "broker-a/0", "--limit", "1"], [0]),
        (["--from", "8", "--follow", "--limit", "2"], [8, 9]),
    ],
)
def test_positions_and_filters(rocketwire, cluster, numbered, arguments, expected):
    done = rocketwire("read", numbered, "--raw", *arguments, cluster=cluster)
    assert done.code == 0
    assert [int(word) for word in done.out.split()] == expected


def test_a_message_is_found_by_key_and_by_id(rocketwire, cluster):
    sent = rocketwire("send", "keyed", "x", "--key", "k-1", "--json", cluster=cluster).json
    assert rocketwire("read", "keyed", "--id", sent["offset_message_id"], "--raw").out == "x\n"

    def indexed():
        return all(broker.index_lag == 0 for broker in cluster.brokers)

    assert cluster.journal.wait_for(lambda _: indexed()) or indexed()
    assert rocketwire("read", "keyed", "--key", "k-1", "--raw").out == "x\n"
    assert rocketwire("read", "keyed", "--id", sent["message_id"], "--raw").out == "x\n"


def test_a_key_that_nobody_has_is_a_failure(rocketwire, cluster):
    rocketwire("send", "keyless", "x", cluster=cluster)
    done = rocketwire("read", "keyless", "--key", "none", cluster=cluster)
    assert done.code == 1
    assert "no message with the key 'none'" in done.err


def test_a_position_that_is_none_is_explained(rocketwire, cluster, numbered):
    done = rocketwire("read", numbered, "--from", "yesterday", cluster=cluster)
    assert done.code == 2
    assert "an age like 15m" in done.err


def test_an_unknown_queue_names_those_that_exist(rocketwire, cluster, numbered):
    done = rocketwire("read", numbered, "--queue", "broker-z/1", cluster=cluster)
    assert done.code == 2
    assert "there are broker-a/0" in done.err
