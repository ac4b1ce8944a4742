"""Avro and Protobuf bodies by Spark's own packages, with a schema registry's header and without."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from rocketwire.columns import send_table
from rocketwire.errors import ConfigError
from rocketwire.spark import archive, transform

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
HEADER = b"\0" + struct.pack(">i", 7)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def avro(number, name):
    """As Avro's specification has it: zigzag numbers, and texts after their length."""
    text = name.encode()
    return varint(number << 1) + varint(len(text) << 1) + text


def protobuf(number, name):
    """As Protobuf's specification has it: a varint as field 1, a text as field 2."""
    text = name.encode()
    return b"\x08" + varint(number) + b"\x12" + varint(len(text)) + text


def descriptor(path):
    """What protoc would write for ``message Order { int64 id = 1; string name = 2; }``."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="name", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    path.write_bytes(files.SerializeToString())


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


@pytest.fixture(params=[False, True], ids=["bare", "header"])
def has_header(request):
    return request.param


@pytest.fixture
def filled(producer, topic, has_header):
    head = HEADER if has_header else b""
    bodies = [head + avro(1, "one"), head + avro(300, "drei"), b"\xff\xff\xff"]
    send_table(producer, {"body": bodies, "keys": ["a", "b", "c"]}, topic)
    return topic


def test_avro_bodies_are_archived_as_data(spark, cluster, filled, schema, has_header, tmp_path):
    folder = tmp_path / "lake"
    given = {"body": "avro", "schema": schema, "registry_header": has_header}
    done = archive(spark, filled, folder, name_servers=cluster.name_server, **given)
    assert done.rows == 3
    rows = spark.read.parquet(str(folder)).selectExpr("data.*", "_body", "_error").collect()
    assert {(row.id, row.name) for row in rows} == {(1, "one"), (300, "drei"), (None, None)}
    (bad,) = (row for row in rows if row.id is None)
    assert (bytes(bad["_body"]), bad["_error"]) == (
        b"\xff\xff\xff",
        "the body is not avro of the schema",
    )


def test_avro_bodies_are_transformed(spark, cluster, filled, reader, schema, has_header, tmp_path):
    target = f"{filled}-out"
    cluster.create_topic(target, queues=2)
    done = transform(
        spark,
        filled,
        target,
        name_servers=cluster.name_server,
        body="avro",
        schema=schema,
        registry_header=has_header,
        sql="select keys, concat(data.name, '!') as body from messages where data is not null",
        checkpoint=tmp_path / "progress",
    )
    assert (done.rows_read, done.rows_written) == (3, 2)
    found = {message.body: message.keys for message in reader.read(target)}
    assert found == {b"one!": "a", b"drei!": "b"}


def test_a_schema_that_is_none_is_named(spark, cluster, topic, tmp_path):
    path = tmp_path / "order.avsc"
    path.write_text('{"type": "recorded"}')
    given = {"name_servers": cluster.name_server, "body": "avro", "schema": str(path)}
    with pytest.raises(ConfigError, match=r"body is 'avro': .*recorded"):
        archive(spark, topic, tmp_path / "lake", **given)


def test_the_error_names_the_package_of_protobuf(spark, cluster, topic, tmp_path):
    path = tmp_path / "order.desc"
    path.write_bytes(b"")
    given = {"body": "protobuf", "schema": f"{path}:shop.Order"}
    wanted = rf"spark\.jars\.packages=org\.apache\.spark:spark-protobuf_2\.13:{spark.version}"
    with pytest.raises(ConfigError, match=wanted):
        archive(spark, topic, tmp_path / "lake", name_servers=cluster.name_server, **given)


def test_protobuf_bodies_are_archived_and_transformed(
    cluster, producer, reader, topic, has_header, tmp_path
):
    descriptor(tmp_path / "order.desc")
    head = HEADER if has_header else b""
    bodies = [head + protobuf(1, "one"), head + protobuf(300, "drei"), head + b"\x12\x7f"]
    send_table(producer, {"body": bodies}, topic)
    target = f"{topic}-out"
    cluster.create_topic(target, queues=2)
    settings = {
        "nameServers": cluster.name_server,
        "topic": topic,
        "target": target,
        "folder": str(tmp_path),
        "schema": f"{tmp_path / 'order.desc'}:shop.Order",
        "header": has_header,
        "jars": os.environ.get("ROCKETWIRE_PROTOBUF_JARS", ""),
    }
    job = [sys.executable, str(Path(__file__).with_name("protobuf_job.py")), json.dumps(settings)]
    done = subprocess.run(job, capture_output=True, text=True, timeout=280, check=False)
    if "unresolved dependency: org.apache.spark#spark-protobuf" in done.stderr + done.stdout:
        pytest.skip(
            "Maven has no spark-protobuf for this Spark; ROCKETWIRE_PROTOBUF_JARS names jars"
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    bad = [None, None, bodies[2].hex(), "the body is not protobuf of the schema"]
    found = sorted(told["found"], key=str)
    assert found == sorted([[1, "one", None, None], [300, "drei", None, None], bad], key=str)
    assert (told["rows"], told["written"]) == (3, 2)
    assert {message.body for message in reader.read(target)} == {b"one!", b"drei!"}
