import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from rocketwire.cli.demo import brokers
from rocketwire.cli.demo.load import Sample
from rocketwire.cli.demo.orders import order_bodies
from rocketwire.cli.demo.page import make_page
from rocketwire.cli.demo.recording import latency_points, rate_points
from rocketwire.cli.demo.story import SCENES, fault_periods
from rocketwire.embedded import EmbeddedCluster

SOURCES = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module")
def played():
    """The broker part, in short, on a console that is no terminal; and what it printed."""
    text = io.StringIO()
    with EmbeddedCluster(3, order_routes=True) as cluster:
        recording = brokers.play(
            cluster, Console(file=text, width=200), threading.Event(), seconds=9.0, seed=1
        )
    return recording, text.getvalue()


def test_nothing_acknowledged_is_missing_and_every_repeat_was_told(played):
    recording, _ = played
    assert [check.statement for check in recording.checks if not check.holds] == []
    assert len(recording.checks) == 6


def test_every_scene_is_told_with_the_command_that_does_the_same(played):
    _, text = played
    for number, scene in enumerate(SCENES, start=1):
        assert f"{number}. {scene.title}" in text
        assert f"$ {scene.command}" in text


def test_faults_are_shaded_when_they_were_there(played):
    recording, _ = played
    names = [(period.broker, period.name) for period in recording.faults]
    assert names == [("broker-b", "slow, +300 ms"), ("broker-c", "frozen"), ("broker-c", "killed")]
    assert all(0 < period.begin < period.end < recording.seconds for period in recording.faults)


class _Balance(HTMLParser):
    """Knows whether every tag that was opened is closed, and which addresses a page asks for."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in {"src", "href"}]
        if tag not in {"meta", "br", "link", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_network(played):
    recording, _ = played
    page = make_page(recording, recording.checks, ())
    balance = _Balance()
    balance.feed(page)
    assert balance.open == []
    assert balance.addresses == []
    assert page.count("<svg") == 8, "each for wide and for narrow screens"
    assert "prefers-color-scheme: dark" in page
    assert re.search(r"url\(|@import", page) is None


def test_a_send_that_hangs_is_as_wide_as_it_was_long():
    points = dict(latency_points([Sample(3.0, 2.0, "", ok=False)], 4.0))
    assert points[0.125] is None
    assert points[1.125] == points[2.125] == 2.0


def test_rates_count_only_what_was_acknowledged():
    samples = [Sample(0.1, 0.01, "a", ok=True), Sample(0.2, 0.01, "a", ok=False)]
    assert rate_points(samples, 1.0) == [(0.25, 2.0), (0.75, 0.0)]


def test_faults_that_nobody_ended_end_with_the_story():
    periods = fault_periods([0.0, 1.0, 2.0], 5.0)
    assert [(p.broker, p.begin, p.end) for p in periods] == [
        ("broker-b", 1.0, 5.0),
        ("broker-c", 2.0, 5.0),
    ]


def test_orders_never_repeat_and_come_the_same_from_one_seed():
    def first(seed):
        stream = order_bodies("x", seed)
        return [next(stream) for _ in range(50)]

    assert len({number for number, _, _ in first(1)}) == 50
    assert first(1) == first(1)
    assert first(1) != first(2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_folder_no_page_and_says_so(tmp_path, number):
    temporary, here = tmp_path / "tmp", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketwire", "demo", "--no-spark"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=here,
        env=os.environ | {"PYTHONPATH": SOURCES, "TMPDIR": str(temporary)},
    )
    while "all is well" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "stopped; nothing was left behind\n"
    assert list(temporary.iterdir()) == []
    assert list(here.iterdir()) == []


def test_the_whole_command_writes_the_page_and_tells_where(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rocketwire",
            "demo",
            "--no-spark",
            "--seconds",
            "6",
            "--json",
            "--picture",
            "front.svg",
        ],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCES},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["held"]
    assert Path(told["report"]) == tmp_path / "demo-report.html"
    assert "<svg" in Path(told["report"]).read_text()
    for name in ("front.svg", "front-narrow.svg"):
        assert "prefers-color-scheme: dark" in (tmp_path / name).read_text()


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_whole_story_with_spark_holds(tmp_path):
    pytest.importorskip("pyspark")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "rocketwire", "demo", "--seconds", "8", "--json"],
        capture_output=True,
        text=True,
        timeout=880,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCES, "TMPDIR": str(temporary)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    statements = [check["statement"] for check in told["checks"] if check["holds"]]
    assert "Spark: after deduplicate, none is there twice" in statements
    assert "Spark: the archive is whole" in statements
    page = (tmp_path / "demo-report.html").read_text()
    assert 'href="demo-report-deliveries.html"' in page
    assert (tmp_path / "demo-report-deliveries.html").is_file()
    assert not list(temporary.glob("rocketwire-*"))


def test_kept_the_cluster_goes_on_and_can_be_broken_until_a_signal(tmp_path, rocketwire):
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketwire", "demo", "--no-spark", "--seconds", "6", "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )
    line = ""
    while "RocketMQ, embedded: name server " not in line:
        line = process.stdout.readline()
        assert line, process.stderr.read()
    server = line.split("name server ")[1].split(",")[0]
    assert rocketwire("fault", "broker-a", "busy", "-n", server).out == "broker-a: busy\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert (tmp_path / "demo-report.html").is_file()
