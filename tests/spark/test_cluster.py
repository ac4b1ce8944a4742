"""On a real Spark cluster: nothing is lost when executors and a broker die in the middle."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.sync.reader import Reader

# Test modules are imported by path, so a neighbour is found by its folder.
sys.path.insert(0, str(Path(__file__).parent))
from standalone import environment

ROWS = 60_000


def start(log, home=None, **settings):
    around = environment() | ({"SPARK_HOME": home} if home else {})
    settings["pythonPath"] = around["PYTHONPATH"]
    script = str(Path(__file__).with_name("cluster_job.py"))
    with log.open("w") as output:
        return subprocess.Popen(
            [sys.executable, script, json.dumps(settings)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=around,
        )


def result_of(process, log, patience=400):
    try:
        process.wait(patience)
    finally:
        process.kill()
    text = log.read_text()
    assert process.returncode == 0, text[-4000:]
    line = next(line for line in text.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


def stored(reader, topic):
    return sum(reader.max_offset(queue) for queue in reader.queues(topic))


def wait_until(holds, process, patience=400):
    limit = time.monotonic() + patience
    while not holds():
        assert process.poll() is None, "the job ended before it was disturbed"
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.timeout(900)
def test_killed_executors_and_a_killed_broker_lose_no_row(tmp_path, standalone):
    with EmbeddedCluster(brokers=2) as cluster, Reader(cluster.name_server) as reader:
        cluster.create_topic("t", queues=4)
        log = tmp_path / "job.log"
        job = start(
            log, master=standalone.master, nameServers=cluster.name_server, topic="t", rows=ROWS
        )
        try:
            wait_until(lambda: stored(reader, "t") > ROWS // 20, job)
            standalone.kill_an_executor()
            wait_until(lambda: stored(reader, "t") > ROWS // 4, job)
            cluster.broker("broker-b").kill()
            time.sleep(0.5)  # long enough for requests to fail, short enough for retries
            cluster.broker("broker-b").restart()
            wait_until(lambda: "WRITTEN" in log.read_text(), job)
            assert stored(reader, "t") >= ROWS
            standalone.kill_an_executor()
            found = result_of(job, log)
        finally:
            job.kill()
        assert found["rows"] == stored(reader, "t")
        assert found["different"] == found["bodies"] == ROWS


def spark_home(folder):
    """Spark as installed, but with a place of its own for what a local cluster leaves behind."""
    home = folder / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "work":
            (home / part.name).symlink_to(part)
    return str(home)


@pytest.mark.timeout(600)
def test_a_local_cluster_of_two_executors_does_the_same(tmp_path):
    """Everything is pickled and sent to other processes there, as on a real one."""
    few, home = 6000, spark_home(tmp_path)
    with EmbeddedCluster(brokers=2) as cluster, Reader(cluster.name_server) as reader:
        cluster.create_topic("t", queues=4)
        log = tmp_path / "job.log"
        job = start(
            log,
            home=home,
            master="local-cluster[2,1,512]",
            nameServers=cluster.name_server,
            topic="t",
            rows=few,
        )
        found = result_of(job, log)
        assert found["rows"] == stored(reader, "t") >= few
        assert found["different"] == found["bodies"] == few
