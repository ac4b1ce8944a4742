"""The tables behind a broker: topics, offsets, groups, clients, locks, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketwire.embedded.consumers import LOCK_SECONDS, QueueLocks, tag_codes
from rocketwire.embedded.journal import Journal
from rocketwire.embedded.json_file import DataVersion, JsonFile
from rocketwire.embedded.offsets import GroupTable, OffsetTable
from rocketwire.embedded.options import parse_delays
from rocketwire.embedded.topics import TopicConfig, TopicTable, name_problem
from rocketwire.errors import ConfigError, RemoteProtocolError
from rocketwire.wire.java_hash import java_string_hash


def table(tmp_path: Path, *, auto_create: bool = True) -> TopicTable:
    return TopicTable(
        tmp_path / "topics.json",
        broker="b",
        cluster="c",
        default_queues=8,
        auto_create=auto_create,
    )


def test_topics_are_kept_in_apaches_shape(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.put(TopicConfig("mine", 3, 2, 6, order=True, attributes={"k": "v"}))
    data = json.loads((tmp_path / "topics.json").read_text())
    assert data["topicConfigTable"]["mine"] == {
        "topicName": "mine", "readQueueNums": 3, "writeQueueNums": 2, "perm": 6, "order": True,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {"k": "v"},
    }  # fmt: skip
    assert set(data["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    again = table(tmp_path)
    assert again.get("mine") == topics.get("mine")
    assert again.version.counter == topics.version.counter


def test_a_file_that_fastjson_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        '{"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":5,'
        '"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":5}},}'
    )
    found = table(tmp_path).get("T")
    assert found is not None
    assert found.write_queues == 5
    (tmp_path / "o.json").write_text('{"offsetTable":{"T@g":{0:17,1:4}}}')
    assert OffsetTable(tmp_path / "o.json").queues("g", "T") == {0: 17, 1: 4}


def test_every_change_has_a_version_of_its_own(tmp_path: Path) -> None:
    topics = table(tmp_path)
    seen = set()
    for number in range(5):
        topics.put(TopicConfig("t", number + 1, number + 1))
        seen.add((topics.version.counter, topics.version.timestamp))
    assert len(seen) == 5
    before = topics.version.counter
    topics.put(TopicConfig("t", 5, 5))
    assert topics.version.counter == before


def test_templates_pass_on_what_they_may(tmp_path: Path) -> None:
    topics = table(tmp_path)
    made = topics.make_from_default("new", "TBW102", 4)
    assert made is not None
    assert (made.read_queues, made.write_queues, made.permission) == (4, 4, 6)
    assert topics.make_from_default("new2", "new", 4) is None
    assert topics.make_from_default("new3", "missing", 4) is None
    assert table(tmp_path, auto_create=False).get("TBW102") is None


@pytest.mark.parametrize("name", ["", " ", "a b", "ü", "a/b", "x" * 128, "%RETRY%" + "x" * 249])
def test_bad_names(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["a", "x" * 127, "%RETRY%" + "x" * 200, "A-b_c|d%e"])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


def test_a_damaged_file_falls_back_to_the_one_before(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "x.json")
    assert file.load() is None
    file.save({"n": 1})
    file.save({"n": 2})
    assert file.load() == {"n": 2}
    (tmp_path / "x.json").write_bytes(b"\0\0{broken")
    assert file.load() == {"n": 1}
    (tmp_path / "x.json").unlink()
    assert file.load() == {"n": 1}


def test_odd_files_do_not_keep_a_broker_from_starting(tmp_path: Path) -> None:
    for text in ("[]", "7", '{"topicConfigTable":[],"offsetTable":7}', '{"offsetTable":{"a":1}}'):
        for name in ("topics.json", "o.json", "g.json"):
            (tmp_path / name).write_text(text)
        assert table(tmp_path).get("TBW102") is not None
        assert OffsetTable(tmp_path / "o.json").topics_of("g") == []
        assert list(GroupTable(tmp_path / "g.json")) == []
    assert DataVersion("nonsense").counter == 0


def test_offsets_are_saved_and_forgotten(tmp_path: Path) -> None:
    offsets = OffsetTable(tmp_path / "o.json")
    offsets.put("g", "t", 1, 5)
    offsets.put("h", "t", 0, 6)
    offsets.save()
    again = OffsetTable(tmp_path / "o.json")
    assert (again.get("g", "t", 1), again.get("g", "t", 0)) == (5, None)
    assert sorted(again.groups_of("t")) == ["g", "h"]
    again.forget(group="g")
    assert again.groups_of("t") == ["h"]
    again.forget(topic="t")
    assert again.groups_of("t") == []


def test_groups_get_apaches_defaults(tmp_path: Path) -> None:
    groups = GroupTable(tmp_path / "g.json")
    assert groups.find("new") is None
    assert groups.number("new", "retryMaxTimes") == 16
    assert groups.find("new") is not None
    groups.put("new", {"retryMaxTimes": 2})
    assert GroupTable(tmp_path / "g.json").number("new", "retryMaxTimes") == 2


def test_a_lock_expires_when_it_is_not_renewed() -> None:
    locks, queue = QueueLocks(), ("t", 0)
    assert locks.lock("g", "one", queue, 0.0)
    assert not locks.lock("g", "two", queue, LOCK_SECONDS)
    assert locks.any_held("g", LOCK_SECONDS)
    assert not locks.any_held("g", LOCK_SECONDS + 1)
    assert locks.lock("g", "two", queue, LOCK_SECONDS + 0.1)
    assert not locks.lock("g", "one", queue, LOCK_SECONDS + 0.2)
    assert locks.lock("other", "one", queue, LOCK_SECONDS + 0.2)


def test_tag_expressions() -> None:
    assert tag_codes("*") is None
    assert tag_codes("") is None
    assert tag_codes(None) is None
    assert tag_codes(" a|| b ||") == {java_string_hash("a"), java_string_hash("b")}
    with pytest.raises(RemoteProtocolError, match="names no tag"):
        tag_codes("||")


def test_delays_in_apaches_notation() -> None:
    assert parse_delays("1s 0.5s 2m 1h 1d") == (1000, 500, 120_000, 3_600_000, 86_400_000)
    for wrong in ("", "5", "x1s", "1w"):
        with pytest.raises(ConfigError, match="delay_levels"):
            parse_delays(wrong)


def test_waiting_for_the_journal_gives_up_in_time() -> None:
    assert not Journal().wait_for(bool, timeout=0.01)
