"""Reads Protobuf bodies in a session of its own: Maven may not have the package of this Spark."""

import json
import sys

import pyspark

from rocketwire.spark import archive, session, transform
from rocketwire.spark.pipelines.packages import package_for


def main():
    given = json.loads(sys.argv[1])
    config = {"spark.jars": given["jars"]}
    if not given["jars"]:
        config = {"spark.jars.packages": package_for("protobuf", pyspark.__version__)}
    spark = session("protobuf", master="local[2]", memory="1g", config=config)
    bodies = {
        "name_servers": given["nameServers"],
        "body": "protobuf",
        "schema": given["schema"],
        "registry_header": given["header"],
    }
    kept = archive(spark, given["topic"], f"{given['folder']}/lake", **bodies)
    rows = spark.read.parquet(f"{given['folder']}/lake").selectExpr("data.*", "_body", "_error")
    changed = transform(
        spark,
        given["topic"],
        given["target"],
        sql="select concat(data.name, '!') as body from messages where data.id is not null",
        checkpoint=f"{given['folder']}/progress",
        **bodies,
    )
    found = [
        [row.id, row.name, None if row["_body"] is None else row["_body"].hex(), row["_error"]]
        for row in rows.collect()
    ]
    sys.stdout.write(
        json.dumps({"rows": kept.rows, "found": found, "written": changed.rows_written}) + "\n"
    )
    spark.stop()


if __name__ == "__main__":
    main()
