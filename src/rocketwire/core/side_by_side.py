"""Several operations side by side, over a driver that can have many requests under way at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketwire.core.effects import Effect, Invoke, InvokeAll, Op, Wait


def run_together(operations: Iterable[Op[None]]) -> Op[None]:
    """Run operations side by side where only requests can be: all wait for one another's answers.

    For the blocking shell, which can have several requests under way (``InvokeAll``) but no other
    waits. What is no request is waited for when no request is left, because one operation may
    wait for what another one is about to do.
    """
    together = list(operations)
    try:
        yield from _run(together)
    except BaseException:
        # An interrupt, in one of them or between two. The others hold keys and places until they are
        # ended, and the error keeps them alive.
        for operation in together:
            operation.close()
        raise


def _run(operations: Iterable[Op[None]]) -> Op[None]:
    waiting: list[tuple[Op[None], Effect]] = []
    for operation in operations:
        _step(operation, None, waiting)
    while waiting:
        calls: list[tuple[Op[None], Invoke]] = []
        others: list[tuple[Op[None], Effect]] = []
        rounds, waiting = waiting, []
        for operation, effect in rounds:
            if type(effect) is Invoke:
                calls.append((operation, effect))
            elif type(effect) is Wait and effect.event.is_set:
                _step(operation, True, waiting)  # noqa: FBT003 - the answer to a wait
            else:
                others.append((operation, effect))
        if calls:
            answers = yield InvokeAll(tuple(effect for _, effect in calls))
            for (operation, _), answer in zip(calls, answers, strict=True):
                _step(operation, answer, waiting)
            waiting += others
        elif not waiting:
            operation, effect = others.pop(0)
            answer = yield effect
            _step(operation, answer, waiting)
            waiting += others
        else:
            waiting += others


def _step(operation: Op[None], answer: Any, waiting: list[tuple[Op[None], Effect]]) -> None:
    try:
        if isinstance(answer, Exception):
            effect = operation.throw(answer)
        else:
            effect = operation.send(answer)
    except StopIteration:
        return
    waiting.append((operation, effect))
