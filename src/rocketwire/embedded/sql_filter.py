"""SQL92 expressions over properties, as Apache's brokers read and evaluate them (5.x).

The grammar is theirs with its habits: what follows a whole expression is not looked at, ``0.0`` is
no number, and only literals of text stand in IN. Unlike theirs, an error tells its position. How
values compare is in ``sql_values``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from rocketwire.embedded import sql_values as values
from rocketwire.embedded.sql_values import NUMBERS, Kind, NotComparableError, Properties, Term
from rocketwire.errors import RocketMQError

_SKIP: Final = re.compile(
    r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*"
)
_TOKEN: Final = re.compile(
    r"(?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<whole>0|[1-9][0-9]*[lL]?)"
    r"|(?P<text>'(?:''|[^'])*')"
    r"|(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+-])"
)
_WORDS: Final = frozenset(
    [
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    ]
)
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_SEARCHES: Final[dict[str, Callable[[str], Callable[[str], bool]]]] = {
    "CONTAINS": lambda wanted: lambda text: wanted in text,
    "STARTSWITH": lambda wanted: lambda text: text.startswith(wanted),
    "ENDSWITH": lambda wanted: lambda text: text.endswith(wanted),
}
_LITERALS: Final = {
    "TRUE": values.constant(Kind.BOOLEAN, value=True),
    "FALSE": values.constant(Kind.BOOLEAN, value=False),
    "NULL": values.constant(Kind.NOTHING, None),
}
#: Brackets and signs inside one another.
_DEPTH: Final = 100


class ExpressionError(RocketMQError):
    """An expression can't be read. ``position`` counts characters from 1."""

    def __init__(self, problem: str, position: int, near: str) -> None:
        where = f"near {near!r}" if near else "at its end"
        super().__init__(f"Invalid MessageSelector: {problem}, at position {position}, {where}")
        self.position = position


class SqlFilter:
    """A compiled expression.

    Raises:
        ExpressionError: it can't be read.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._evaluate = _Parser(expression).read().evaluate

    def evaluate(self, properties: Properties) -> bool | None:
        """True, False, or None when that is unknown.

        Raises:
            NotComparableError: two values can't be compared.
        """
        result: bool | None = self._evaluate(properties)
        return result

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties is wanted."""
        try:
            return self._evaluate(properties) is True
        except NotComparableError:
            return False


class _Token(NamedTuple):
    """``kind`` is a word or a sign itself, or what sort of literal it is; "" at the end."""

    kind: str
    text: str
    at: int


