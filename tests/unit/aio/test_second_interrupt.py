"""The second Ctrl-C gives handlers up, whatever the loop does at that moment.

It used to raise ``KeyboardInterrupt`` there. In ``call_soon`` that lost the wake-up of a worker, and
``run`` waited for that worker for ever.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from rocketwire.aio.interrupts import answer_interrupts

#: Presses Ctrl-C, and again when so many opcodes were run after it was said what is waited for.
PROGRAM = """
import asyncio, logging, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.disable(logging.CRITICAL)
from rocketwire import AsyncConsumer, Message, Producer
from rocketwire.aio import consumer as module
from rocketwire.embedded import EmbeddedCluster

left = place = 0

def count(frame, event, argument):
    global left, place
    if event == "opcode":
        left -= 1
        if left == 0:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            sys.settrace(None)
            while frame:
                frame.f_trace, frame = None, frame.f_back
            signal.raise_signal(signal.SIGINT)
            return None
    return count

def trace(frame, event, argument):
    frame.f_trace_opcodes = True
    return count

def tell(*arguments):
    sys.settrace(trace)
    frame = sys._getframe().f_back
    while frame.f_code.co_name != "run_forever":
        frame.f_trace, frame.f_trace_opcodes, frame = count, True, frame.f_back

async def handle(message):
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
    await asyncio.sleep(60)

module.tell_of_waiting = tell
with EmbeddedCluster(brokers=1) as cluster:
    cluster.create_topic("slow", 1)
    with Producer(cluster.name_server) as producer:
        producer.send(Message("slow", b"x"))
    for number in map(int, sys.argv[1:]):
        left, place = number, None
        consumer = AsyncConsumer(
            cluster.name_server, group=f"g{number}", start="earliest", shutdown_timeout=20
        )
        began = time.monotonic()
        try:
            asyncio.run(consumer.subscribe("slow").run(handle))
        except KeyboardInterrupt:
            sys.settrace(None)
            assert time.monotonic() - began < 15, f"{number}, {place}: it waited all the same"
        else:
            raise AssertionError(f"{number}, {place}: the program went on")
        assert place, f"no second Ctrl-C within {number} opcodes"
        print(number, flush=True)
"""


def test_a_second_ctrl_c_at_any_opcode_gives_handlers_up():
    points = [*range(1, 2600, 97)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, points)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
        assert [int(line) for line in out.split()] == points, errors


@pytest.fixture
def hearing():
    """Ctrl-C as Python has it, wherever the tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_ctrl_c_is_the_runners_the_second_ours_and_the_third_is_raised(hearing):
    heard: list[str] = []

    async def main() -> None:
        theirs = signal.getsignal(signal.SIGINT)
        with answer_interrupts(lambda: heard.append("ours")):
            signal.raise_signal(signal.SIGINT)  # nobody had pressed before: the task is cancelled
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(10)
            assert heard == []
            signal.raise_signal(signal.SIGINT)
            assert heard == ["ours"]
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is theirs

    asyncio.run(main())
    assert heard == ["ours"]


def test_a_handler_of_the_program_stays(hearing):
    def own(*_: object) -> None:
        """A program's way."""

    signal.signal(signal.SIGINT, own)
    with answer_interrupts(lambda: pytest.fail("it is the program's")):
        assert signal.getsignal(signal.SIGINT) is own
        signal.raise_signal(signal.SIGINT)
