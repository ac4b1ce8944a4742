"""A member of a group as a process: notes what it handles, so that it can be killed at any time.

``python eater.py NAME_SERVER GROUP TOPIC NOTES {blocking|asyncio} {ordered|concurrent}``
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from rocketwire import AsyncConsumer, Consumer


def main(name_server: str, group: str, topic: str, notes: str, shell: str, kind: str) -> None:
    """Handle messages until SIGTERM."""
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    pid = os.getpid()

    def handle(message: Any) -> None:
        # One write per line: whatever kills the process, a line is there or it is not.
        line = f"{pid} {message.queue.broker} {message.queue.id} {message.offset} {message.text}\n"
        os.write(file, line.encode())

    make = Consumer if shell == "blocking" else AsyncConsumer
    consumer: Any = make(
        name_server,
        group=group,
        start="earliest",
        ordered=kind == "ordered",
        commit_interval=0.5,
        request_timeout=2.0,
        # Everything that is done in rounds is done five times as often, to see more of them sooner.
        route_refresh=6.0,
        heartbeat_interval=6.0,
        rebalance_interval=4.0,
        lock_interval=4.0,
        lock_lifetime=6.0,
    ).subscribe(topic)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    os.write(1, b"ready\n")
    if shell == "blocking":
        consumer.run(handle)
    else:
        asyncio.run(consumer.run(handle))


if __name__ == "__main__":
    main(*sys.argv[1:])
