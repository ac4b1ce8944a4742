"""Two commits side by side: their pairs, their verdicts, and the processes that run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.acker import acker
from bench.compare import COUNTS, ROOT, Pairs, checkout, line, main
from bench.consuming import look
from bench.pull_server import pull_server
from bench.samples import Sample
from bench.shapes import BODY, RICH, SHAPES, body, construction, maker, table
from bench.worker import LIST, PATHS, READING, SENDING, Task, run, working

from bench import reference
from rocketwire import Reader


def samples(*cpu: float, p50: float | None = None) -> list[Sample]:
    return [Sample(1000, 0.1, each, p50) for each in cpu]


@pytest.mark.parametrize(
    ("allowed", "new", "lost"),
    [
        (0.05, (1.04, 1.04, 1.04, 1.04), []),
        (0.05, (1.07, 1.06, 1.08, 1.06), ["CPU"]),
        (0.10, (1.07, 1.06, 1.08, 1.06), []),
        (0.05, (0.5, 0.6, 1.5, 1.6), []),  # the pairs contradict one another
        (0.05, (1.5, 1.5), []),  # two prove nothing
    ],
)
def test_a_loss_is_told_beyond_what_is_allowed(
    allowed: float, new: tuple[float, ...], lost: list[str]
) -> None:
    pairs = Pairs(allowed, samples(*[1.0] * len(new)), samples(*new))
    assert pairs.lost() == lost
    assert ("LOST CPU" in line(("send", "key", 200), pairs)) == bool(lost)


def test_ratios_are_those_of_pairs_and_not_of_medians() -> None:
    pairs = Pairs(0.05, samples(1, 2, 3), samples(2, 4, 6))
    assert pairs.losses(lambda sample: sample.cpu) == [1.0, 1.0, 1.0]
    assert pairs.lost() == ["CPU"]


def test_a_blocking_send_is_judged_by_its_median_latency() -> None:
    pairs = Pairs(0.05, samples(1, 1, 1, p50=1e-4), samples(1, 1, 1, p50=2e-4))
    assert pairs.lost() == ["rate"]
    assert "0.50  LOST rate (allowed 5%)" in line(("send", "key", 200), pairs)


def test_what_nearly_lost_is_run_again_and_what_did_not_is_not() -> None:
    assert Pairs(0.05, samples(1, 1, 1, 1), samples(1.01, 1.04, 1.04, 1.2)).is_doubtful()
    assert not Pairs(0.05, samples(1, 1, 1, 1), samples(1.01, 1.01, 1.02, 1.2)).is_doubtful()
    assert not Pairs(0.05).is_doubtful()


def test_a_path_that_fails_is_told() -> None:
    pairs = Pairs(0.05, error="new: AttributeError: no submit")
    assert "FAILED: new: AttributeError" in line(("submit", "key", 200), pairs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", SENDING)
def test_every_path_sends_every_shape(path: str, shape: str, server: str) -> None:
    found = run(Task(path, shape, 1024, server))
    assert found.messages == (1000 if "500" in path else 1024)
    assert found.cpu > 0
    assert 0 < found.pace < 100


@pytest.mark.parametrize("path", READING)
def test_every_path_reads_messages_with_all_their_parts(path: str, pulls: str) -> None:
    assert run(Task(path, "rich", 1024, pulls, is_alone=True)).messages == 1024


def test_stored_messages_are_those_that_were_sent(pulls: str) -> None:
    sent = maker(RICH, "bench", 200)(0)
    with Reader(pulls) as reader:
        found = next(iter(reader.read("bench")))
    assert (found.body, found.tags, found.keys) == (sent.body, "pay", "order-000000")
    assert dict(found.properties) == {
        "region": "eu-west",
        "amount": "000000",
        "trace": "0000000000000000",
    }
    assert look(found) == ("order-000000", "pay", sent.body, "000000")


@pytest.fixture(scope="module")
def pulls():
    with pull_server(5000, 32, queues=2, shape="rich") as running:
        yield running.name_server


@pytest.fixture(scope="module")
def server():
    with acker(1, 8) as running:
        yield running.name_server


def test_every_path_has_a_number_of_messages() -> None:
    assert list(COUNTS) == list(PATHS)
    assert all(count >= 2 * LIST for count in COUNTS.values())


def test_no_body_is_like_another_and_all_runs_have_the_same() -> None:
    bodies = {body(number, 20) for number in range(10_000)}
    assert len(bodies) == 10_000
    make, again = maker(RICH, "t", 20), maker(RICH, "t", 20)
    assert make(7) == again(7)
    assert make(7) != make(8)


def test_messages_and_rows_are_the_same() -> None:
    sharded = SHAPES["sharded"]
    message, row = maker(sharded, "t", 20)(5), table(sharded, 20, 6).to_pylist()[5]
    assert (message.body, message.tags, message.keys) == (row["body"], row["tags"], row["keys"])
    assert dict(message.properties) == dict(row["properties"])
    assert message.sharding_key == row["shardingKey"]
    assert table(BODY, 20, 2).column_names == ["body"]


def test_making_is_timed_apart() -> None:
    assert construction(RICH, "t", 200, 500) > 0
    sample = Sample(100, 1.0, cpu=0.004, making=0.001, pace=2.0)
    assert (sample.cost, sample.sending_cost) == pytest.approx((20e-6, 15e-6))


def test_the_reference_loop_is_what_it_always_was() -> None:
    assert reference.loop(1000) == 283_890


def test_a_worker_runs_the_package_of_its_checkout(tmp_path: Path) -> None:
    package = tmp_path / "src" / "rocketwire"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def __getattr__(name): return None\n")
    with (
        working("old", tmp_path) as worker,
        pytest.raises(RuntimeError, match="old: TypeError: 'NoneType'"),
    ):
        worker.run(Task("Message(...)", "key", 10, ""))
    (package / "__init__.py").unlink()
    package.rmdir()
    with pytest.raises(RuntimeError, match="not the package in"), working("old", tmp_path):
        pass


def test_a_commit_is_unpacked_and_anything_else_is_refused(tmp_path: Path) -> None:
    with checkout(str(ROOT)) as folder:
        assert folder == ROOT
    with pytest.raises(SystemExit, match="neither a folder"), checkout("no-such-commit"):
        pass


def test_the_command_compares_this_tree_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "send of 500", "--shapes", "key", "--bodies", "20,2000"]
    main([str(ROOT), *words, "--rounds", "1", "--again", "0", "--scale", "0.1"])
    said = capsys.readouterr().out
    assert "bodies of 20 B" in said
    assert "bodies of 2000 B" in said
    assert said.count("send of 500") == 2
    assert "new / old" in said
    assert "times as slow as usual" in said


@pytest.mark.parametrize(
    "words", [["--shapes", "odd"], ["--only", "odd"], ["--bodies", "x"], ["--rounds", "0"]]
)
def test_wrong_arguments_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["HEAD", *words])
    assert "--" in capsys.readouterr().err
