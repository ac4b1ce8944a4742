"""Forked children whose results come back, and what runs in processes of their own."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

from rocketwire import Message, Producer

LIMIT = 60.0


class Child:
    """A forked child that runs a function; ended by force when it takes too long."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _work(work, writing)  # never returns
        os.close(writing)

    def result(self) -> Any:
        """What the function returned; an AssertionError with its traceback if it raised."""
        content = b""
        deadline = time.monotonic() + LIMIT
        while select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(self._reading, 1 << 16)
            if not piece:
                break
            content += piece
        else:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._reading)
        os.waitpid(self.pid, 0)
        assert content, "the child hung, or died without a word"
        is_fine, value = pickle.loads(content)
        assert is_fine, f"the child failed:\n{value}"
        return value


def _work(work: Callable[[], Any], writing: int) -> None:
    """In the child: whatever happens, the test runner's own code must not go on here."""
    try:
        answer = (True, work())
    except BaseException:
        answer = (False, traceback.format_exc())
    try:
        data = pickle.dumps(answer)
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def send_all(producer: Producer, bodies: list[bytes], topic: str = "orders") -> list[str]:
    """Send one message for each body; their ids."""
    return [producer.send(Message(topic, body)).message_id for body in bodies]


def bodies(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


# -- for multiprocessing, whose children import this module ---------------------------------------

inherited: Producer | None = None


def use_inherited(name: str, count: int, results: Any) -> None:
    """Send with the producer that the parent had when it forked."""
    assert inherited is not None
    results.put((inherited.client_id, send_all(inherited, bodies(name, count))))
    results.close()
    results.join_thread()


def use_own(name_server: str, name: str, count: int, results: Any) -> None:
    """Send with a producer of one's own."""
    with Producer(name_server, group="spawned") as producer:
        results.put((producer.client_id, send_all(producer, bodies(name, count))))
    results.close()
    results.join_thread()


def send_one(body: bytes) -> tuple[int, str]:
    """For a pool of workers: send with the inherited producer."""
    assert inherited is not None
    return os.getpid(), inherited.send(Message("orders", body)).message_id
