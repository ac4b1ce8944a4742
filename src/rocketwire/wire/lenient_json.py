"""JSON as RocketMQ's servers write it, which is not always JSON.

Their library writes keys that are not strings bare: ``{0:"10.0.0.1:10911"}`` in routes, and whole
objects as keys, ``{{"topic":"T"}:{"maxOffset":5}}``, in topic statistics. It also reads single
quotes, bare names and stray commas, so old tools write those.

What comes out is what :func:`json.loads` would give, with two rules of our own: a bare scalar key
becomes its text, so that ``{0:1}`` and ``{"0":1}`` read the same; an object with a key that is an
object or an array becomes :class:`Pairs`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import accumulate
from typing import Any, Final

from rocketwire.errors import LocalProtocolError, RemoteProtocolError

#: A document is never larger than a frame.
MAX_SIZE: Final = 16 * 1024 * 1024
#: RocketMQ's own documents are at most seven deep.
MAX_DEPTH: Final = 64
#: What only the forgiving reader can read takes it a second a MiB, and a client may wait for it on
#: its event loop. The routes of a thousand brokers fit, which only old name servers write so.
MAX_TOLERANT: Final = 256 * 1024


class Pairs(list[tuple[Any, Any]]):
    """An object whose keys can't be keys of a dict: its keys and values in order."""

    __slots__ = ()


