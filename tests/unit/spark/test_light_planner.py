"""Every query starts planners, which wait for what they import: only what planning needs."""

from __future__ import annotations

import subprocess
import sys

#: What encodes, decodes or sends, and what these load.
HEAVY = {
    "asyncio", "pandas", "pyarrow.compute", "rocketwire.columns.buffers", "rocketwire.columns.decode",
    "rocketwire.columns.encode", "rocketwire.columns.fetch", "rocketwire.core.sending.sender",
    "rocketwire.sync.producer",
}  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_source_loads_nothing_that_only_tasks_need() -> None:
    spark = loaded_by("import pyspark.sql.worker.plan_data_source_read")
    ours = loaded_by("import pyspark_rocketmq, rocketwire.spark.source")
    assert sorted((ours - spark) & HEAVY) == []
