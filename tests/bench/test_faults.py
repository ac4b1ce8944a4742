"""The contest of clients on a broken cluster: its judgement, its file and its tables."""

import json

import pytest
from bench.fault_phases import MODES, Return, Send, Verdict, checks, judge
from bench.fault_results import BEGIN, END, FAULT_WORDS, Run

from bench import fault_results, faults

GOOD = Verdict(rate_before=1000, rate_during=950, failures=0, longest_gap=0.4)


def sends(*moments: float, good: bool = True) -> list[Send]:
    return [Send(moment, 0.01, good) for moment in moments]


def missed(mode: str, verdict: Verdict, back: Return | None = None) -> list[str]:
    return [each.promise for each in checks(mode, verdict, back) if not each.held]


def run_of(client: str = "ours", fault: str = "blackhole", mode: str = "1", **how: object) -> Run:
    values = {"verdict": GOOD, "back": Return(1.5, 1.0), "date": "2026-11-15", "seconds": 15.0}
    return Run(client, fault, mode, **(values | how))


def test_rates_are_of_good_sends_in_their_phase():
    told = [*sends(0.5, 1.5, 2.0, 2.5), *sends(3.1, 3.9), *sends(3.5, 6.0, good=False)]
    verdict = judge(told, warm=1.0, begun=3.0, ended=5.0)
    assert (verdict.rate_before, verdict.rate_during) == (1.5, 1.0)
    assert verdict.failures == 2
    assert verdict.longest_gap == pytest.approx(1.1)
    assert verdict.kept == pytest.approx(2 / 3)


def test_phases_out_of_order_are_refused():
    with pytest.raises(ValueError, match="not in this order"):
        judge([], warm=3.0, begun=2.0, ended=5.0)


def test_promises_are_judged_by_the_way_of_sending():
    slower = Verdict(rate_before=1000, rate_during=850, failures=0, longest_gap=1.3)
    assert missed("1", GOOD) == []
    assert missed("4", slower) == ["kept >= 0.9"]
    assert missed("64", slower) == []
    hung = Verdict(rate_before=1000, rate_during=900, failures=2, longest_gap=1.31)
    assert missed("1", hung) == ["gap <= 1.3 s", "no failed send"]


@pytest.mark.parametrize(
    ("back", "promises"),
    [
        (Return(3.0, None), []),
        (Return(3.1, None), ["back <= 3.0 s"]),
        (Return(11.0, 10.0), []),
        (Return(12.5, 10.0), ["back <= 12.0 s"]),
        (Return(None, 1.0), ["back <= 3.0 s"]),
    ],
)
def test_the_return_may_take_as_long_as_the_isolation(back: Return, promises: list[str]):
    assert missed("1", GOOD, back) == promises


def test_results_survive_their_file(tmp_path):
    path = tmp_path / "results" / "faults.json"
    assert fault_results.read(path) == ({}, {})
    runs = [run_of(), run_of("java", back=None)]
    fault_results.write(path, {"Python": "3.11"}, runs)
    conditions, found = fault_results.read(path)
    assert conditions == {"Python": "3.11"}
    assert list(found.values()) == runs
    assert set(found) == {"ours/blackhole/1", "java/blackhole/1"}


def test_tables_tell_promises_conditions_and_the_command():
    slow = Verdict(rate_before=1000, rate_during=10, failures=3, longest_gap=3.0)
    runs = [run_of("java", verdict=slow, back=None), run_of(), run_of(mode="64", verdict=slow)]
    text = fault_results.tables({"Python": "3.11", "command": "python -m bench.faults"}, runs)
    assert (
        "| network swallows everything | 1 thread | 1000 | 950 | 0.95 | 0.40 s | 0 | 1.50 s | held |"
        in text
    )
    assert "**missed**: kept >= 0.8: 0.01; gap <= 1.3 s: 3.00 s; no failed send: 3" in text
    assert "| network swallows everything | Java | 1000 | 10 | 0.01 | 3.00 s | 3 |" in text
    assert text.endswith("Taken on 2026-11-15 with Python 3.11, by `python -m bench.faults`.")


def test_tables_are_put_between_the_marks_again_and_again(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for text in ("first", "second"):
        fault_results.put_into(page, text)
    assert page.read_text() == f"before\n{BEGIN}\n\nsecond\n\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match=r"no place for the table.*begin"):
        fault_results.put_into(page, "text")


def plan(*words: str, done: tuple[str, ...] = ()) -> list[str]:
    chosen = faults._arguments(list(words))
    return ["/".join(each) for each in faults._plan(chosen, dict.fromkeys(done))]


def test_scenarios_are_chosen_by_name_and_gone_on_with():
    assert len(plan("--all")) == 4 * len(FAULT_WORDS) * len(MODES)
    assert plan("--only", "ours/blackhole") == [f"ours/blackhole/{mode}" for mode in MODES]
    assert plan("--only", "go/flap/4,java/killed/1") == ["go/flap/4", "java/killed/1"]
    everything = plan()
    assert {name for name in everything if name.startswith("ours")} == {
        f"ours/{fault}/{mode}" for fault in FAULT_WORDS for mode in MODES
    }
    assert plan("--resume", done=tuple(everything[:-1])) == everything[-1:]


def test_the_documented_scenarios_take_twelve_minutes():
    phases = faults.Phases(1.5, 3.0, 15.0)
    assert 10 < faults._minutes(faults.documented(), phases) < 13


def test_an_unknown_name_is_told(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        faults._arguments(["--only", "ours/earthquake"])
    assert "earthquake: choose from" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        faults._arguments(["--quick", "--docs", "page.md"])
    assert "too short" in capsys.readouterr().err


def test_telling_results_again_runs_nothing(tmp_path, capsys: pytest.CaptureFixture[str]):
    path, page = tmp_path / "faults.json", tmp_path / "page.md"
    page.write_text(f"{BEGIN}{END}")
    runs = [run_of(*name.split("/")) for name in plan()]
    fault_results.write(path, {"Python": "3.11", "command": "it"}, runs)
    assert json.loads(path.read_text())["conditions"]["command"] == "it"
    assert faults.main(["--resume", "--json", str(path), "--docs", str(page)]) == 0
    assert "promises held in 21 of 21" in capsys.readouterr().out
    assert "| refuses connections | 4 threads |" in page.read_text()
