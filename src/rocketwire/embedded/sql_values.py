"""Values of SQL92 filters and how they compare: Java's types, null rules and number formats.

Every type is known before a message comes: properties are text, the rest are constants. So each
comparison is chosen once, when an expression is read, and a message only pays for running it. What
Java answers with an exception is :class:`NotComparableError` here: such a message does not match.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Properties = Mapping[str, str]
#: True, False or None (unknown) for conditions; text or a number for operands.
Evaluate = Callable[[Properties], Any]
Compare = Callable[[Any, Any], int]

_INT: Final = (-(1 << 31), (1 << 31) - 1)
_LONG: Final = (-(1 << 63), (1 << 63) - 1)
_WHOLE: Final = re.compile(r"[+-]?[^\W_a-zA-Z]+")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
#: What Java's ``trim`` removes.
_BLANKS: Final = "".join(map(chr, range(33)))


class NotComparableError(Exception):
    """Two values of a message can't be compared; the message does not match."""


class Kind(enum.Enum):
    """Java's type of a value. ``NOTHING`` is always null."""

    TEXT = "text"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NOTHING = "nothing"


NUMBERS: Final = frozenset({Kind.INT, Kind.LONG, Kind.DOUBLE})


@dataclass(frozen=True, slots=True)
class Term:
    """A part of an expression.

    Attributes:
        kind: of its value.
        evaluate: gives the value for a message's properties.
        name: of the property that it is, if it is one.
        is_constant: whether it is a literal; one with a sign is none.
        is_condition: whether it may stand where true or false is wanted.
        value: of a literal.
    """

    kind: Kind
    evaluate: Evaluate
    name: str | None = None
    is_constant: bool = False
    is_condition: bool = False
    value: Any = None


def constant(kind: Kind, value: Any) -> Term:
    """A literal."""
    condition = kind in {Kind.BOOLEAN, Kind.NOTHING}
    return Term(kind, lambda _: value, is_constant=True, is_condition=condition, value=value)


def whole_number(text: str) -> Term:
    """A literal of digits, maybe with an L; OverflowError when it is no long."""
    digits = text.rstrip("lL").lstrip("0") or "0"
    if len(digits) > 19 or int(digits) > _LONG[1]:
        raise OverflowError(text)
    value = int(digits)
    return constant(Kind.INT if value <= _INT[1] else Kind.LONG, value)


def decimal_number(text: str) -> Term:
    """A literal with a point or an exponent; OverflowError when it is 0 or infinite, as in Java."""
    value = float(text)
    if value == 0.0 or value == float("inf"):
        raise OverflowError(text)
    return constant(Kind.DOUBLE, value)


def condition(evaluate: Evaluate) -> Term:
    """Something that is true, false or unknown."""
    return Term(Kind.BOOLEAN, evaluate, is_condition=True)


def named(name: str) -> Term:
    """A property."""
    return Term(Kind.TEXT, lambda properties: properties.get(name), name=name)


def is_present_as_boolean(term: Term) -> Term:
    """A property where a condition is wanted: text is never true."""
    name = term.name

    def evaluate(properties: Properties) -> bool | None:
        return None if properties.get(name) is None else False  # type: ignore[arg-type]

    return condition(evaluate)


def negated(term: Term) -> Term:
    """A term with a minus sign: null unless it is a number."""
    inner = term.evaluate
    if term.kind in NUMBERS:
        return Term(term.kind, lambda properties: -inner(properties))

    def evaluate(properties: Properties) -> None:
        inner(properties)

    return Term(Kind.NOTHING, evaluate)


# Comparing


