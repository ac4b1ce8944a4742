"""JSON of both dialects, and texts that are neither."""

import contextlib
import json
import math

import pytest

from rocketwire.errors import LocalProtocolError, RemoteProtocolError
from rocketwire.wire.json_header import decode_json_header
from rocketwire.wire.lenient_json import (
    MAX_DEPTH,
    MAX_TOLERANT,
    Pairs,
    check_depth,
    dumps,
    loads,
    loads_tolerant,
    pairs,
    shown,
)

BOTH = (loads, loads_tolerant)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "true",
        "false",
        "0",
        "-12",
        "1.5e-3",
        '""',
        '"a\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00"',
        "[]",
        "{}",
        '[1, [2, [3, {"a": [null]}]], "x"]',
        ' { "a" : { "b" : [ ] , "c" : { } } } ',
        '{"a": 1, "a": 2}',
        '"\\ud800"',
    ],
)
def test_standard_json_reads_the_same_with_both_readers(text):
    assert loads_tolerant(text) == loads(text) == json.loads(text)


@pytest.mark.parametrize("reader", BOTH)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ("{-1:2,1.5:3}", {"-1": 2, "1.5": 3}),
        ("{true:1,null:2,name:3,$x_1:4}", {"true": 1, "null": 2, "name": 3, "$x_1": 4}),
        ("{'a':'it\\'s','b':'say \"x\"'}", {"a": "it's", "b": 'say "x"'}),
        ("[1,,2,]", [1, 2]),
        ("[,]", []),
        ('{,"a":1,,"b":2,}', {"a": 1, "b": 2}),
        ("{'a':'\\x41\\u4e2d\\0\\v\\q'}", {"a": "A中\0\vq"}),
        ("{'a':'\\ud83d\\ude00'}", {"a": "😀"}),
        ("{0:[{1:{2:null}}]}", {"0": [{"1": {"2": None}}]}),
        ("{'a':'line\nbreak'}", {"a": "line\nbreak"}),
    ],
)
def test_the_servers_dialect(reader, text, expected):
    assert reader(text) == expected


def test_objects_as_keys_become_pairs():
    value = loads(b'{"t":{{"q":1,"b":"x"}:{"m":5},{"q":2}:{}},"n":{}}')
    table = value["t"]
    assert isinstance(table, Pairs)
    assert table == [({"q": 1, "b": "x"}, {"m": 5}), ({"q": 2}, {})]
    assert pairs(table) == table
    assert pairs(value["n"]) == []
    assert pairs({"a": 1}) == [("a", 1)]
    assert loads("{[1]:2,3:4}") == [([1], 2), ("3", 4)]


@pytest.mark.parametrize("value", [1, None, "x", [1], [("a", 1)]])
def test_only_objects_have_pairs(value):
    with pytest.raises(RemoteProtocolError, match="expected a JSON object"):
        pairs(value)


def test_special_numbers():
    assert math.isnan(loads("{a:NaN}")["a"])
    assert loads("{a:Infinity}") == {"a": math.inf}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(kind):
    assert loads(kind('{0:"é"}'.encode())) == {"0": "é"}


@pytest.mark.parametrize("reader", BOTH)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "{",
        "[",
        "}",
        "]",
        "[}",
        "{]",
        "{1}",
        "{1:}",
        "{1,2}",
        "{1:2:3}",
        "{:1}",
        "{1:2 3:4}",
        "[1 2]",
        "[1:2]",
        "1 2",
        "1,",
        ",1",
        ":",
        '"open',
        "'open",
        '"ends with a backslash\\"',
        "[nothing]",
        "[undefined]",
        "@",
        "[1,~]",
        "{a:1}}",
        "[-]",
        "{a:" + "9" * 5000 + "}",
        "[01" + "9" * 5000 + "]",
    ],
)
def test_what_is_no_json_of_any_kind_is_refused(reader, text):
    with pytest.raises(RemoteProtocolError, match="bad JSON"):
        reader(text)


@pytest.mark.parametrize("start", ["[", "{a:", '{"a":', "{[", "[[],", "{{"])
def test_hostile_nesting_is_refused_and_not_followed(start):
    with pytest.raises(RemoteProtocolError, match=f"{MAX_DEPTH} deep"):
        loads(start * 200_000)
    with pytest.raises(RemoteProtocolError, match=f"{MAX_DEPTH} deep"):
        loads_tolerant(start * 200_000)


def test_the_greatest_depth_is_allowed():
    text = "[" * MAX_DEPTH + "," + "]" * MAX_DEPTH
    depth, value = 0, loads(text)
    while value:
        depth, value = depth + 1, value[0]
    assert depth == MAX_DEPTH - 1
    with pytest.raises(RemoteProtocolError, match="deep"):
        loads("[" + text + "]")


