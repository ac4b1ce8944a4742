"""The delivery report on many attempts with a driver of 1 GB: does it fit, and is time linear?

    python -m bench.report_scale --sizes 1000000,10000000

Each size runs in a process of its own. The figures of the report are compared with what was written,
so that a fast wrong answer does not count. Prints a line of JSON a size, and the ratio at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.telemetry_story import Truth, write_story

_ROOT = Path(__file__).resolve().parent.parent
_CHECKED = ("attempts", "sends", "failed_sends", "retries", "maybe_duplicates", "isolations")


def main() -> int:
    arguments = _arguments()
    if arguments.measure:
        print(json.dumps(_measure(arguments.measure, arguments.memory)))
        return 0
    with tempfile.TemporaryDirectory(prefix="report-scale-", dir=arguments.folder) as folder:
        results = [_run(folder, size, arguments.memory) for size in arguments.sizes]
    return _judge(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sizes", type=lambda text: [int(word) for word in text.split(",")], default=[10**6, 10**7]
    )
    parser.add_argument(
        "--memory", default="1g", help="of the driver, which does all the work here"
    )
    parser.add_argument("--folder", help="where the files go; 330 bytes an attempt")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(folder: str, size: int, memory: str) -> dict[str, Any]:
    """Write the files, report on them in a new process, remove them."""
    place = Path(folder) / str(size)
    began = time.monotonic()
    truth = write_story(str(place), size)
    written = time.monotonic() - began
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
    command = [
        sys.executable,
        "-m",
        "bench.report_scale",
        "--measure",
        str(place),
        "--memory",
        memory,
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, cwd=_ROOT)
    found = json.loads(done.stdout.splitlines()[-1])
    found |= {"size": size, "gigabytes": truth.bytes_written / 1e9, "seconds_to_write": written}
    found["wrong"] = _differences(found.pop("figures"), truth)
    for path in place.glob("*.jsonl"):
        path.unlink()
    print(json.dumps(found), flush=True)
    return found


def _differences(figures: dict[str, int], truth: Truth) -> list[str]:
    expected = {name: getattr(truth, name) for name in _CHECKED} | {"order_violations": 0}
    return [
        f"{name} is {figures[name]}, not {value}"
        for name, value in expected.items()
        if figures[name] != value
    ]


def _measure(folder: str, memory: str) -> dict[str, Any]:
    from rocketwire.spark import report, session

    local = f"{folder}-spark"
    spark = session("report-scale", memory=memory, config={"spark.local.dir": local})
    # Without this the first report would also pay for loading Spark's classes.
    spark.range(1000).selectExpr("sum(id)").collect()
    busy = _java_seconds(spark)
    result = report(spark, folder, f"{folder}-page/report.html", time_zone="UTC")
    used = _java_seconds(spark) - busy
    peak = _java_peak(spark)
    page = result.page.stat().st_size
    spark.stop()
    return {
        "seconds": result.seconds,
        "java_cpu_seconds": used,
        "java_peak_mb": peak,
        "python_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "page_kb": page / 1000,
        "figures": {name: getattr(result, name) for name in (*_CHECKED, "order_violations")},
    }


def _java(spark: Any) -> Path:
    """What Linux tells of the driver's JVM, which the gateway started."""
    return Path("/proc") / str(spark.sparkContext._gateway.proc.pid)


def _java_seconds(spark: Any) -> float:
    fields = (_java(spark) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _java_peak(spark: Any) -> float:
    lines = (_java(spark) / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _judge(results: list[dict[str, Any]]) -> int:
    for result in results:
        for text in result["wrong"]:
            print(f"{result['size']}: {text}", file=sys.stderr)
    first, last = results[0], results[-1]
    if first is not last:
        times = last["size"] / first["size"]
        print(
            json.dumps(
                {
                    "times_the_attempts": times,
                    "times_the_seconds": last["seconds"] / first["seconds"],
                    "times_the_cpu": last["java_cpu_seconds"] / first["java_cpu_seconds"],
                }
            )
        )
    return 1 if any(result["wrong"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
