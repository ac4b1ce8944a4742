from pathlib import Path

from rocketwire import Reader
from rocketwire.cli import bench
from rocketwire.cli.bench_shapes import Shape, maker

ROOT = Path(__file__).parents[2]


def test_the_source_tree_is_found_beside_the_package_and_from_within(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert bench.find_source_tree() == ROOT
    monkeypatch.chdir(ROOT / "tests")
    assert bench.find_source_tree() == ROOT


def test_without_the_source_it_says_where_to_get_it(rocketwire, monkeypatch, tmp_path):
    class Elsewhere:
        __file__ = str(tmp_path / "site-packages" / "rocketwire" / "__init__.py")

    monkeypatch.setattr(bench, "rocketwire", Elsewhere)
    done = rocketwire("bench")
    assert done.code == 1
    assert "make bench" in done.err


def test_a_wrong_part_is_refused_by_the_programs_themselves(rocketwire):
    done = rocketwire("bench", "--only", "nothing", "--results", "x.json")
    assert done.code == 2
    assert "choose from" in done.err


def test_speed_on_the_user_s_own_cluster(rocketwire, cluster):
    words = ("bench", "--topic", "speed-test", "--count", "20", "--rounds", "2", "--size", "50")
    done = rocketwire(*words, "--json", cluster=cluster)
    assert done.code == 0, done.err
    found = {one["path"]: one for one in done.json}
    assert list(found) == ["send", "submit", "submit, auto_batch", "send of 100", "send_many"]
    assert found["send"]["times_blocking"] == 1.0
    assert found["send"]["p99_ms"] >= found["send"]["p50_ms"] > 0
    assert found["submit"]["p50_ms"] is None
    # Two first messages, and in each round 20 one by one and 200 in each other way.
    assert len(cluster.journal.sends(topic="speed-test")) > 2 + 2 * 20
    with Reader(cluster.name_server) as reader:
        stored = list(reader.read("speed-test"))
    assert {message.tags for message in stored} == {"pay"}
    assert len({message.body for message in stored}) >= 200
    shown = rocketwire(*words, "--shape", "rich", cluster=cluster)
    assert shown.code == 0
    assert "messages/s" in shown.out


def test_speed_on_a_cluster_that_is_not_there_is_one_line(rocketwire):
    done = rocketwire("bench", "--topic", "t", "--name-server", "127.0.0.1:1", "--rounds", "1")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert "127.0.0.1:1" in done.err


def test_a_shape_says_what_messages_have():
    body, key, rich = (maker(shape, "t", 20)(7) for shape in Shape)
    assert (body.tags, body.keys, dict(body.properties)) == (None, None, {})
    assert (key.tags, key.keys, dict(key.properties)) == ("pay", "order-7", {})
    assert rich.properties["amount"] == "7"
    make = maker(Shape.BODY, "t", 20)
    assert make(7).body != make(8).body
