"""``rocketwire dlq``: dead letters are found, explained, sent back once, and left behind."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from tests.cli.letters import give_up, kill_after_lines

from rocketwire import Message, Producer, Reader

_numbers = itertools.count(1)


@pytest.fixture
def lost(cluster):
    """A topic and a group that has given up three orders of it."""
    return make_lost(cluster, 3)


def make_lost(cluster, count, tags=("a", "b")):
    topic = f"orders-{next(_numbers)}"
    group = f"billing-{topic}"
    cluster.create_topic(topic, 2)
    with Producer(cluster.name_server) as producer:
        for n in range(count):
            own = {"n": str(n)}
            producer.send(
                Message(topic, f"{n}", keys=f"order-{n}", tags=tags[n % 2], properties=own)
            )
    give_up(cluster.name_server, topic, group, count)
    return topic, group


def copies_of(cluster, topic):
    """How often each body is in a topic."""
    with Reader(cluster.name_server) as reader:
        return Counter(message.text for message in reader.read(topic))


def test_the_list_tells_what_was_given_up_and_why(rocketwire, cluster, lost):
    topic, group = lost
    done = rocketwire("dlq", "list", group, cluster=cluster)
    assert done.code == 0
    assert f"3 dead letters of {group}" in done.out
    for n in range(3):
        assert f"LookupError: no such order: {n}" in done.out
        assert f"order-{n}" in done.out
    lines = rocketwire("dlq", "list", group, "--json", cluster=cluster).lines
    assert {line["original_topic"] for line in lines} == {topic}
    assert {line["attempts"] for line in lines} == {1}
    assert {line["message"]["body"] for line in lines} == {"0", "1", "2"}
    assert all(line["original"]["offset"] >= 0 for line in lines)


def test_filters_narrow_the_list(rocketwire, cluster, lost):
    topic, group = lost

    def bodies(*options):
        lines = rocketwire("dlq", "list", group, "--json", *options, cluster=cluster).lines
        return sorted(line["message"]["body"] for line in lines)

    some = rocketwire("dlq", "list", group, "--json", cluster=cluster).lines[0]
    assert bodies("--key", "order-1") == ["1"]
    assert bodies("--tag", "a") == ["0", "2"]
    assert bodies("--error", "order: 2") == ["2"]
    assert bodies("--topic", topic) == ["0", "1", "2"]
    assert bodies("--topic", "other") == []
    assert bodies("--id", some["original_id"]) == [some["message"]["body"]]
    assert bodies("--id", some["dead_letter_id"]) == [some["message"]["body"]]
    assert bodies("--since", "1h") == ["0", "1", "2"]
    assert bodies("--before", "1h") == []
    assert len(bodies("--limit", "2")) == 2
    done = rocketwire("dlq", "list", group, "--key", "none", cluster=cluster)
    assert (done.code, done.out) == (0, "")
    assert f"no dead letters of {group} like that" in done.err


def test_one_is_shown_with_all_that_is_known(rocketwire, cluster, lost):
    _, group = lost
    one = rocketwire("dlq", "list", group, "--key", "order-1", "--json", cluster=cluster).json
    shown = rocketwire("dlq", "show", group, one["original_id"], cluster=cluster)
    for words in ("LookupError: no such order: 1", "order-1", "property n", one["original_id"]):
        assert words in shown.out
    assert (
        rocketwire("dlq", "show", group, one["original_id"], "--json", cluster=cluster).json == one
    )
    by_key = rocketwire("dlq", "show", group, "order-1", "--json", cluster=cluster)
    assert by_key.json == one
    missing = rocketwire("dlq", "show", group, "7F" * 16, cluster=cluster)
    assert missing.code == 1
    assert f"rocketwire dlq list {group}" in missing.err


def test_a_dry_run_sends_nothing_and_a_repeated_run_sends_nothing_twice(rocketwire, cluster, lost):
    _, group = lost
    planned = rocketwire("dlq", "redrive", group, "--dry-run", "--json", cluster=cluster)
    assert [line["result"] for line in planned.lines] == ["would be sent"] * 3
    assert copies_of(cluster, f"%RETRY%{group}") == {}
    one = rocketwire("dlq", "redrive", group, "--key", "order-1", cluster=cluster)
    assert one.code == 0
    assert f"sent %RETRY%{group}" in one.out
    assert f"{group}: 1 sent" in one.err
    told = rocketwire("dlq", "redrive", group, "--dry-run", "--json", cluster=cluster).lines
    assert Counter(line["result"] for line in told) == {"would be sent": 2, "sent before": 1}
    rest = rocketwire("dlq", "redrive", group, "--rate", "1000", "--json", cluster=cluster)
    assert Counter(line["result"] for line in rest.lines) == {"sent": 2, "sent before": 1}
    again = rocketwire("dlq", "redrive", group, "--json", cluster=cluster)
    assert [line["result"] for line in again.lines] == ["sent before"] * 3
    assert copies_of(cluster, f"%RETRY%{group}") == {"0": 1, "1": 1, "2": 1}


def test_a_redrive_to_a_topic_that_does_not_exist_fails_message_by_message(
    rocketwire, cluster, lost
):
    _, group = lost
    done = rocketwire("dlq", "redrive", group, "--to", "nowhere", "--json", cluster=cluster)
    assert done.code == 1
    assert [line["result"] for line in done.lines] == ["failed"] * 3
    assert "topic create nowhere" in done.lines[0]["error"]
    planned = rocketwire("dlq", "redrive", group, "--to", "nowhere", "--dry-run", cluster=cluster)
    assert (planned.code, "3 failed" in planned.err) == (1, True)


def test_a_dead_broker_fails_its_messages_and_a_repeat_sends_the_rest(rocketwire, cluster):
    _, group = make_lost(cluster, 6)
    broker = cluster.broker("broker-b")
    broker.read_only()
    try:
        done = rocketwire("dlq", "redrive", group, "--json", cluster=cluster)
    finally:
        broker.heal()
    results = Counter(line["result"] for line in done.lines)
    assert done.code == 1
    assert results["failed"] > 0
    assert results["sent"] > 0
    assert rocketwire("dlq", "redrive", group, "--json", cluster=cluster).code == 0
    assert set(copies_of(cluster, f"%RETRY%{group}").values()) == {1}


def test_a_purge_hides_them_and_deletes_nothing(rocketwire, cluster, lost):
    _, group = lost
    planned = rocketwire("dlq", "purge", group, "--dry-run", "--json", cluster=cluster).json
    assert (planned["purged"], planned["dry_run"]) == (3, True)
    early = rocketwire("dlq", "purge", group, "--before", "1h", "--json", cluster=cluster).json
    assert early["purged"] == 0
    assert len(rocketwire("dlq", "list", group, "--json", cluster=cluster).lines) == 3
    done = rocketwire("dlq", "purge", group, cluster=cluster)
    assert f"{group}: 3 dead letters purged" in done.out
    assert rocketwire("dlq", "list", group, "--json", cluster=cluster).lines == []
    assert len(rocketwire("dlq", "list", group, "--purged", "--json", cluster=cluster).lines) == 3


def test_a_group_that_is_reset_keeps_its_purged_letters_behind(rocketwire, cluster, lost):
    _, group = lost
    rocketwire("dlq", "purge", group, cluster=cluster)
    moved = rocketwire("group", "reset", group, "--to", "earliest", "--yes", cluster=cluster)
    assert (moved.code, "%DLQ%" in moved.out) == (0, False)
    assert rocketwire("dlq", "list", group, "--json", cluster=cluster).lines == []


def test_without_a_command_the_help_says_it_all(rocketwire):
    done = rocketwire("dlq")
    assert (done.code, "redrive" in done.out + done.err) == (2, True)
    assert "rocketwire:" not in done.err


@pytest.mark.parametrize("command", ["list", "redrive", "purge"])
def test_an_unknown_group_is_told(rocketwire, cluster, command):
    done = rocketwire("dlq", command, "nobody", cluster=cluster)
    assert done.code == 1
    assert "no broker knows the group nobody" in done.err
    wrong = rocketwire("dlq", command, "no body", cluster=cluster)
    assert wrong.code == 2
    bad = rocketwire("dlq", "list", "nobody", "--since", "yesterday", cluster=cluster)
    assert (bad.code, "'yesterday' is no position" in bad.err) == (2, True)


def test_a_redrive_that_is_killed_again_and_again_sends_each_once(cluster, tmp_path, rocketwire):
    _, group = make_lost(cluster, 60)
    arguments = ("dlq", "redrive", group, "--name-server", cluster.name_server)
    for lines in (0, 1, 20, 40):
        kill_after_lines(lines, *arguments, cwd=tmp_path)
    done = rocketwire(*arguments, "--json", cluster=cluster)
    assert done.code == 0
    assert len(done.lines) == 60
    copies = copies_of(cluster, f"%RETRY%{group}")
    assert copies == {str(n): 1 for n in range(60)}