def _order(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _order_doubles(left: float, right: float) -> int:
    """As ``Double.compareTo``: -0.0 is less than 0.0, and NaN is equal to itself and the largest."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _order(_double_rank(left), _double_rank(right))


def _double_rank(value: float) -> int:
    if value != value:  # noqa: PLR0124 - that is how NaN shows
        return 2
    return 1 if value or str(value)[0] != "-" else 0


def _whole(text: str, limits: tuple[int, int]) -> int:
    if not (text.isascii() and text.isdigit()):
        digits = text.lstrip("+-")
        if not (_WHOLE.fullmatch(text) and digits.isdecimal() and max(digits) <= "\uffff"):
            raise NotComparableError(f"{text!r} is no whole number")
    # Any sender may write a property, and Python makes no number of digits without end.
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits) * (-1 if text[0] == "-" else 1) if len(digits) < 20 else None
    if value is None or not limits[0] <= value <= limits[1]:
        raise NotComparableError(f"{text[:40]!r} is out of range")
    return value


def parse_double(text: str) -> float:
    """A number in any notation that Java reads."""
    text = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(text):
        return float(text.rstrip("fFdD") if text[-1] not in "yN" else text)
    found = _HEX_DOUBLE.fullmatch(text)
    if found is None:
        raise NotComparableError(f"{text!r} is no number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf" if text[0] == "-" else "inf")


#: How text is read when it meets a value of another type.
_READ: Final[dict[Kind, Callable[[str], Any]]] = {
    Kind.INT: lambda text: _whole(text, _INT),
    Kind.LONG: lambda text: _whole(text, _LONG),
    Kind.DOUBLE: parse_double,
    Kind.BOOLEAN: lambda text: text.lower() == "true",
}


def _never(_left: Any, _right: Any) -> int:
    return -1


def _fails(_left: Any, _right: Any) -> int:
    raise NotComparableError("a condition can't be compared with text")


def comparison(left: Kind, right: Kind) -> Compare:
    """How two values that are not null are compared: less than, equal to or more than 0."""
    order = _order_doubles if Kind.DOUBLE in {left, right} else _order
    if left is right:
        return order
    if left is Kind.BOOLEAN:
        return _fails if right is Kind.TEXT else _never
    if left is Kind.TEXT and right in _READ:
        read = _READ[right]
        return lambda a, b: order(read(a), b)
    if right is Kind.TEXT and left in _READ:
        read = _READ[left]
        return lambda a, b: order(a, read(b))
    if left in NUMBERS and right in NUMBERS:
        if order is _order:
            return order
        return lambda a, b: order(float(a), float(b))
    return _never


def equal(left: Term, right: Term) -> Term:
    """Whether two terms are equal; two nulls are."""
    one, other, compare = left.evaluate, right.evaluate, comparison(left.kind, right.kind)

    def evaluate(properties: Properties) -> bool | None:
        a, b = one(properties), other(properties)
        if a is None:
            return True if b is None else None
        return False if b is None else compare(a, b) == 0

    return condition(evaluate)


def ordered(left: Term, right: Term, holds: Callable[[int], bool]) -> Term:
    """Whether one term is less or more than another; two texts are compared as numbers."""
    one, other, compare = left.evaluate, right.evaluate, comparison(left.kind, right.kind)
    if left.kind is right.kind is Kind.TEXT:

        def compare(a: str, b: str) -> int:
            return _order_doubles(parse_double(a), parse_double(b))

    def evaluate(properties: Properties) -> bool | None:
        a = one(properties)
        if a is None:
            return None
        b = other(properties)
        return None if b is None else holds(compare(a, b))

    return condition(evaluate)


# Conditions


def negation(term: Term) -> Term:
    """NOT; unknown stays unknown."""
    inner = term.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value: bool | None = inner(properties)
        return None if value is None else not value

    return condition(evaluate)


def combined(terms: Sequence[Term], *, decisive: bool) -> Term:
    """AND (which False decides) or OR (which True decides) of several conditions."""
    if len(terms) == 1:
        return terms[0]
    parts = tuple(term.evaluate for term in terms)

    def evaluate(properties: Properties) -> bool | None:
        unknown = False
        for part in parts:
            value: bool | None = part(properties)
            if value is None:
                unknown = True
            elif value is decisive:
                return decisive
        return None if unknown else not decisive

    return condition(evaluate)


def member(term: Term, texts: Sequence[str], *, inside: bool) -> Term:
    """Whether a property is one of some texts, or none of them."""
    name, wanted = term.name or "", frozenset(texts)

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in wanted) is inside

    return condition(evaluate)


def searched(term: Term, test: Callable[[str], bool] | None, *, wanted: bool) -> Term:
    """CONTAINS, STARTSWITH, ENDSWITH and their negations: false for all but text.

    Without a test, for a search for nothing, it is always false.
    """
    inner = term.evaluate

    def evaluate(properties: Properties) -> bool:
        if test is None:
            return False
        value = inner(properties)
        return isinstance(value, str) and test(value) is wanted

    return condition(evaluate)
