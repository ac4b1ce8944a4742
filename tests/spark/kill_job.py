"""A stream from topic to topic that stops in the midst of a batch, to be killed there. Run as a script."""

import json
import sys
import time
from pathlib import Path

from rocketwire.spark import session


def stop_midway(folder):
    """Lets the first rows of each task pass, more than buffers hold, and no more until there is a file ``go``."""

    def pass_on(batches):
        for number, batch in enumerate(batches):
            if number == 4 and not (Path(folder) / "go").exists():
                (Path(folder) / "here").touch()
                time.sleep(600)
            yield batch

    return pass_on


def main():
    settings = json.loads(sys.argv[1])
    spark = session(
        "killed",
        master="local[2]",
        memory="512m",
        fast_start=True,
        config={"spark.sql.execution.arrow.maxRecordsPerBatch": "5"},
    )
    options = {"nameServers": settings["nameServers"]}
    reading = {"topic": settings["topic"], "startingOffsets": "earliest"}
    rows = (
        spark.readStream.format("rocketmq")
        .options(**options, **reading, maxOffsetsPerTrigger=settings["rows"] // 2)
        .load()
        .select("body", "rowId", "queueOffset")
        .mapInArrow(
            stop_midway(settings["folder"]), "body binary, rowId string, queueOffset bigint"
        )
        .selectExpr("*", "explode(sequence(1, 3)) AS n")
        .drop("n")
    )
    writer = rows.writeStream.format("rocketmq").options(**options, topic=settings["target"])
    query = writer.option("checkpointLocation", settings["folder"] + "/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
