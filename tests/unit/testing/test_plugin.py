"""The plugin, as the tests of somebody's application would use it: in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = str(Path(__file__).parents[3] / "src")


@pytest.fixture
def run_tests(tmp_path):
    """Runs pytest on a file with the plugin loaded by name, in a folder with no settings."""

    def call(content: str, *arguments: str):
        (tmp_path / "test_application.py").write_text(content)
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path)]
        plugins = ["-p", "rocketwire.testing.plugin", "-p", "no:cacheprovider"]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        # Nothing but our plugin, whatever this environment has installed, ours included.
        inherited |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(
            [*command, *plugins, *arguments, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=tmp_path,
            env=inherited | {"PYTHONPATH": SOURCES, "TMPDIR": str(tmp_path)},
        )

    return call


SEND = """
from rocketwire import Message, Producer

def test_a_message_is_stored(rocketmq):
    with Producer(rocketmq.name_server) as producer:
        producer.send(Message(rocketmq.topic, b"paid", keys="order-42"))
    (stored,) = rocketmq.messages()
    assert (stored.body, stored.keys) == (b"paid", "order-42")

def test_another_test_has_a_topic_of_its_own(rocketmq):
    assert rocketmq.messages() == []
"""


def test_each_test_has_a_fresh_topic_on_a_running_cluster(run_tests):
    done = run_tests(SEND)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_workers_of_xdist_have_clusters_of_their_own(run_tests):
    done = run_tests(SEND, "-p", "xdist", "-n", "2")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_nothing_is_left_behind(run_tests, tmp_path):
    done = run_tests(
        SEND
        + """
import threading

def test_own_cluster(rocketmq_cluster):
    assert rocketmq_cluster.folder.is_dir()

def test_its_thread_is_gone():
    names = [t.name for t in threading.enumerate()]
    assert names.count("rocketwire-embedded") == 1  # the session's, which is still in use
"""
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert not list(tmp_path.glob("rocketwire-*"))


def test_a_marker_sets_up_the_cluster_to_break(run_tests):
    done = run_tests(
        """
import pytest
from rocketwire import Message, Producer

@pytest.mark.rocketmq(brokers=3)
def test_a_killed_broker_loses_nothing(rocketmq_cluster):
    rocketmq_cluster.create_topic("orders", 2)
    with Producer(rocketmq_cluster.name_server) as producer:
        producer.send(Message("orders", b"0"))
        rocketmq_cluster.broker("broker-b").kill()
        for number in range(1, 10):
            producer.send(Message("orders", str(number)))
    rocketmq_cluster.broker("broker-b").restart()
    stored = {message.body for message in rocketmq_cluster.messages("orders")}
    assert stored == {str(number).encode() for number in range(10)}
"""
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_what_a_test_broke_is_mended_for_the_next(run_tests):
    done = run_tests(
        """
def test_first(rocketmq):
    rocketmq.cluster.broker("broker-a").kill()
    rocketmq.cluster.broker("broker-b").hang()

def test_second(rocketmq):
    assert all(broker.running and not broker.faults for broker in rocketmq.cluster.brokers)
"""
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_wrong_option_fails_with_its_name_and_without_a_traceback(run_tests):
    done = run_tests(
        """
import pytest

@pytest.mark.rocketmq(flush="never")
def test_it(rocketmq_cluster):
    pass
"""
    )
    assert "flush is 'never': give 'async' or 'sync'" in done.stdout
    assert "Traceback" not in done.stdout


def test_more_topics_may_be_had(run_tests):
    done = run_tests(
        """
def test_it(rocketmq):
    other = rocketmq.new_topic(queues=1)
    assert other != rocketmq.topic
    assert rocketmq.messages(other) == []
"""
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_loading_the_plugin_imports_neither_the_cluster_nor_asyncio():
    code = (
        "import sys, pytest; before = set(sys.modules); import rocketwire.testing.plugin;"
        "new = set(sys.modules) - before;"
        "print([m for m in ('rocketwire.embedded', 'rocketwire.sync', 'asyncio', 'ssl')"
        " if m in new])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )
    assert done.stdout.strip() == "[]"
