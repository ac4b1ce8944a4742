"""A real standalone Spark on loopback: a master and workers as processes, to be broken in tests."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from rocketwire.spark.java import find_java

SOURCE = Path(__file__).parents[2] / "src"


def free_port(host="127.0.0.1"):
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def environment(host="127.0.0.1"):
    """What Spark's processes need to find Java, Python and this package, and to stay on loopback."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_DAEMON_MEMORY": "256m",
        # Compiling lightly halves the time that these short-lived processes take.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }


def bare_environment(host="127.0.0.1"):
    """The same for a Spark that knows nothing of this package: each job brings its own Python."""
    around = environment(host)
    del around["PYTHONPATH"], around["PYSPARK_PYTHON"], around["PYSPARK_DRIVER_PYTHON"]
    return around


def children_of(pid):
    """Processes started by a process, with their command lines."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            stat = (path / "stat").read_text()
            parent = int(stat.rpartition(")")[2].split()[1])
            if parent == pid:
                found.append((int(path.name), (path / "cmdline").read_text()))
    return found


class StandaloneSpark:
    """A master on 127.0.0.1, workers on 127.0.0.2 and up, so that they count as several hosts."""

    def __init__(self, folder, workers=2):
        self._folder = Path(folder)
        self._count = workers
        self._processes = []
        self.workers = []
        self.port = free_port()

    @property
    def master(self):
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self):
        home = Path(environment()["SPARK_HOME"])
        command = [str(home / "bin" / "spark-class")]
        try:
            self._start(
                "master",
                [*command, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
                 "--port", str(self.port), "--webui-port", "0"],
                "Starting Spark master",
                "127.0.0.1",
            )  # fmt: skip
            for number, work in enumerate(self.folders):
                host = f"127.0.0.{number + 2}"
                process = self._start(
                    f"worker-{number}",
                    [*command, "org.apache.spark.deploy.worker.Worker", "--host", host,
                     "--cores", "1", "--memory", "1g", "--webui-port", "0",
                     "--work-dir", str(work), self.master],
                    "Successfully registered with master",
                    host,
                )  # fmt: skip
                self.workers.append(process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name, command, sign, host):
        log = self._folder / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=bare_environment(host)
            )
        self._processes.append(process)
        limit = time.monotonic() + 120
        while sign not in log.read_text():
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < limit, log.read_text()[-2000:]
            time.sleep(0.1)
        return process

    def executors(self):
        """The process ids of all executors."""
        return [
            pid
            for worker in self.workers
            for pid, command in children_of(worker.pid)
            if re.search("CoarseGrainedExecutorBackend", command)
        ]

    @property
    def folders(self):
        """Where the workers put what jobs bring."""
        return [self._folder / f"work-{number}" for number in range(self._count)]

    def kill_an_executor(self):
        pid = self.executors()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def __exit__(self, *_):
        for pid in self.executors():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in reversed(self._processes):
            process.kill()
            process.wait()
