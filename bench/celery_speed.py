"""Tasks a second of Celery over RocketMQ, beside Celery over files: ``python -m bench.celery_speed``.

A real worker with one process on the embedded cluster. Tasks are put into the queue first, then the
worker is begun and its tasks are counted from the first to the last, so that sending and working are
told apart. kombu's transport over files is what every Celery has: it shows what Celery itself takes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery

import rocketwire.integrations.celery  # noqa: F401  (makes rocketmq:// known)
from rocketwire.embedded import EmbeddedCluster

BROKER = "BENCH_CELERY_BROKER"
FOLDER = "BENCH_CELERY_FOLDER"


def application() -> Celery:
    """The application of the worker and of the sender: where it sends is in the environment."""
    folder = os.environ.get(FOLDER, ".")
    options: dict[str, Any] = {}
    if os.environ.get(BROKER, "").startswith("filesystem"):
        options = {"data_folder_in": f"{folder}/queue", "data_folder_out": f"{folder}/queue"}
        # Else kombu makes a folder of that name wherever the program was started.
        options["control_folder"] = f"{folder}/control"
    made = Celery("bench", broker=os.environ.get(BROKER, "memory://"))
    made.conf.update(
        broker_transport_options=options,
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=64,
        task_ignore_result=True,
    )
    return made


app = application()


@app.task(name="bench.count")
def count(body: str) -> None:
    """One byte for each task, so that the file's size is how many were done."""
    done = os.open(os.environ[FOLDER] + "/done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(done, b".")
    os.close(done)


@contextmanager
def worker(folder: Path, url: str, processes: int) -> Iterator[None]:
    """A worker as a process, from its begin to its end."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "bench.celery_speed", "worker", "-c", str(processes),
             "--without-mingle", "--without-gossip", "--without-heartbeat", "-l", "WARNING"],
            env=os.environ | {BROKER: url, FOLDER: str(folder)}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def done(folder: Path) -> int:
    """How many tasks are done."""
    return (folder / "done").stat().st_size if (folder / "done").exists() else 0


def measure(url: str, tasks: int, processes: int) -> tuple[float, float]:
    """Sends a second, and tasks done a second."""
    folder = Path(tempfile.mkdtemp(prefix="bench-celery-"))
    (folder / "queue").mkdir()
    os.environ |= {BROKER: url, FOLDER: str(folder)}
    sender = application()
    try:
        began = time.perf_counter()
        with sender.producer_pool.acquire(block=True) as producer:
            for _ in range(tasks):
                sender.send_task("bench.count", ("x" * 200,), producer=producer)
        sent = tasks / (time.perf_counter() - began)
        with worker(folder, url, processes):
            first = _wait(folder, 1)
            began_with = done(folder)
            last = _wait(folder, tasks)
        return sent, (tasks - began_with) / (last - first)
    finally:
        sender.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(folder: Path, wanted: int) -> float:
    limit = time.monotonic() + 300
    while done(folder) < wanted:
        if time.monotonic() > limit:
            log = (folder / "log").read_text()[-2000:]
            raise TimeoutError(f"{done(folder)} of {wanted} tasks were done in 300 s:\n{log}")
        time.sleep(0.002)
    return time.perf_counter()


def main() -> None:
    """Measure in rounds, in turn, and print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="of the worker")
    chosen = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(chosen.rounds):
        with EmbeddedCluster(1) as cluster:
            ways = {"rocketmq": f"rocketmq://{cluster.name_server}", "files": "filesystem://"}
            for name, url in ways.items():
                found.setdefault(name, []).append(measure(url, chosen.tasks, chosen.processes))
    print(
        f"{chosen.tasks} tasks, {chosen.processes} process(es), medians of {chosen.rounds} rounds"
    )
    for name, figures in found.items():
        sent, worked = (statistics.median(values) for values in zip(*figures, strict=True))
        print(f"{name:9} {sent:8,.0f} sent/s {worked:8,.0f} tasks/s")


if __name__ == "__main__":
    main()
