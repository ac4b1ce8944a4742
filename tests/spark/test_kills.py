"""Whatever is killed while a stream writes, ``deduplicate`` leaves each row as often as it should be there."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

# Test modules are imported by path, so a neighbour is found by its folder.
sys.path.insert(0, str(Path(__file__).parent))
from standalone import children_of, environment

from rocketwire.columns import send_table
from rocketwire.spark import deduplicate

ROWS = 80
#: More than what Spark's buffers hold back of some rows.
PADDING = "x" * 20_000


def stored(reader, topic):
    return sum(reader.max_offset(queue) for queue in reader.queues(topic))


class Job:
    """The stream in a process of its own, with what it starts."""

    def __init__(self, settings, log):
        script = str(Path(__file__).with_name("kill_job.py"))
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, script, json.dumps(settings)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def wait_until(self, holds):
        limit = time.monotonic() + 200
        while not holds():
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < limit, self.log.read_text()[-4000:]
            time.sleep(0.02)

    def kill(self, what):
        pid = self.process.pid
        if what == "jvm":
            (pid,) = [child for child, command in children_of(pid) if "java" in command]
        os.kill(pid, signal.SIGKILL)
        self.process.wait(60)


@pytest.mark.timeout(900)
def test_a_killed_jvm_and_a_killed_driver_lose_no_row_and_repeat_none(
    spark, cluster, producer, reader, topic, tmp_path
):
    target = f"{topic}-out"
    cluster.create_topic(target, queues=2)
    send_table(producer, {"body": [f"b{i}-{PADDING}" for i in range(ROWS)]}, topic, stamp="source:")
    settings = {"nameServers": cluster.name_server, "topic": topic, "target": target}
    settings |= {"folder": str(tmp_path), "rows": ROWS}
    here = tmp_path / "here"
    for what in ("jvm", "driver"):
        before = stored(reader, target)
        with Job(settings, tmp_path / "log") as job:
            job.wait_until(lambda: here.exists() and stored(reader, target) > before)  # noqa: B023
            job.kill(what)
        here.unlink()
    (tmp_path / "go").touch()
    with Job(settings, tmp_path / "log") as job:
        assert job.process.wait(200) == 0, job.log.read_text()[-4000:]
    written = spark.read.format("rocketmq").options(nameServers=cluster.name_server, topic=target)
    rows = deduplicate(written.load()).selectExpr("split(string(body), '-')[0] AS name").collect()
    assert Counter(row.name for row in rows) == {f"b{i}": 3 for i in range(ROWS)}
    assert stored(reader, target) > 3 * ROWS