class _Parser:
    """Reads one expression from its beginning. Tokens are looked at only when they are needed."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._ahead: list[_Token] = []
        self._depth = 0

    def read(self) -> Term:
        return self._condition(self._either())

    # Tokens

    def _lex(self) -> _Token:
        skipped = _SKIP.match(self._source, self._at)
        at = skipped.end() if skipped is not None else self._at
        if at == len(self._source):
            return _Token("", "", at)
        found = _TOKEN.match(self._source, at)
        if found is None:
            raise self._error("there is a character that has no meaning", _Token("", "", at))
        self._at = found.end()
        kind, text = str(found.lastgroup), found[0]
        if kind == "sign" or (kind == "name" and text.upper() in _WORDS):
            kind = text.upper()
        return _Token(kind, text, at)

    def _peek(self, number: int = 0) -> _Token:
        while len(self._ahead) <= number:
            self._ahead.append(self._lex())
        return self._ahead[number]

    def _take(self) -> _Token:
        token = self._peek()
        del self._ahead[0]
        return token

    def _accept(self, *kinds: str) -> bool:
        if self._peek().kind in kinds:
            del self._ahead[0]
            return True
        return False

    def _expect(self, kind: str, what: str = "") -> _Token:
        token = self._take()
        if token.kind != kind:
            raise self._error(f"{what or kind} is expected", token)
        return token

    def _error(self, problem: str, token: _Token) -> ExpressionError:
        return ExpressionError(problem, token.at + 1, self._source[token.at : token.at + 20])

    def _refuse(self, problem: str, token: _Token) -> NoReturn:
        raise self._error(problem, token)

    # Conditions

    def _condition(self, term: Term, token: _Token | None = None) -> Term:
        if term.is_condition:
            return term
        if term.name is not None:
            return values.is_present_as_boolean(term)
        start = token if token is not None else _Token("", "", 0)
        raise self._error("a condition is expected, and this is a value", start)

    def _either(self) -> Term:
        return self._chain("OR", self._all, decisive=True)

    def _all(self) -> Term:
        return self._chain("AND", self._equality, decisive=False)

    def _chain(self, word: str, read: Callable[[], Term], *, decisive: bool) -> Term:
        first = self._peek()
        term = read()
        if self._peek().kind != word:
            return term
        terms = [self._condition(term, first)]
        while self._accept(word):
            start = self._peek()
            terms.append(self._condition(read(), start))
        return values.combined(terms, decisive=decisive)

    def _equality(self) -> Term:
        first = self._peek()
        term = self._comparison()
        while (token := self._peek()).kind in {"=", "<>", "IS"}:
            self._take()
            if token.kind == "IS":
                is_not = self._accept("NOT")
                self._expect("NULL")
                term = values.equal(term, _LITERALS["NULL"])
            else:
                is_not = token.kind == "<>"
                term = self._equal(term, first)
            term = values.negation(term) if is_not else term
        return term

    def _equal(self, left: Term, token: _Token) -> Term:
        at = self._peek()
        right = self._comparison()
        for term, where in ((left, token), (right, at)):
            if term.is_constant and term.kind is Kind.NOTHING:
                self._refuse("NULL can't be compared: write IS NULL or IS NOT NULL", where)
        if left.is_constant and right.is_constant and left.is_condition and not right.is_condition:
            self._refuse("TRUE and FALSE can't be compared with a value", token)
        return values.equal(left, right)

    # Comparisons

    def _comparison(self) -> Term:
        first = self._peek()
        term = self._unary()
        while True:
            kind = self._peek().kind
            if kind in _ORDERS:
                self._take()
                at = self._peek()
                term = self._ordered(term, first, self._unary(), at, kind)
            elif kind in _SEARCHES or kind in {"NOT", "BETWEEN", "IN"}:
                inside = not self._accept("NOT")
                term = self._predicate(term, first, inside=inside)
            else:
                return term

    def _predicate(self, term: Term, first: _Token, *, inside: bool) -> Term:
        token = self._take()
        if token.kind == "BETWEEN":
            return self._between(term, first, inside=inside)
        if token.kind == "IN":
            return self._member(term, first, inside=inside)
        if token.kind in _SEARCHES:
            wanted = self._literal_text()
            test = _SEARCHES[token.kind](wanted) if wanted else None
            return values.searched(term, test, wanted=inside)
        return self._refuse("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH is expected", token)

    def _ordered(self, left: Term, at: _Token, right: Term, other: _Token, sign: str) -> Term:
        for term, where in ((left, at), (right, other)):
            if term.is_condition or (term.is_constant and term.kind not in NUMBERS):
                self._refuse(f"only numbers and properties can be compared by {sign}", where)
        return values.ordered(left, right, _ORDERS[sign])

    def _between(self, term: Term, first: _Token, *, inside: bool) -> Term:
        low_at = self._peek()
        low = self._unary()
        self._expect("AND")
        high_at = self._peek()
        high = self._unary()
        if not inside:
            below = self._ordered(term, first, low, low_at, "<")
            above = self._ordered(term, first, high, high_at, ">")
            return values.combined([below, above], decisive=True)
        from_low = self._ordered(term, first, low, low_at, ">=")
        to_high = self._ordered(term, first, high, high_at, "<=")
        literal = low.is_constant and high.is_constant
        if literal and values.comparison(high.kind, low.kind)(high.value, low.value) < 0:
            self._refuse("BETWEEN has its larger value first: write the smaller one", low_at)
        return values.combined([from_low, to_high], decisive=False)

    def _member(self, term: Term, first: _Token, *, inside: bool) -> Term:
        self._expect("(")
        texts = [self._literal_text()]
        while self._accept(","):
            texts.append(self._literal_text())
        self._expect(")")
        if term.name is None:
            self._refuse("IN is for properties only", first)
        return values.member(term, texts, inside=inside)

    def _literal_text(self) -> str:
        token = self._expect("text", "a text in single quotes")
        return token.text[1:-1].replace("''", "'")

    # Values

    def _unary(self) -> Term:
        self._depth += 1
        if self._depth > _DEPTH:
            self._refuse(f"it is nested more than {_DEPTH} deep", self._peek())
        try:
            if self._accept("+"):
                return self._unary()
            if self._accept("-"):
                return values.negated(self._unary())
            if self._accept("NOT"):
                start = self._peek()
                return values.negation(self._condition(self._unary(), start))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> Term:
        token = self._take()
        if token.kind == "(":
            term = self._either()
            self._expect(")")
            return term
        if token.kind == "name":
            return values.named(token.text)
        if token.kind == "text":
            return values.constant(Kind.TEXT, token.text[1:-1].replace("''", "'"))
        if token.kind in _LITERALS:
            return _LITERALS[token.kind]
        return self._number(token)

    def _number(self, token: _Token) -> Term:
        try:
            if token.kind == "whole":
                return values.whole_number(token.text)
            if token.kind == "decimal":
                return values.decimal_number(token.text)
        except OverflowError:
            self._refuse("the number is out of range (0.0 is, too: write 0)", token)
        return self._refuse("a property, a number or a text in single quotes is expected", token)
