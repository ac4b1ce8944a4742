"""What a person sees when a command fails: one line, and an exit code that scripts understand."""

from __future__ import annotations

import json
import re
import sys
import traceback
from typing import Any, Final

import typer

from rocketwire.cli.safe_text import visible, visible_lines
from rocketwire.errors import ConfigError, InvalidMessageError, RocketMQError, SendFailedError

#: The last line of a traceback: what kind of error, and what it says.
_RAISED: Final = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception)): (.+)")
_OF_JAVA: Final = ("org.", "java.", "scala.", "py4j.", "pyspark.")

OK: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130


class UsageError(Exception):
    """The command was called wrongly; the text says how to call it."""


class CommandFailedError(Exception):
    """The command could not do what it was asked; the text says why and what to do."""


class _Wishes:
    """How this process reports failures; set by the options of whichever command runs."""

    debug = False
    as_json = False


wishes = _Wishes()


def report(error: Exception) -> int:
    """Print a failure to standard error; returns the exit code."""
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if type(error).__name__ == "NoArgsIsHelpError":  # the help is on the screen, and says it all
        return MISUSED
    if wishes.debug:
        print(visible_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if wishes.as_json:
        print(json.dumps(_described(error)), file=sys.stderr)
    else:
        print(f"rocketwire: {visible_lines(_sentence(error))}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(f"  {visible(note)}", file=sys.stderr)
    return _exit_code(error)


def _exit_code(error: Exception) -> int:
    if isinstance(error, UsageError | ConfigError | InvalidMessageError):
        return MISUSED
    # Usage errors of typer's own parser, whose classes have moved between its versions.
    code = getattr(error, "exit_code", FAILED)
    return code if isinstance(code, int) else FAILED


def _sentence(error: Exception) -> str:
    formatted = getattr(error, "format_message", None)
    if callable(formatted):
        where = getattr(error, "ctx", None)
        path = where.command_path if where is not None else "rocketwire"
        return f"{formatted()} (see {path} --help)"
    if isinstance(error, RocketMQError | UsageError | CommandFailedError):
        return _one_line(str(error))
    if isinstance(error, OSError) and error.strerror:
        name = f" {error.filename}" if error.filename is not None else ""
        return f"{error.strerror}{name}"
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return f"{_of_spark(str(error))} (--debug shows the rest)"
    return f"{type(error).__name__}: {_one_line(str(error))} (--debug shows where)"


def _of_spark(text: str) -> str:
    """The sentence that was meant for people in an error that passed through Spark.

    It stands at the end of a worker's traceback, between others of Java and Spark's plans.
    """
    lines = [line.removeprefix("Caused by: ") for line in text.splitlines() if line.strip()]
    raised = [found for line in lines if (found := _RAISED.match(line))]
    ours = [found[2] for found in raised if found[1].startswith("rocketwire.")]
    users = [found[0] for found in raised if not found[1].startswith(_OF_JAVA)]
    told = (ours or users or lines or ["Spark gives no reason"])[-1 if ours or users else 0]
    return _one_line(re.sub(r"\s*SQLSTATE: \w+$", "", told.strip()))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _described(error: Exception) -> dict[str, Any]:
    found: dict[str, Any] = {"error": type(error).__name__, "message": _sentence(error)}
    if isinstance(error, SendFailedError):
        found["outcome"] = error.outcome.value
        found["attempts"] = [
            {"broker": a.broker, "latency": a.latency, "error": str(a.error)}
            for a in error.attempts
        ]
    return found
