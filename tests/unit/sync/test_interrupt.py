"""Ctrl-C with a slow handler: what is waited for is said at once, and a second one gives it up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

#: Shells make programs that they start in the background deaf to Ctrl-C, and their children with them.
HEARING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
BLOCKING = """
import sys, time
from rocketwire import Consumer, Message, Producer
from rocketwire.embedded import EmbeddedCluster

with EmbeddedCluster(brokers=1) as cluster:
    cluster.create_topic("slow", 1)
    with Producer(cluster.name_server) as producer:
        producer.send(Message("slow", b"x"))

    def handle(message):
        print("handling", flush=True)
        time.sleep(60)

    consumer = Consumer(cluster.name_server, group="g", start="earliest", shutdown_timeout=50)
    try:
        consumer.subscribe("slow", tags=["*"]).run(handle)
    except KeyboardInterrupt:
        print("interrupted", consumer.stats().handled, flush=True)
"""
ASYNCIO = """
import asyncio, sys
from rocketwire import AsyncConsumer, Message, Producer
from rocketwire.embedded import EmbeddedCluster

with EmbeddedCluster(brokers=1) as cluster:
    cluster.create_topic("slow", 1)
    with Producer(cluster.name_server) as producer:
        producer.send(Message("slow", b"x"))

    async def handle(message):
        print("handling", flush=True)
        await asyncio.sleep(60)

    consumer = AsyncConsumer(cluster.name_server, group="g", start="earliest", shutdown_timeout=50)
    try:
        asyncio.run(consumer.subscribe("slow").run(handle))
    except KeyboardInterrupt:
        print("interrupted", consumer.stats().handled, flush=True)
"""


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
def test_ctrl_c_says_what_it_waits_for_and_a_second_one_gives_it_up(program):
    with subprocess.Popen(
        [sys.executable, "-c", HEARING + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "handling\n"
            process.send_signal(signal.SIGINT)
            told = process.stderr.readline()
            assert "waiting up to 50 s for 1 handler; a second Ctrl-C gives it up" in told
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
            assert time.monotonic() - began < 25, "it waited all the same"
            assert "interrupted 0" in out
        finally:
            process.kill()
