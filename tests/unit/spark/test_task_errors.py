"""What goes wrong in a task is told in the words of Spark's users, as on the driver."""

import pytest

pytest.importorskip("pyspark")

from rocketwire.errors import RocketMQError
from rocketwire.message import MessageQueue
from rocketwire.spark.options import client_options, read_options
from rocketwire.spark.ranges import QueueRange
from rocketwire.spark.reader import RangesPartition, read_partition


def test_errors_of_a_task_that_reads_name_options_in_camel_case():
    given = {"nameservers": "127.0.0.1:1", "topic": "t", "readtimeout": "0.2s"}
    partition = RangesPartition([QueueRange(MessageQueue("t", "b", 0), 0, 5)])
    rows = read_partition(
        client_options(given), read_options(given, streaming=False), ("body",), partition
    )
    with pytest.raises(RocketMQError, match="check nameServers"):
        list(rows)
