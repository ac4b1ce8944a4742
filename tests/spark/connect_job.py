"""A client of Spark Connect: writes and reads a topic, in batch and as a stream. Run as a script.

Spark starts the server, with a JVM of its own, for an address that begins with ``local``.
"""

import json
import sys

from pyspark.sql import SparkSession

from rocketwire.spark import deduplicate


def batch(spark, options, rows):
    frame = spark.range(0, rows, 1, 3).selectExpr(
        "concat('body-', id) AS body", "concat('key-', id) AS keys"
    )
    frame.write.format("rocketmq").options(**options).mode("append").save()
    read = spark.read.format("rocketmq").options(**options).load()
    bodies = deduplicate(read).selectExpr("cast(body AS string) AS body").collect()
    return sorted(row.body for row in bodies)


def stream(spark, options, target, folder):
    read = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    query = (
        read.selectExpr("upper(cast(body AS string)) AS body", "keys")
        .writeStream.format("rocketmq")
        .options(**{**options, "topic": target}, checkpointLocation=folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    if query.exception() is not None:
        raise query.exception()
    written = spark.read.format("rocketmq").options(**{**options, "topic": target}).load()
    return sorted(bytes(row.body).decode() for row in deduplicate(written).collect())


def main():
    settings = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    options = {"nameServers": settings["nameServers"], "topic": settings["topic"]}
    found = {
        "kind": type(spark).__module__,
        "batch": batch(spark, options, settings["rows"]),
        "stream": stream(spark, options, settings["target"], settings["folder"]),
    }
    print("RESULT " + json.dumps(found), flush=True)  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main()