def pairs(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of an object, whichever way it came out.

    Raises:
        RemoteProtocolError: it is not an object.
    """
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, Pairs):
        return value
    raise RemoteProtocolError(f"expected a JSON object, found {shown(value)}")


def shown(value: Any) -> str:
    """A value for an error's text: never long, and never deep, whatever a peer sent."""
    if isinstance(value, (dict, Pairs)):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = json.dumps(value[:40] if isinstance(value, str) else value)
    return text if len(text) <= 80 or isinstance(value, str) else f"{text[:40]}..."


def loads(
    data: bytes | bytearray | memoryview | str,
    *,
    limit: int = MAX_SIZE,
    tolerant_limit: int = MAX_TOLERANT,
) -> Any:
    """The value of a document.

    Args:
        data: the document.
        limit: its greatest size.
        tolerant_limit: its greatest size where it is no standard JSON; more is for those who may
            wait, such as commands and programs that read files.

    Raises:
        RemoteProtocolError: it is too large, too deep, not UTF-8, or JSON of no kind.
    """
    if len(data) > limit:
        raise RemoteProtocolError(f"a JSON document of {len(data)} bytes, at most {limit} expected")
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a JSON document is not UTF-8: {error}") from None
    check_depth(text)
    try:
        return json.loads(text)
    except ValueError as error:
        if len(text) > tolerant_limit:
            raise RemoteProtocolError(
                f"{len(text)} characters that are no standard JSON ({error}), at most "
                f"{tolerant_limit} expected"
            ) from None
        return loads_tolerant(text)


def check_depth(text: str) -> None:
    """Refuse what is nested too deeply, before anything recurses into it.

    Raises:
        RemoteProtocolError: it is more than ``MAX_DEPTH`` deep.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    # By functions that do the whole in C, for any text: what is no standard JSON may come out
    # deeper than it is (brackets in single quotes), which is no loss.
    marks = _beside_marks().sub("", text)
    if max(accumulate(map(_STEPS.__getitem__, marks)), default=0) > MAX_DEPTH:
        raise RemoteProtocolError(f"a JSON document is more than {MAX_DEPTH} deep")


_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


@cache
def _beside_marks() -> re.Pattern[str]:
    """Everything but the marks that nest: texts, and what is between them."""
    return re.compile(r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[^"\[\]{}]++)++', re.DOTALL)


@cache
def _token_pattern() -> re.Pattern[str]:
    """Compiled when first needed: most clients only ever meet standard JSON."""
    # Possessive quantifiers: a hostile text can't make the expression try again and again.
    return re.compile(
        r"""\s*+(?:
            (?P<mark>[{}\[\]:,])
          | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+')
          | (?P<number>-?\d++(?:\.\d++)?+(?:[eE][+-]?\d++)?+)
          | (?P<word>[A-Za-z_$][\w$]*+)
        )""",
        re.VERBOSE | re.DOTALL | re.ASCII,
    )


@cache
def _escape_pattern() -> re.Pattern[str]:
    return re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_WORDS: Final[dict[str, Any]] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
}

_KEY, _COLON, _VALUE, _COMMA = "a key", "a colon", "a value", "a comma"


class _Container:
    """An object or an array that is being read, and what it waits for."""

    __slots__ = ("awaits", "has_odd_key", "is_object", "items", "key")

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.items: list[Any] = []
        self.key: Any = None
        self.has_odd_key = False
        self.awaits = _KEY if is_object else _VALUE

    def take(self, value: Any, raw: str | None) -> None:
        """A value has ended; ``raw`` is its text when it was a scalar."""
        if self.awaits is _KEY:
            self.has_odd_key |= raw is None
            self.key = value if raw is None else raw
            self.awaits = _COLON
        elif self.awaits is _VALUE:
            self.items.append((self.key, value) if self.is_object else value)
            self.awaits = _COMMA
        else:
            raise ValueError(f"{self.awaits} expected")

    def separate(self, mark: str) -> None:
        """A comma or a colon. Commas more than needed are overlooked."""
        if mark == ":":
            if self.awaits is not _COLON:
                raise ValueError(f"{self.awaits} expected, not a colon")
            self.awaits = _VALUE
        elif self.awaits is _COLON or (self.awaits is _VALUE and self.is_object):
            raise ValueError(f"{self.awaits} expected, not a comma")
        else:
            self.awaits = _KEY if self.is_object else _VALUE

    def close(self, mark: str) -> Any:
        if mark != ("}" if self.is_object else "]"):
            raise ValueError(f"{mark} closes nothing")
        if not self.is_object:
            return self.items
        if self.awaits in {_COLON, _VALUE}:
            raise ValueError(f"{self.awaits} expected before {mark}")
        return Pairs(self.items) if self.has_odd_key else dict(self.items)


def loads_tolerant(text: str) -> Any:
    """Read without :mod:`json`: slower, forgiving, and without recursion.

    Raises:
        RemoteProtocolError: it is too deep, or JSON of no kind.
    """
    position, end = 0, len(text.rstrip())
    # The outermost array is ours: it collects the one value that the document is.
    stack = [_Container(is_object=False)]
    top, match = stack[0], _token_pattern().match
    try:
        # Not finditer, which would search on from every place of a text that never ends.
        while (token := match(text, position, end)) is not None:
            position = token.end()
            kind = token.lastgroup
            piece = token[kind]  # type: ignore[index]
            if kind != "mark":
                value, raw = _scalar(str(kind), piece, is_key=top.awaits is _KEY)
                top.take(value, raw)
            elif piece in ",:":
                _separate(stack, piece)
            else:
                top = _nest(stack, piece)
        return _only_value(stack, is_whole=position >= end)
    except (ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"bad JSON near character {position}: {error}") from None


def _only_value(stack: list[_Container], *, is_whole: bool) -> Any:
    if not is_whole:
        raise ValueError("what follows is nothing that JSON knows")
    if len(stack) > 1:
        raise ValueError("it is cut short")
    if len(stack[0].items) != 1:
        raise ValueError("it is not one value")
    return stack[0].items[0]


def _separate(stack: list[_Container], mark: str) -> None:
    if len(stack) == 1:
        raise ValueError(f"{mark} outside of everything")
    stack[-1].separate(mark)


def _nest(stack: list[_Container], mark: str) -> _Container:
    """Open or close an object or an array; the innermost one afterwards."""
    if mark in "{[":
        if len(stack) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} deep")
        stack.append(_Container(is_object=mark == "{"))
    else:
        if len(stack) == 1:
            raise ValueError(f"{mark} closes nothing")
        value = stack.pop().close(mark)
        stack[-1].take(value, None)
    return stack[-1]


def _scalar(kind: str, token: str, *, is_key: bool) -> tuple[Any, str]:
    """The value, and its text in case that it is a key."""
    if kind == "text":
        text = _unescape(token[1:-1])
        return text, text
    if is_key:
        return token, token
    if kind == "number":
        number = int(token) if token.lstrip("-").isdecimal() else float(token)
        return number, token
    if token not in _WORDS:
        raise ValueError(f"{token[:40]} is no value")
    return _WORDS[token], token


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    whole = _escape_pattern().sub(_unescape_one, text)
    # A character beyond the first plane comes as two escapes; joined here, lone halves stay.
    return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescape_one(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    if digits:
        return chr(int(digits, 16))
    return _ESCAPED.get(found[3], found[3])


def dumps(value: Any, *, standard: bool = True) -> bytes:
    """A document as RocketMQ's servers write it, without any blanks.

    Args:
        value: what :mod:`json` takes; keys may be ints too, and :class:`Pairs` stand for objects
            with objects as keys.
        standard: quoted and sorted keys, ASCII only, as a name server writes when it was asked
            for standard JSON; otherwise ints as keys stay bare and nothing is escaped or sorted.
    """
    parts: list[str] = []
    try:
        _write(value, parts, standard=standard, depth=0)
        return "".join(parts).encode()
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"this can't be written as JSON: {error}") from None


def _write(value: Any, parts: list[str], *, standard: bool, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} deep")
    if isinstance(value, (dict, Pairs)):
        items = list(value.items() if isinstance(value, dict) else value)
        if standard and isinstance(value, dict):
            items.sort(key=lambda item: str(item[0]))
        _write_object(items, parts, standard=standard, depth=depth)
    elif isinstance(value, (list, tuple)):
        mark = "["
        for item in value:
            parts.append(mark)
            _write(item, parts, standard=standard, depth=depth + 1)
            mark = ","
        parts.append("]" if value else "[]")
    else:
        parts.append(json.dumps(value, ensure_ascii=standard))


def _write_object(
    items: list[tuple[Any, Any]], parts: list[str], *, standard: bool, depth: int
) -> None:
    mark = "{"
    for key, value in items:
        parts.append(mark)
        quoted = str(key) if standard and type(key) is int else key
        _write(quoted, parts, standard=standard, depth=depth + 1)
        parts.append(":")
        _write(value, parts, standard=standard, depth=depth + 1)
        mark = ","
    parts.append("}" if items else "{}")
