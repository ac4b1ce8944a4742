from pathlib import Path

from rocketwire.cli import bench

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
