"""What errors of Spark say, without what only its makers read."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """What an error of Spark says, without its plan and its stack."""
    for line in str(error).strip().splitlines():
        if not line.startswith("An error occurred while calling"):
            return line.removeprefix(": ")
    return type(error).__name__
