"""The driver of a job on a Spark cluster: writes rows to a topic, and reads it. Run as a script."""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rocketwire.spark import deduplicate


def connect(master, python_path):
    return (
        SparkSession.builder.appName("cluster-test")
        .master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.executorEnv.PYTHONPATH", python_path)
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def write(spark, options, rows):
    df = spark.range(0, rows, 1, 12).selectExpr(
        "concat('body-', id) AS body",
        "repeat('x', 200) AS keys",
        "concat('k', id % 50) AS shardingKey",
    )
    df.write.format("rocketmq").options(**options).mode("append").save()
    print("WRITTEN", flush=True)  # noqa: T201 - read by the test


def read(spark, options):
    df = (
        spark.read.format("rocketmq")
        .options(**options, columns="topic,broker,queueId,queueOffset,rowId,body")
        .load()
    )
    # One job for each: every one of them reads the whole topic.
    unique = deduplicate(df).agg(
        f.count("*").alias("rows"), f.countDistinct("body").alias("bodies")
    )
    (found,) = unique.collect()
    return {"rows": df.count(), "different": found.rows, "bodies": found.bodies}


def main():
    settings = json.loads(sys.argv[1])
    spark = connect(settings["master"], settings["pythonPath"])
    options = {"nameServers": settings["nameServers"], "topic": settings["topic"]}
    write(spark, options | {"writeId": "cluster", "deliveryTimeout": "120s"}, settings["rows"])
    found = read(spark, options | {"minPartitions": "8"})
    print("RESULT " + json.dumps(found), flush=True)  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main()