@pytest.mark.parametrize("piece", ['"\\', "'", '"a\\"', "\\", "1e", "-", "$", " "])
def test_long_runs_of_one_thing_are_read_in_one_pass(piece):
    # An expression that goes back and tries again would take hours over these.
    for text in (piece * 300_000, "{" + piece * 300_000, "[" + piece * 300_000 + "~"):
        with pytest.raises(RemoteProtocolError):
            loads_tolerant(text)


def test_size_is_limited():
    assert loads(b"[1,2]", limit=5) == [1, 2]
    with pytest.raises(RemoteProtocolError, match="at most 4"):
        loads(b"[1,2]", limit=4)


def test_other_encodings_are_refused():
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        loads(b'{"a":"\xff"}')


@pytest.mark.parametrize(
    ("value", "bare", "standard"),
    [
        ({2: "b", 10: "a"}, b'{2:"b",10:"a"}', b'{"10":"a","2":"b"}'),
        ({"b": 1, "a": [True, None, 1.5]}, b'{"b":1,"a":[true,null,1.5]}', None),
        ({"é": "中"}, '{"é":"中"}'.encode(), b'{"\\u00e9":"\\u4e2d"}'),
        ({}, b"{}", b"{}"),
        ([], b"[]", b"[]"),
        ((1, "x"), b'[1,"x"]', b'[1,"x"]'),
        (Pairs([({"q": 1}, {2: 3})]), b'{{"q":1}:{2:3}}', b'{{"q":1}:{"2":3}}'),
        (Pairs(), b"{}", b"{}"),
    ],
)
def test_writing_in_both_dialects(value, bare, standard):
    assert dumps(value, standard=False) == bare
    assert dumps(value) == (standard or b'{"a":[true,null,1.5],"b":1}')


def test_what_can_not_be_written_is_refused():
    circle = []
    circle.append(circle)
    for value in (object(), {"a": b"x"}, circle, "\ud800"):
        with pytest.raises(LocalProtocolError, match="JSON"):
            dumps(value, standard=False)


def test_values_in_error_texts_are_short():
    assert shown({"a": 1}) == shown(Pairs()) == "an object"
    assert shown([1]) == "an array"
    assert shown(None) == "null"
    assert len(shown("x" * 1000)) < 50


DEPTHS = (1, 63, 64, 65, 66, 200, *range(985, 1000), 5000, 100_000)


@pytest.mark.parametrize("nest", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("depth", DEPTHS)
def test_depth_is_bounded_for_documents_and_headers_alike(nest, depth):
    levels = depth * sum(nest[0].count(mark) for mark in "[{")
    text = nest[0] * depth + "0" + nest[1] * depth
    if levels <= MAX_DEPTH:
        assert loads(text) == json.loads(text)
    else:
        with pytest.raises(RemoteProtocolError, match="more than 64 deep"):
            loads(text)
    header = f'{{"code":0,"extFields":{{"a":{text}}}}}'.encode()
    if levels + 2 <= MAX_DEPTH:
        assert json.loads(decode_json_header(header)[-1]["a"]) == json.loads(text)
    else:
        with pytest.raises(RemoteProtocolError, match="more than 64 deep"):
            decode_json_header(header)


@pytest.mark.parametrize(
    "text", ['["' + "[" * 500 + '"]', '["\\"' + "{" * 500 + '\\\\"]', "[" + "[]," * 500 + "0]"]
)
def test_brackets_in_texts_and_side_by_side_are_not_deep(text):
    assert loads(text) == json.loads(text)


ENDLESS = [
    '"\\', '"', "'", "\\", "[", "{", "]", '["', "[0],", "{0:", ",", "0 ", "a", "'\\u0041", " ", "-", "1e",
]  # fmt: skip


@pytest.mark.parametrize("piece", ENDLESS)
@pytest.mark.parametrize("head", ["", "[", "{", '"', "'"])
def test_no_text_takes_more_than_its_length_in_steps(piece, head):
    # Where it took steps by the square of the length, this would take hours.
    for reader in (loads, loads_tolerant, check_depth):
        with contextlib.suppress(RemoteProtocolError):
            reader(head + piece * (200_000 // len(piece)))


def test_what_is_no_standard_json_may_be_a_quarter_mebibyte_unless_told():
    large = "{0:[" + "1," * (MAX_TOLERANT // 2) + "]}"
    with pytest.raises(RemoteProtocolError, match="no standard JSON"):
        loads(large)
    assert len(loads(large, tolerant_limit=len(large))["0"]) == MAX_TOLERANT // 2
    assert len(loads(large.replace("0:", '"0":').replace(",]", "]"))["0"]) == MAX_TOLERANT // 2
