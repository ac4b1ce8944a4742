"""Operations that are cut off at each of their steps, as by a kill of their process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.wire_tools import reply_from

from rocketwire.core.effects import InvokeAll, Op, Sleep
from rocketwire.errors import ConnectionLostError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command


def cut_off_at_every_step(
    run: Callable[[Op[Any]], Any], make: Callable[[], Op[Any]]
) -> Iterator[int]:
    """Begin an operation again and again; each time it ends one step later.

    Once before the step is made, and once after, when its answer is on the way. Yields after each
    of them, so that the test can begin anew, and ends with an operation that came to its end.

    Args:
        run: runs an operation on a client.
        make: the operation to cut off; called for each.
    """
    number = 0
    while True:
        for is_made in (False, True):
            if _run_until(run, make(), number, is_made=is_made):
                return
            yield number
        number += 1


def _run_until(
    run: Callable[[Op[Any]], Any], operation: Op[Any], last: int, *, is_made: bool
) -> bool:
    """Run some steps; True if that was the whole of it."""
    answer: Any = None
    step = 0
    try:
        effect = next(operation)
        while True:
            if step == last and not is_made:
                return False
            try:
                answer = run(_only(effect))
            except Exception as error:
                effect = operation.throw(error)
            else:
                if step == last:
                    return False
                effect = operation.send(answer)
            step += 1
    except StopIteration:
        return True
    finally:
        operation.close()


def _only(effect: Any) -> Op[Any]:
    return (yield effect)


def run_without_index(run: Callable[[Op[Any]], Any], operation: Op[Any]) -> Any:
    """Run an operation to which brokers answer that their index knows nothing."""
    answer: Any = None
    while True:
        try:
            effect = operation.send(answer)
        except StopIteration as end:
            return end.value
        if isinstance(effect, Sleep):
            answer = run(_only(effect))
        elif isinstance(effect, InvokeAll) and _asks_index(effect):
            nothing = Command(ResponseCode.QUERY_NOT_FOUND, remark="no", flag=RESPONSE)
            answer = [reply_from(nothing) for _ in effect.invokes]
        else:
            answer = run(_only(effect))


def _asks_index(effect: InvokeAll) -> bool:
    return all(call.request.code == RequestCode.QUERY_MESSAGE for call in effect.invokes)


def run_losing_answers(run: Callable[[Op[Any]], Any], operation: Op[Any], code: int) -> Any:
    """Run an operation whose requests of one kind are carried out, and their answers are lost."""
    answer: Any = None
    while True:
        try:
            effect = operation.send(answer)
        except StopIteration as end:
            return end.value
        answer = run(_only(effect))
        if isinstance(effect, InvokeAll) and all(c.request.code == code for c in effect.invokes):
            answer = [ConnectionLostError("lost", written=True) for _ in effect.invokes]
