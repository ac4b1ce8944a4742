"""The README's table of releases is what the recorded run of the tests says."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load_tool():
    path = ROOT / "tools" / "compatibility.py"
    spec = importlib.util.spec_from_file_location("compatibility", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["compatibility"] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()

REPORT = """<testsuites><testsuite>
<testcase classname="tests.conformance.test_sends" name="test_every_form_of_sending[blocking-4.9.7-x]"/>
<testcase classname="tests.conformance.test_sends" name="test_every_form_of_sending[blocking-embedded-x]"/>
<testcase classname="tests.conformance.test_sends" name="test_x[5.3.3]"><skipped/></testcase>
<testcase classname="tests.unit.core.test_send" name="test_pure"/>
</testsuite></testsuites>"""


def test_the_readme_shows_the_record():
    record = json.loads(tool.RECORD.read_text())
    assert tool.shown(tool.README.read_text()) == tool.render(record), "run tools/compatibility.py"


def test_the_record_has_only_areas_that_are_known_and_every_release():
    passed = json.loads(tool.RECORD.read_text())["passed"]
    assert set(passed) <= {area for area, _ in tool.AREAS}
    for release in tool.COLUMNS:
        assert sum(row.get(release, 0) for row in passed.values()) > 0


def test_every_area_has_tests_and_every_test_of_them_is_in_one():
    areas = set()
    for folder in ("conformance", "interop", "real", "spark"):
        for path in (ROOT / "tests" / folder).glob("test_*.py"):
            for test in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
                areas.add(tool.area_of(f"{folder}.{path.stem}::{test}"))
    assert areas == {area for area, _ in tool.AREAS}


@pytest.mark.parametrize(
    ("name", "area", "release"),
    [
        ("conformance.test_sends::test_bodies_of_every_size[asyncio-5.3.3-1]", "sends, every form", "5.3.3"),
        ("conformance.test_sends::test_every_form_of_sending[blocking-4.9.7-batch]", "batches", "4.9.7"),
        ("conformance.test_life::test_one_producer_serves_many_threads", "sends, every form", "embedded"),
        ("conformance.test_consumers::test_tags_are_checked[4.9.7-asyncio]", "consumer groups", "4.9.7"),
        ("conformance.test_control::test_a_pause_holds[embedded-asyncio]", "consumer groups", "embedded"),
        ("conformance.test_receiving::test_tags_are_filtered[5.3.3]", "receive and acknowledge", "5.3.3"),
        ("conformance.test_transactions::test_a_namespace_is_not_shown[4.9.7]", "transactions", "4.9.7"),
        ("real.test_newest::test_transactions_requests_and_recalls[5.5.0]", "transactions", "5.5.0"),
        ("real.test_talking_with_java::test_java_asks_and_our_handler_replies[5.3.3]", "request and reply", "5.3.3"),
        ("conformance.test_recall::test_other_messages_have_no_handle[5.3.3]", "recalling timed messages", "5.3.3"),
        ("real.test_rights::test_receiving_names_what_is_missing[5.3.3]", "administration and rights", "5.3.3"),
        ("real.test_dead_letters::test_a_signed_group_tells[4.9.7]", "dead letters and replay", "4.9.7"),
        ("real.test_through_a_proxy::test_a_group_shares[5.5.0]", "through a proxy of 5.x", "5.5.0"),
        ("real.test_controller::test_a_slave[5.5.0-asyncio]", "replicas: masters that die, a controller", "5.5.0"),
        ("conformance.test_routes::test_added_queues_are_used[embedded]", "changing routes", "embedded"),
        ("real.test_security::test_mutual_tls_works[4.9.7-blocking]", "TLS", "4.9.7"),
        ("real.test_newest::test_both_headers[asyncio-5.5.0]", "JSON and binary headers", "5.5.0"),
        ("real.test_faults::test_nothing_is_lost[flap-batch]", "broken brokers", "5.3.3"),
        ("real.test_dead_letters::test_the_newest_release", "dead letters and replay", "5.5.0"),
        ("real.test_receiving::test_a_proxy_is_told[latest]", "receive and acknowledge", "5.3.3"),
        ("conformance.test_host_names::test_a_name_hangs", "sends, every form", "embedded"),
        ("spark.test_batch::test_rows_go_there_and_back", "Spark source and pipelines", "embedded"),
        ("interop.test_sending::test_a[embedded-java-4.9.7]", "Java's and Go's clients", "embedded"),
    ],
)  # fmt: skip
def test_a_test_has_one_place(name, area, release):
    assert tool.place(name) == (area, release)


@pytest.mark.parametrize(
    "name",
    [
        "interop.test_sending::test_a[5.3.3-java-5.3.3]",
        "real.test_harness::test_mqadmin_shows_the_cluster[4.9.7]",
        "real.test_security::test_a_closed_port_is_told_as_such[blocking]",
    ],
)
def test_what_says_nothing_of_us_has_none(name):
    assert tool.place(name) is None


def test_what_passed_is_counted_and_what_was_skipped_is_not(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert tool.count(tool.cases(report)) == {"sends, every form": {"4.9.7": 1, "embedded": 1}}


def test_nothing_is_recorded_of_a_run_that_failed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tool, "RECORD", tmp_path / "record.json")
    report = tmp_path / "report.xml"
    report.write_text(REPORT.replace("skipped", "failure"))
    assert tool.main([str(report)]) == 1
    assert "test_x[5.3.3] failed: nothing is recorded" in capsys.readouterr().err
    assert not tool.RECORD.exists()


def test_nothing_is_recorded_of_a_run_without_some_area_or_release(tmp_path, capsys, monkeypatch):
    # A machine without Java runs a part of the tests only, and all of that may pass.
    monkeypatch.setattr(tool, "RECORD", tmp_path / "record.json")
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert tool.main([str(report)]) == 1
    told = capsys.readouterr().err
    assert "nothing passed of Java's and Go's clients, " in told
    assert "5.3.3, 5.5.0: nothing is recorded" in told
    assert "4.9.7" not in told
    assert not tool.RECORD.exists()


def test_an_area_that_is_younger_than_the_numbers_is_not_shown():
    shown = tool.render({"taken": "2026-11-15", "passed": {"TLS": {"4.9.7": 2}}})
    assert shown.splitlines()[2:] == ["| TLS | 2 |  |  |  |"]


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="no place for the table"):
        tool.put_into("# Readme", "table")
    page = f"a\n{tool.BEGIN}\nold\n{tool.END}\nb"
    assert tool.put_into(page, "new") == f"a\n{tool.BEGIN}\nnew\n{tool.END}\nb"
