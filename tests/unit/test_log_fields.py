"""Records that can be searched: every one has the fields, and every logger is known."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import pytest

from rocketwire import BrokerError, Message, MessageQueue, Outcome, SendFailedError
from rocketwire.core.group.handling import Failure, wanted_retry
from rocketwire.log_fields import FIELDS, LOGGERS, about
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.stored_message import encode_record

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rocketwire"
LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
}


def stored():
    properties = b"KEYS\x01order-7\x02UNIQ_KEY\x01A1\x02"
    record = encode_record(
        topic="orders",
        body=b"x",
        properties=properties,
        queue_id=3,
        reconsume_times=2,
        queue_offset=41,
    )
    (message,) = messages_in(record, broker="broker-a")
    return message


def loggers_in_source() -> dict[str, set[str]]:
    """Each logger with the levels at which it is used."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if path.name == "log_fields.py" or "cli" in path.parts:
            continue
        text = path.read_text()
        names = re.findall(r'logging\.getLogger\("(rocketwire[\w.]*)"\)', text)
        shared = re.search(r"import .*\blog\b", text)
        for name in names or (["rocketwire.consumer"] if shared else []):
            found.setdefault(name, set())
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in LEVELS
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id in {"log", "_log"}
                ):
                    found[name].add(LEVELS[node.func.attr])
    return found


def test_every_logger_is_in_the_table():
    assert set(loggers_in_source()) == set(LOGGERS)


def test_the_page_has_every_logger_and_its_levels():
    page = (ROOT / "docs" / "howto" / "logging-metrics.md").read_text()
    order = ["DEBUG", "INFO", "WARNING", "ERROR"]
    for name, levels in loggers_in_source().items():
        shown = ", ".join(level for level in order if level in levels)
        assert f"| `{name}` | {shown} | {LOGGERS[name]} |" in page


@pytest.mark.parametrize("name", sorted(LOGGERS))
def test_a_record_has_every_field_whatever_it_says(name, caplog):
    with caplog.at_level(logging.DEBUG):
        logging.getLogger(name).warning("nothing in particular")
    (record,) = caplog.records
    assert {field: getattr(record, field) for field in FIELDS} == dict.fromkeys(FIELDS)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (MessageQueue("t", "broker-b", 5), {"topic": "t", "broker": "broker-b", "queue": 5}),
        (Message("t", b"x", keys="k"), {"topic": "t", "keys": "k"}),
        (BrokerError(1, "no", "broker-c"), {"broker": "broker-c"}),
        (SendFailedError("no", outcome=Outcome.NOT_SENT), {"attempt": 0}),
        (
            stored(),
            {
                "topic": "orders",
                "broker": "broker-a",
                "queue": 3,
                "offset": 41,
                "keys": "order-7",
                "attempt": 3,
            },
        ),
        ("text", {}),
    ],
)
def test_what_the_arguments_tell_is_taken_from_them(argument, expected, caplog):
    logging.getLogger("rocketwire.consumer").warning("%s: %s", argument, "why")
    (record,) = caplog.records
    assert {f: getattr(record, f) for f in FIELDS if getattr(record, f) is not None} == expected


def test_what_is_given_is_stronger_than_the_arguments(caplog):
    queue = MessageQueue("t", "broker-b", 5)
    extra = about(queue, group="g", offset=7, topic="other")
    logging.getLogger("rocketwire.consumer").warning("%s", queue, extra=extra)
    (record,) = caplog.records
    assert (record.topic, record.group, record.offset, record.queue) == ("other", "g", 7, 5)


def test_a_failed_handler_is_logged_with_all_fields(caplog):
    wanted_retry(Failure(ValueError("no")), stored(), "billing")
    (record,) = caplog.records
    assert {field: getattr(record, field) for field in FIELDS} == {
        "topic": "orders",
        "queue": 3,
        "broker": "broker-a",
        "group": "billing",
        "offset": 41,
        "keys": "order-7",
        "attempt": 3,
    }


def test_the_records_of_groups_name_the_group():
    """The rule for core/group: a record there has the group, by ``extra=about(...)``."""
    without = []
    for path in (SOURCE / "core" / "group").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in {"log", "_log"}
                and "extra" not in {word.arg for word in node.keywords}
            ):
                without.append(f"{path.name}:{node.lineno}")  # noqa: PERF401 - as a list it can't be read
    assert without == []
