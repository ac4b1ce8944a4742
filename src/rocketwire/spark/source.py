"""The data source ``rocketmq``."""

from __future__ import annotations

import os
import secrets
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rocketwire.errors import ConfigError
from rocketwire.spark import absent
from rocketwire.spark.client import Cluster, reader_for
from rocketwire.spark.local_record import local_folder
from rocketwire.spark.option_names import in_option_words
from rocketwire.spark.options import (
    ClientOptions,
    ReadOptions,
    WriteOptions,
    check_expected_topics,
    client_options,
    read_options,
    write_options,
)
from rocketwire.spark.reader import RocketMQReader
from rocketwire.spark.schema import check_loop, check_row_ids, check_write, columns_of, read_schema
from rocketwire.spark.settled_worker import settle
from rocketwire.spark.stream_reader import RocketMQStreamReader
from rocketwire.spark.writer import RocketMQStreamWriter, RocketMQWriter, check_summary_file

absent.require()

#: Clusters that answered once in this process: a stream's sink is made anew for every batch.
_reached: set[ClientOptions] = set()


class RocketMQDataSource(DataSource):
    """Topics of Apache RocketMQ as tables and streams.

    Name: ``rocketmq``

    Columns read: ``topic string, broker string, queueId int, queueOffset bigint, messageId string,
    rowId string, tags string, keys string, shardingKey string, body binary, properties
    map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int,
    flag int``. The option ``columns`` (or a schema of one's own) chooses some of them; what is left
    out is not decoded.

    Columns written: ``body`` (binary or string), and optionally ``topic, tags, keys, shardingKey,
    rowId, delayLevel, deliverAt, properties, flag, targetBroker, targetQueueId``.

    Options: ``nameServers``; one of ``topic``, ``topics``, ``topicPattern``, ``assign``; and those
    in the reference. Filters are not pushed to brokers: use ``tags`` and the timestamps.

    Examples:
        Read a topic::

            spark.read.format("rocketmq").option("nameServers", "127.0.0.1:9876")
                .option("topic", "orders").load()

        Write one::

            df.selectExpr("to_json(struct(*)) AS body", "id AS keys").write.format("rocketmq")
                .option("nameServers", "127.0.0.1:9876").option("topic", "orders")
                .mode("append").save()
    """

    @classmethod
    def name(cls) -> str:
        """How users call it."""
        return "rocketmq"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Only this process is told of Spark's folder; a stream's own one is not.
        self._folder = local_folder()

    def schema(self) -> StructType:
        """The columns of a read; options are checked here already, because this comes first."""
        # Whether batch or stream is not known yet, so only what both agree on is an error.
        return read_schema(self._read(streaming=None).columns)

    def reader(self, schema: StructType) -> RocketMQReader:
        """Read a batch."""
        client, options = self._client(), self._read(streaming=False)
        return RocketMQReader(client, options, columns_of(schema), self._folder)

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:
        """Read a stream."""
        client, options = self._client(), self._read(streaming=True)
        return RocketMQStreamReader(client, options, columns_of(schema), self._folder)

    def writer(self, schema: StructType, overwrite: bool) -> RocketMQWriter:  # noqa: FBT001
        """Write a batch."""
        client, options = self._write(schema, overwrite)
        write_id = options.write_id or secrets.token_hex(8)
        return RocketMQWriter(client, options, write_id)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> RocketMQStreamWriter:
        """Write a stream. Every output mode only ever appends to a topic."""
        client, options = self._write(schema, overwrite=False)
        return RocketMQStreamWriter(client, options, schema)

    def _client(self) -> ClientOptions:
        return client_options(self.options, os.environ)

    def _read(self, *, streaming: bool | None) -> ReadOptions:
        options = read_options(self.options, streaming=streaming)
        check_expected_topics(options)
        return options

    def _write(self, schema: StructType, overwrite: Any) -> tuple[ClientOptions, WriteOptions]:
        if overwrite:
            raise ConfigError(
                "a topic can't be overwritten: use mode('append'), and delete and create the topic "
                "anew if its messages should go"
            )
        client, options = self._client(), write_options(self.options)
        check_write(schema, topic_given=options.topic is not None)
        check_row_ids(schema, options)
        check_loop(schema, options)
        check_summary_file(options)
        if client not in _reached:
            with in_option_words():
                Cluster(reader_for(client)).check_reachable(options.topic)
            _reached.add(client)
        settle()
        return client, options
