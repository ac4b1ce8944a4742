"""SQL92 filters: what they mean, and that Apache's own classes agree about random ones."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rocketwire.embedded.sql_filter import ExpressionError, SqlFilter
from rocketwire.embedded.sql_values import NotComparableError

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.real import jars

SOURCE = Path(__file__).parent / "java" / "EvaluateFilters.java"
MESSAGE = {
    "price": "12", "rate": "2.5", "region": "eu", "name": "O'Neil", "flag": "True", "empty": "",
    "big": "3000000000", "TAGS": "paid", "hex": "0x1p3", "odd": " 7 ",
}  # fmt: skip

#: Expression, and what it is for ``MESSAGE``: T, F, N (unknown) or X (values can't be compared).
TABLE = [
    ("price > 10", "T"),
    ("price > 10 AND region IN ('a', 'eu')", "T"),
    ("price >= 12 and price <= 12 And price < 13", "T"),
    ("price = 12.0", "T"),
    ("price = '12'", "T"),
    ("price = '12.0'", "F"),
    ("12 = price", "T"),
    ("price <> 12", "F"),
    ("price BETWEEN 1 AND 12", "T"),
    ("price NOT BETWEEN 1 AND 12", "F"),
    ("price BETWEEN -5 AND -10", "F"),
    ("rate > 2", "X"),
    ("rate > 2.0", "T"),
    ("rate < price", "T"),
    ("region > 5", "X"),
    ("region > price", "X"),
    ("region = 5", "X"),
    ("region = 'eu'", "T"),
    ("region = 'EU'", "F"),
    ("region in ('a','b','c','d','eu')", "T"),
    ("region not in ('eu')", "F"),
    ("missing > 5", "N"),
    ("missing = 5", "N"),
    ("missing <> 5", "N"),
    ("missing IN ('a')", "N"),
    ("missing NOT IN ('a')", "N"),
    ("missing IS NULL", "T"),
    ("missing IS NOT NULL", "F"),
    ("price is null", "F"),
    ("price is not null", "T"),
    ("missing = gone", "T"),
    ("price = gone", "F"),
    ("price <> gone", "T"),
    ("missing > 5 OR price = 12", "T"),
    ("missing > 5 AND price = 12", "N"),
    ("missing > 5 AND price = 13", "F"),
    ("NOT (missing > 5)", "N"),
    ("name = 'O''Neil'", "T"),
    ("name CONTAINS '''N'", "T"),
    ("name NOT CONTAINS 'x'", "T"),
    ("name CONTAINS ''", "F"),
    ("name NOT CONTAINS ''", "F"),
    ("name STARTSWITH 'O'", "T"),
    ("name NOT STARTSWITH 'O'", "F"),
    ("name ENDSWITH 'eil'", "T"),
    ("missing CONTAINS 'a'", "F"),
    ("missing NOT CONTAINS 'a'", "F"),
    ("12 CONTAINS '1'", "F"),
    ("flag = TRUE", "T"),
    ("flag = FALSE", "F"),
    ("region = TRUE", "F"),
    ("TRUE = flag", "X"),
    ("TRUE", "T"),
    ("FALSE", "F"),
    ("NULL", "N"),
    ("NOT NULL", "N"),
    ("price", "F"),
    ("NOT price", "T"),
    ("missing", "N"),
    ("1 = TRUE", "F"),
    ("(price = 12) = TRUE", "T"),
    ("(price = 12) = region", "X"),
    ("big > 5", "X"),
    ("big > 5000000000", "F"),
    ("big = 3000000000", "T"),
    ("5000000000 > 5", "T"),
    ("5 < 5000000000", "T"),
    ("hex = 8.0", "T"),
    ("odd = 7.0", "T"),
    ("odd = 7", "X"),
    ("-price = 5", "N"),
    ("--5 = 5", "T"),
    ("price > -5", "T"),
    ("price > +5", "T"),
    ("price > -'5'", "N"),
    ("empty = ''", "T"),
    ("empty IS NULL", "F"),
    ("empty > 1", "X"),
    ("TAGS = 'paid'", "T"),
    ("tags = 'paid'", "N"),
    ("price > 1e1", "T"),
    ("rate > .5", "T"),
    ("rate > 1.", "T"),
    ("price = 12L", "T"),
    ("price = 12 -- a comment\n AND region = 'eu'", "T"),
    ("price = /* a * b */ 12", "T"),
    ("price = 12 and rubbish that follows", "N"),
    ("price = 12 rubbish that follows", "T"),
    ("price = 012", "F"),
    ("price LIKE '12'", "F"),
    ("price = 12 AND (region = 'a' OR NOT region = 'b')", "X"),
    ("price = 12 AND (region = 'a' OR NOT (region = 'b'))", "T"),
    ("region = 'eu' = TRUE", "T"),
]  # fmt: skip

#: Expressions that can't be read, and the position that is told.
WRONG = [
    ("", 1),
    ("   ", 4),
    ("price >", 8),
    ("price > 'a'", 9),
    ("'a' > price", 1),
    ("price = NULL", 9),
    ("NULL <> price", 1),
    ("TRUE = 5", 1),
    ("5", 1),
    ("'text'", 1),
    ("price > 5 AND 6", 15),
    ("price > TRUE", 9),
    ("(price = 1) > 5", 1),
    ("price BETWEEN 5 AND 1", 15),
    ("price BETWEEN 'a' AND 'b'", 15),
    ("price BETWEEN 1", 16),
    ("price BETWEEN NULL AND 5", 15),
    ("price IN (1, 2)", 11),
    ("price IN ()", 11),
    ("price IN ('a'", 14),
    ("5 IN ('5')", 1),
    ("NOT missing > 5", 1),
    ("price IS 5", 10),
    ("price NOT 5", 11),
    ("price = 0.0", 9),
    ("price = 1e999", 9),
    ("price = 9223372036854775808", 9),
    ("price = 'open", 9),
    ("price # 5", 7),
    ("price = 5 # 6", 11),
    ("(price = 5", 11),
    ("price CONTAINS 5", 16),
    ("-TRUE", 1),
    ("price != 5", 7),
    ("price == 5", 8),
    ("NOT 5", 5),
    ("(" * 150 + "price" + ")" * 150, 101),
]


def letter(found: SqlFilter, properties: dict[str, str]) -> str:
    try:
        value = found.evaluate(properties)
    except NotComparableError:
        return "X"
    return {True: "T", False: "F", None: "N"}[value]


def answer(expression: str, messages: list[dict[str, str]]) -> str:
    try:
        found = SqlFilter(expression)
    except ExpressionError:
        return "E"
    return "".join(letter(found, properties) for properties in messages)


@pytest.mark.parametrize(("expression", "expected"), TABLE)
def test_an_expression_means_what_it_means_to_apache(expression: str, expected: str) -> None:
    found = SqlFilter(expression)
    assert letter(found, MESSAGE) == expected
    assert found.matches(MESSAGE) is (expected == "T")


@pytest.mark.parametrize(("expression", "position"), WRONG)
def test_an_error_tells_its_position(expression: str, position: int) -> None:
    with pytest.raises(ExpressionError, match=rf"at position {position}, ") as failure:
        SqlFilter(expression)
    assert failure.value.position == position


@pytest.mark.parametrize(
    "digits", ["9" * 20, "9" * 5000, "-" + "9" * 5000, "x" * 5000, "\uff11" * 30]
)
def test_a_property_of_digits_without_end_is_a_message_that_does_not_fit(digits: str) -> None:
    # One such message made every pull of its queue fail.
    for expression in ("a > 1", "a = 1", "a < 1.5", "a BETWEEN 1 AND 2", "NOT (a > 1)"):
        SqlFilter(expression).matches({"a": digits})
    assert not SqlFilter("a > 1").matches({"a": digits})


def test_zeros_before_a_number_are_as_many_as_one_likes() -> None:
    assert SqlFilter("a = 7").matches({"a": "0" * 5000 + "7"})
    assert SqlFilter("a = -7").matches({"a": "-" + "0" * 5000 + "7"})
    with pytest.raises(ExpressionError):
        SqlFilter("a > " + "9" * 5000)


def test_a_long_chain_is_no_deep_one() -> None:
    assert SqlFilter(" AND ".join(["price = 12"] * 5000)).matches(MESSAGE)
    assert SqlFilter(" OR ".join(["price = 13"] * 5000 + ["price = 12"])).matches(MESSAGE)


# Apache's own classes

NAMES = ["a", "b", "c", "_d", "$e", "Price", "missing"]
TEXTS = [
    "", "a", "ab", "abc", "b", "true", "TRUE", "false", "5", "-5", "+5", "05", "0", "12", "5.0", "5.5",
    "5.", ".5", "1e3", "-1e-3", " 5", "5 ", "NaN", "Infinity", "-Infinity", "2147483647", "2147483648",
    "-2147483648", "9223372036854775807", "9223372036854775808", "5d", "5f", "0x1p3", "0x.8p1", "5L",
    "1_0", "\u0665", "\uff15", "\u00e4\u00f6", "it's", "''", "x y", "-0.0", "0.0", "1e400", "--5", "+", "-",
]  # fmt: skip
NUMBERS = [
    "0", "1", "5", "12", "007", "5L", "0l", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "5.0", "5.5", "5.", ".5", "1e3", "1E-3", "0.0", "0e5", "1e400", "4.9e-324",
]  # fmt: skip
PIECES = [
    "AND", "or", "Not", "IN", "between", "IS", "NULL", "TRUE", "(", ")", ",", "=", "<>", "<", ">=", "+",
    "-", "CONTAINS", "startswith", "'a'", "5", "a", "b", "--", "/*", "*/", "'", "#", "\n", ".", "\u00e4",
]  # fmt: skip


class Maker:
    """Random expressions: mostly such as people write, some strange, some wrong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def text(self) -> str:
        return "'" + self.chance.choice(TEXTS).replace("'", "''") + "'"

    def operand(self, depth: int) -> str:
        sort = self.chance.random()
        if sort < 0.45:
            return self.chance.choice(NAMES)
        if sort < 0.7:
            return self.pick("", "", "", "-", "+", "- -") + self.chance.choice(NUMBERS)
        if sort < 0.85:
            return self.text()
        if sort < 0.93 or depth <= 0:
            return self.pick("TRUE", "false", "NULL", "-a", "-'5'")
        return f"({self.condition(depth - 1)})"

    def condition(self, depth: int) -> str:
        sort = self.chance.random()
        if depth > 0 and sort < 0.3:
            word = self.pick("AND", "OR", "and")
            return f"{self.condition(depth - 1)} {word} {self.condition(depth - 1)}"
        if depth > 0 and sort < 0.4:
            return f"({self.condition(depth - 1)})"
        if depth > 0 and sort < 0.48:
            return f"NOT {self.pick('', '(')}{self.condition(depth - 1)}{self.pick('', ')')}"
        return self.predicate(depth)

    def predicate(self, depth: int) -> str:
        left, negation = self.operand(depth), self.pick("", "", "NOT ")
        sort = self.chance.randrange(8)
        if sort < 4:
            sign = self.pick("=", "<>", ">", ">=", "<", "<=", "=", ">")
            return f"{left} {sign} {self.operand(depth)}"
        if sort == 4:
            return f"{left} {negation}BETWEEN {self.operand(depth)} AND {self.operand(depth)}"
        if sort == 5:
            texts = ", ".join(self.text() for _ in range(self.chance.randint(1, 7)))
            return f"{left} {negation}IN ({texts})"
        if sort == 6:
            return f"{left} IS {negation}NULL"
        word = self.pick("CONTAINS", "STARTSWITH", "ENDSWITH")
        return f"{left} {negation}{word} {self.text()}"

    def expression(self) -> str:
        sort = self.chance.random()
        if sort < 0.1:
            return " ".join(self.chance.choices(PIECES, k=self.chance.randint(1, 9)))
        made = self.condition(self.chance.randint(0, 3))
        if sort < 0.2:
            at = self.chance.randint(0, len(made))
            made = made[:at] + self.pick(" ", "", *PIECES) + made[at + self.chance.randint(0, 2) :]
        return made

    def message(self) -> dict[str, str]:
        names = self.chance.sample(NAMES[:-1], self.chance.randint(0, 6))
        return {name: self.chance.choice(TEXTS) for name in names}


