"""Does something in the midst of a call, at any moment at which the interpreter could do it.

A signal handler runs behind a call, at the beginning of a function or where a loop goes round; it may
call anything, and raise. A finalizer or a weakref callback runs where an object is dropped or made; it may
call anything, and what it raises is lost. Between two moments of these kinds (``self.held += 1`` has
none) no code of anybody else runs on the thread.
"""

from __future__ import annotations

import dis
import gc
import sys
import threading
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

#: After these the interpreter looks whether a signal came.
_LOOKS = (
    "CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE",
)  # fmt: skip
#: And at these objects are dropped or made.
_DROPS = (
    "STORE_",
    "POP_TOP",
    "DELETE_",
    "BUILD_",
    "LIST_",
    "DICT_",
    "SET_",
    "RERAISE",
    "POP_EXCEPT",
)
_names: dict[CodeType, dict[int, str]] = {}
_guards: dict[CodeType, Callable[[int], int | None]] = {}


def _name(code: CodeType, at: int) -> str:
    known = _names.get(code)
    if known is None:
        known = _names[code] = {i.offset: i.opname for i in dis.get_instructions(code)}
    return known.get(at, "")


def _guard(code: CodeType, at: int) -> int | None:
    """Where an error goes that is raised at an instruction."""
    known = _guards.get(code)
    if known is None:
        table = dis._parse_exception_table(code)  # type: ignore[attr-defined]

        def find(offset: int) -> int | None:
            return next((e.target for e in table if e.start <= offset < e.end), None)

        known = _guards[code] = find
    return known(at)


class Moments:
    """Traces the calls of a thread, and does a deed at the n-th moment.

    Args:
        at: which moment; the first one is 0.
        deed: what is done there.
        raises: whether it raises: then only moments count at which a signal handler runs.
        modules: whose calls are traced, besides our own.
    """

    def __init__(
        self,
        at: int,
        deed: Callable[[], object],
        *,
        raises: bool,
        modules: tuple[str, ...] = ("threading", "queue"),
    ) -> None:
        self.count = 0
        self.where = ""
        self._at = at
        self._deed = deed
        self._raises = raises
        self._modules = modules
        self._before: dict[FrameType, int] = {}
        self._returned: set[FrameType] = set()

    def __enter__(self) -> Moments:
        gc.disable()  # finalizers of others are not part of the call
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    @property
    def is_done(self) -> bool:
        return self.count > self._at

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        if self.is_done or not (name.startswith("rocketwire") or name in self._modules):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.is_done:
            return None
        if event == "opcode":
            before = self._before.get(frame, -1)
            self._before[frame] = frame.f_lasti
            if self._is_moment(frame, before):
                self.count += 1
                if self.is_done:
                    self.where = "".join(traceback.format_stack(frame)[-4:])
                    self._before.clear()
                    self._returned.clear()
                    self._deed()
        elif event == "return":
            self._before.pop(frame, None)
            if frame.f_back is not None and frame.f_code.co_name != "__init__":
                self._returned.add(frame.f_back)
        return self._step

    def _is_moment(self, frame: FrameType, before: int) -> bool:
        code = frame.f_code
        if before < 0:
            return True  # the function begins
        last = _name(code, before)
        if last in _LOOKS:
            # Where a function in Python returns the interpreter does not look.
            if frame in self._returned:
                self._returned.discard(frame)
                return False
            return not self._raises or _guard(code, before) == _guard(code, frame.f_lasti)
        return not self._raises and last.startswith(_DROPS)


def run_bounded(work: Callable[[], object], limit: float) -> BaseException | None:
    """Run something on a thread of its own; what it raised. An error with its stack if it hangs."""
    raised: list[BaseException] = []

    def main() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        return TimeoutError(f"it hangs:\n{stack}")
    return raised[0] if raised else None
