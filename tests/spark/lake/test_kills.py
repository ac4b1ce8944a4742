"""A table's archive is killed with SIGKILL, driver and JVM at once, and goes on: no row twice, none lost."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.spark.lake.lake_packages import packages

from rocketwire.columns import send_table

KILLS = 3


class Feeder(threading.Thread):
    """Sends numbered messages all the time, so that there is always a next batch."""

    def __init__(self, producer, topic):
        super().__init__(daemon=True)
        self.producer = producer
        self.topic = topic
        self.sent = 0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            numbers = range(self.sent, self.sent + 10)
            send_table(self.producer, {"body": [str(i) for i in numbers]}, self.topic)
            self.sent += 10

    def finish(self):
        self.over.set()
        self.join(30)
        return self.sent


@pytest.fixture
def command(cluster, topic, folder, kind):
    return [
        sys.executable, "-m", "rocketwire", "archive", topic, str(folder), "--format", kind,
        "--name-server", cluster.name_server, "--json", "--master", "local[2]",
        "--conf", f"spark.jars.packages={packages(kind)}",
    ]  # fmt: skip


def wait_for(path, count, deadline):
    while len(list(path.glob("[0-9]*"))) < count:
        assert time.monotonic() < deadline, f"no {count} batches within the time"
        time.sleep(0.05)


@pytest.mark.timeout(2400)
def test_kills_lose_and_repeat_nothing(command, check, spark, producer, topic, folder, kind):
    commits = folder.parent / f".{folder.name}.checkpoint" / "commits"
    chance = random.Random(17)
    feeder = Feeder(producer, topic)
    feeder.start()
    for _ in range(KILLS):
        process = subprocess.Popen(
            [*command, "--follow"], stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            wait_for(commits, len(list(commits.glob("[0-9]*"))) + 1, time.monotonic() + 400)
            time.sleep(chance.random() * 2)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    sent = feeder.finish()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["rows"] < sent
    frame = spark.read.format(kind).load(str(folder))
    rows = frame.selectExpr("int(string(body)) AS number").collect()
    assert sorted(row.number for row in rows) == list(range(sent))
    verdict = check()
    assert verdict.is_good
    assert verdict.rows == sent