def pack(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def pack_all(cases: list[tuple[str, list[dict[str, str]]]]) -> bytes:
    parts = [struct.pack(">i", len(cases))]
    for expression, messages in cases:
        parts += [pack(expression), struct.pack(">i", len(messages))]
        for properties in messages:
            parts.append(struct.pack(">i", len(properties)))
            for name, value in properties.items():
                parts += [pack(name), pack(value)]
    return b"".join(parts)


def what_apache_says(cases: list[tuple[str, list[dict[str, str]]]]) -> list[str]:
    command = ["java", "-Xmx256m", "-cp", jars.compiled("5.3.3", [SOURCE]), "EvaluateFilters"]
    done = subprocess.run(
        command, input=pack_all(cases), capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.mark.real
@pytest.mark.timeout(600)
def test_apache_agrees_about_ten_thousand_random_pairs() -> None:
    jars.require_tools("5.3.3")
    maker = Maker(random.Random(20261116))
    cases = [(maker.expression(), [maker.message() for _ in range(4)]) for _ in range(8000)]
    cases += [(expression, [MESSAGE]) for expression, _ in TABLE]
    cases += [(expression, [MESSAGE]) for expression, _ in WRONG[:-1]]
    theirs = what_apache_says(cases)
    ours = [answer(expression, messages) for expression, messages in cases]
    differ = [
        (expression, messages, a, b)
        for (expression, messages), a, b in zip(cases, theirs, ours, strict=True)
        if a != b
    ]
    assert not differ, differ[:10]
    # Enough of every sort, so that agreement means something.
    letters = "".join(line for line in theirs if line != "E")
    assert len(letters) >= 10_000
    assert min(letters.count(one) for one in "TFNX") > 300
    assert theirs.count("E") > 300
