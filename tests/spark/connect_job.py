"""A client of Spark Connect: writes and reads a topic, in batch and as a stream. Run as a script.

Spark starts the server, with a JVM of its own, for an address that begins with ``local``.
"""

import json
import sys

from pyspark.sql import SparkSession

from rocketwire.spark import archive, deduplicate, publish, report, transform, verify_archive


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


def pipelines(spark, servers, settings):
    """All four of them; each tells what a test can check."""
    folder = settings["folder"]
    frame = spark.range(0, settings["rows"], 1, 2).selectExpr("id", "id % 5 AS customer")
    frame.write.mode("overwrite").parquet(f"{folder}/rows")
    sent = publish(
        spark, f"{folder}/rows", settings["published"], name_servers=servers, key="id",
        sharding_key="customer", verify_after=True, state=f"{folder}/state",
    )  # fmt: skip
    changed = transform(
        spark, settings["published"], settings["changed"], name_servers=servers, body="json",
        sql="select string(data.id * 2) as body from messages", checkpoint=f"{folder}/changing",
    )  # fmt: skip
    kept = archive(spark, settings["changed"], f"{folder}/lake", name_servers=servers)
    checked = verify_archive(spark, f"{folder}/lake", name_servers=servers)
    told = report(spark, settings["telemetry"], f"{folder}/page.html")
    bodies = spark.read.parquet(f"{folder}/lake").selectExpr("int(string(body)) AS n").collect()
    return {
        "sent": [sent.rows, list(sent.verification.problems)],
        "changed": [changed.rows_read, changed.rows_written, changed.missing],
        "kept": [kept.rows, kept.missing, checked.rows, list(checked.problems)],
        "archived": sorted(row.n for row in bodies),
        "told": told.sends,
    }


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
        "stream": stream(spark, options, settings["target"], settings["folder"] + "/stream"),
        "pipelines": pipelines(spark, settings["nameServers"], settings),
    }
    print("RESULT " + json.dumps(found), flush=True)  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main()
