"""Over Spark Connect the source is found on the server, in batch and in streams."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="Spark Connect needs grpcio on the client")
pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status on the client")
pytest.importorskip("pandas", reason="Spark Connect needs pandas on the client")

# Test modules are imported by path, so a neighbour is found by its folder.
sys.path.insert(0, str(Path(__file__).parent))
from standalone import environment

from rocketwire.message import Message
from rocketwire.sync.producer import Producer

ROWS = 300


def test_a_client_of_spark_connect_reads_writes_and_runs_all_pipelines(cluster, topic, tmp_path):
    target = f"{topic}-upper"
    for name in (target, f"{topic}-published", f"{topic}-changed"):
        cluster.create_topic(name, queues=2)
    with Producer(cluster.name_server, telemetry=tmp_path / "telemetry") as producer:
        for number in range(20):
            producer.send(Message(target + "-told", f"{number}"))
    settings = {
        "nameServers": cluster.name_server,
        "topic": topic,
        "target": target,
        "rows": ROWS,
        "folder": str(tmp_path / "work"),
        "published": f"{topic}-published",
        "changed": f"{topic}-changed",
        "telemetry": str(tmp_path / "telemetry"),
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_job.py")), json.dumps(settings)],
        # Compiled lightly: the JVM lives for one test.
        env=os.environ | environment() | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found = json.loads(line.removeprefix("RESULT "))
    assert ".connect." in found["kind"]
    assert found["batch"] == sorted(f"body-{number}" for number in range(ROWS))
    assert found["stream"] == sorted(f"BODY-{number}" for number in range(ROWS))
    assert found["pipelines"] == {
        "sent": [ROWS, []],
        "changed": [ROWS, ROWS, 0],
        "kept": [ROWS, 0, ROWS, []],
        "archived": [2 * number for number in range(ROWS)],
        "told": 20,
    }
