"""What an editor knows: the types that users see, revealed by mypy under its strictest rules."""

import re
import subprocess
import sys
from pathlib import Path

from rocketwire.hooks import HookSet

ROOT = Path(__file__).parents[2]

CODE = """
from rocketwire import AsyncProducer, Consumer, Message, Producer, Reader, SendFailedError

with Producer("127.0.0.1:9876", group="types") as producer:
    reveal_type(producer)
    reveal_type(producer.send(Message("t", b"x")))
    reveal_type(producer.send(Message("t", b"x")).queue.broker)
    reveal_type(producer.submit(Message("t", b"x")).result())
    reveal_type(producer.send_many([]))
    reveal_type(producer.health())
    reveal_type(producer.publish_queues("t"))

with Reader("127.0.0.1:9876") as reader:
    reveal_type(next(reader.read("t")).stored_at)

async def main() -> None:
    async with AsyncProducer("127.0.0.1:9876") as twin:
        reveal_type(await twin.send(Message("t", b"x")))
        reveal_type(await twin.publish_queues("t"))

try:
    pass
except SendFailedError as error:
    reveal_type(error.outcome)
    reveal_type(error.attempts)
"""

EXPECTED = [
    "rocketwire.sync.producer.Producer",
    "rocketwire.send_result.SendResult",
    "str",
    "rocketwire.send_result.SendResult",
    "list[rocketwire.send_result.SendResult]",
    "tuple[rocketwire.fault_policy.BrokerHealth, ...]",
    "tuple[tuple[str, str, int, fallback=rocketwire.message_queue.MessageQueue], ...]",
    "datetime.datetime",
    "rocketwire.send_result.SendResult",
    "tuple[tuple[str, str, int, fallback=rocketwire.message_queue.MessageQueue], ...]",
    "rocketwire.errors.Outcome",
    "tuple[rocketwire.errors.Attempt, ...]",
]


def test_editors_are_told_the_types_of_everything_that_users_call(tmp_path):
    script = tmp_path / "user_code.py"
    script.write_text(CODE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-color-output", str(script)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=ROOT,
    )
    revealed = [
        line.split('Revealed type is "')[1].rstrip('"')
        for line in done.stdout.splitlines()
        if "Revealed type is" in line
    ]
    shown = [text.replace("builtins.", "").replace("def () -> ", "") for text in revealed]
    assert shown == EXPECTED, done.stdout + done.stderr
    assert " error: " not in done.stdout


def test_the_table_of_hooks_has_each():
    page = (ROOT / "docs" / "howto" / "middleware.md").read_text()
    rows = page.partition("## Middleware or hook")[2].partition("## ")[0]
    cells = [line.split("|")[1] for line in rows.splitlines() if line.startswith("|")]
    told = set(re.findall(r"`(\w+)`", " ".join(cells)))
    assert told == set(HookSet.__slots__)
