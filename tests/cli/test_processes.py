"""``cluster``, ``broker`` and ``fault`` as real processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocketwire import Message, Producer, Reader
from rocketwire.cli import fault
from rocketwire.embedded import call

SOURCES = str(Path(__file__).parents[2] / "src")


class Running:
    """A rocketwire process that writes JSON lines."""

    def __init__(self, *arguments, cwd):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rocketwire", *arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": SOURCES, "XDG_CONFIG_HOME": str(cwd)},
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.started = json.loads(line)

    @property
    def name_server(self):
        return self.started["name_server"]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return [json.loads(line) for line in out.splitlines()], err


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as stack:

        def call(*arguments):
            running = Running(*arguments, cwd=tmp_path)
            stack.callback(running.process.wait, 30)
            stack.callback(running.process.kill)
            stack.callback(running.process.stdout.close)
            stack.callback(running.process.stderr.close)
            return running

        yield call


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cluster_process_ends_on_a_signal_and_leaves_no_folder(start, number):
    running = start("cluster", "--brokers", "2", "--port", "0")
    folder = Path(running.started["folder"])
    assert folder.is_dir()
    with Producer(running.name_server) as producer:
        producer.send(Message("orders", b"x"))
    lines, err = running.stop(number)
    assert running.process.returncode == 0
    told = [line for line in lines if line["event"] == "broker"]
    assert all({"stored", "topics", "index_lag"} <= set(line) for line in told)
    assert lines[-1] == {"event": "stopped"}
    assert err == ""
    assert not folder.exists()


def test_messages_in_a_given_folder_survive_a_kill_of_the_process(start, tmp_path):
    store = tmp_path / "store"
    first = start("cluster", "--port", "0", "--store", str(store))
    with Producer(first.name_server) as producer:
        producer.send(Message("orders", b"kept"))
    first.stop(signal.SIGKILL)
    second = start("cluster", "--port", "0", "--store", str(store))
    with Reader(second.name_server) as reader:
        assert [message.body for message in reader.read("orders")] == [b"kept"]


def test_faults_are_made_and_healed_from_another_process(start, rocketwire):
    running = start("cluster", "--brokers", "2", "--port", "0")
    at = ("-n", running.name_server)
    assert rocketwire("fault", "broker-b", *at).out == "broker-b: all is well\n"
    made = rocketwire("fault", "broker-b", "slow", "0.3", "--topic", "orders", *at, "--json")
    assert made.json == {"broker": "broker-b", "faults": ["slow 0.3 s topic=orders"]}
    assert rocketwire("fault", "broker-b", "heal", *at).out == "broker-b: all is well\n"
    assert rocketwire("fault", "broker-b", "kill", *at).out == "broker-b: killed\n"
    assert rocketwire("fault", "broker-b", "restart", *at).out == "broker-b: all is well\n"


@pytest.mark.parametrize(
    "words", [["hang"], ["refuse"], ["busy"], ["disk-full"], ["read-only"], ["clock", "60"]]
)
def test_every_whole_fault_is_shown_and_healed(rocketwire, start_shared, words):
    at = ("-n", start_shared)
    made = rocketwire("fault", "broker-a", *words, *at)
    assert made.code == 0
    assert "all is well" not in made.out
    assert rocketwire("fault", "broker-a", "heal", *at).out == "broker-a: all is well\n"


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory):
    running = Running("cluster", "--port", "0", cwd=tmp_path_factory.mktemp("shared"))
    yield running.name_server
    running.stop()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["broker-z", "hang"], "broker-z is no embedded broker"),
        (["broker-a", "explode"], "there is no fault 'explode'"),
        (["broker-a", "slow"], "slow needs a number of seconds"),
        (["broker-a", "hang", "3"], "hang takes no number"),
        (["broker-a", "kill", "--topic", "x"], "kill is for the whole broker"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_in_one_line(rocketwire, start_shared, words, told):
    done = rocketwire("fault", *words, "-n", start_shared)
    assert done.code in {1, 2}
    assert told in done.err
    assert len(done.err.splitlines()) == 1


def test_a_cluster_inside_a_program_can_be_broken_from_outside(rocketwire, cluster):
    done = rocketwire("fault", "broker-a", "busy", "--next", "5", cluster=cluster)
    assert done.out == "broker-a: busy next=5\n"
    assert len(cluster.broker("broker-a").faults) == 1
    cluster.broker("broker-a").heal()


def test_the_private_request_has_the_code_that_embedded_brokers_know():
    assert fault.CONTROL_CODE == call.CONTROL_CODE


def test_a_taken_port_is_one_line_with_the_remedy(start, rocketwire):
    running = start("cluster", "--port", "0")
    port = running.name_server.rpartition(":")[2]
    done = rocketwire("cluster", "--port", port)
    assert done.code == 2
    assert "give another port" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_broker_process_joins_is_killed_for_real_and_comes_back(start, rocketwire, tmp_path):
    cluster = start("cluster", "--port", "0")
    at = ("-n", cluster.name_server)
    arguments = ("broker", "--name", "broker-d", "--store", str(tmp_path / "d"), *at)
    broker = start(*arguments)
    rocketwire("topic", "create", "far", "--broker", "broker-d", "--queues", "1", *at)
    assert rocketwire("send", "far", "kept", *at).code == 0
    assert rocketwire("fault", "broker-d", "kill", *at).out == "broker-d: killed\n"
    assert broker.process.wait(30) == -signal.SIGKILL
    gone = rocketwire("fault", "broker-d", "heal", *at)
    assert gone.code == 1
    assert "broker-d" in gone.err
    start(*arguments)
    deadline = time.monotonic() + 30
    found = rocketwire("read", "far", "--raw", *at)
    while found.out != "kept\n" and time.monotonic() < deadline:
        found = rocketwire("read", "far", "--raw", *at)
    assert found.out == "kept\n"


def test_a_broker_without_a_name_server_is_one_line(rocketwire, tmp_path):
    done = rocketwire("broker", "--store", str(tmp_path / "d"), "-n", "127.0.0.1:1")
    assert done.code == 1
    assert "no name server answered" in done.err


def test_lines_for_people_tell_how_to_go_on(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketwire", "cluster", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCES},
    )
    first, second, third = (process.stdout.readline() for _ in range(3))
    process.terminate()
    rest, _ = process.communicate(timeout=30)
    assert first.startswith("RocketMQ, embedded: name server 127.0.0.1:")
    assert "rocketwire send orders hello -n 127.0.0.1:" in second
    assert "rocketwire fault broker-a slow 0.3" in third
    assert rest.splitlines()[-1] == "stopped"
