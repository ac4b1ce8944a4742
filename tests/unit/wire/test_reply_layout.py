from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from rocketwire import RemoteProtocolError
from rocketwire.wire import reply_layout
from rocketwire.wire.command import BINARY, Command, Reply, encode_command
from rocketwire.wire.reply_layout import Layout, says_stored, stored_in_binary, stored_numbers

_EXT = {
    "queueId": "3",
    "TRACE_ON": "true",
    "MSG_REGION": "DefaultRegion",
    "msgId": "7F00000100002A9F0000000000000ABC",
    "queueOffset": "41",
}


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_layout, "_known", {})


def _frame(opaque: int = 7, ext: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """An answer as Java writes it: fields in alphabetical order, no blanks."""
    fields = {
        "code": 0,
        "extFields": _EXT if ext is None else ext,
        "flag": 1,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 477,
    }
    text = dict(sorted((fields | changes).items()))
    header = json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack(">I", len(header)) + header + b"body"


def _learnt() -> Layout:
    layout = Reply(_frame()).layout
    assert layout is not None
    return layout


def test_the_second_answer_is_read_by_the_layout_of_the_first() -> None:
    layout = _learnt()
    assert layout.has_place
    other = _EXT | {"queueOffset": "42", "msgId": "FF"}
    reply = Reply(_frame(2**31 - 1, other), layout)
    assert reply.layout is layout
    assert (reply.code, reply.flag, reply.opaque) == (0, 1, 2**31 - 1)
    assert reply.ext == other
    assert list(reply.ext) == list(other)
    assert reply.remark is None
    assert reply.body == b"body"
    assert reply.body == b"body"


def _without_fields(opaque: int, *, is_empty: bool) -> bytes:
    """An answer with an empty custom header, or without one, as Java answers a commit."""
    frame = _frame(opaque, {})
    header = frame[4:-4]
    if not is_empty:
        header = header.replace(b'"extFields":{},', b"")
    return struct.pack(">I", len(header)) + header + b"body"


@pytest.mark.parametrize("is_empty", [True, False])
def test_an_answer_without_fields_has_a_layout_too(
    is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Reply(_without_fields(7, is_empty=is_empty)).layout
    assert layout is not None
    assert not layout.has_place
    other = Reply(_without_fields(8, is_empty=not is_empty), layout)
    assert (other.opaque, other.ext, other.layout is layout) == (8, {}, False)
    monkeypatch.setattr("rocketwire.wire.command.decode_json_header", None)  # not asked any more
    reply = Reply(_without_fields(2**31 - 1, is_empty=is_empty), layout)
    assert (reply.code, reply.flag, reply.opaque) == (0, 1, 2**31 - 1)
    assert (reply.ext, reply.remark, reply.body) == ({}, None, b"body")


_PULLED = {
    "nextBeginOffset": "64",
    "minOffset": "0",
    "maxOffset": "99",
    "suggestWhichBrokerId": "0",
}


def test_answers_to_pulls_have_a_layout_though_they_say_found() -> None:
    layout = Reply(_frame(ext=_PULLED, remark="FOUND")).layout
    assert layout is not None
    assert not layout.has_place
    other = _PULLED | {"nextBeginOffset": "96"}
    reply = Reply(_frame(8, other, remark="FOUND"), layout)
    assert reply.layout is layout
    assert reply._match is not None
    assert (reply.code, reply.opaque, reply.remark, reply.ext) == (0, 8, "FOUND", other)


@pytest.mark.parametrize("remark", ["FOUND_TWICE", "found", "sorry, no", "F", "A" * 40, None])
def test_an_answer_with_another_remark_is_not_taken_for_one_that_says_found(
    remark: str | None,
) -> None:
    layout = Reply(_frame(ext=_PULLED, remark="FOUND")).layout
    changes = {} if remark is None else {"remark": remark}
    reply = Reply(_frame(9, _PULLED, **changes), layout)
    assert (reply.opaque, reply.remark, reply.ext) == (9, remark, _PULLED)


def test_words_of_an_error_make_no_layout() -> None:
    assert Reply(_frame(code=1, remark="the store is full")).layout is None


def test_a_layout_is_made_once() -> None:
    assert _learnt() is _learnt()


@pytest.mark.parametrize(
    "changes",
    [
        {"remark": "the store is full"},
        {"code": 11, "remark": "no slave"},
        {"flag": 3},
        {"language": "GO"},
        {"version": 478},
        {"surplus": True},
        {"ext": _EXT | {"transactionId": "T"}},
        {"ext": {k: _EXT[k] for k in reversed(_EXT)}},
        {"ext": _EXT | {"MSG_REGION": 'a "quoted" word'}},
        {"ext": _EXT | {"MSG_REGION": "Zürich"}},
        {"ext": _EXT | {"MSG_REGION": ""}},
        {"ext": _EXT | {"queueOffset": 43}},
    ],
)
def test_an_answer_of_another_layout_is_read_all_the_same(changes: dict[str, Any]) -> None:
    frame = _frame(9, **changes)
    given, plain = Reply(frame, _learnt()), Reply(frame)
    for name in ("code", "flag", "opaque", "ext", "remark", "body"):
        assert getattr(given, name) == getattr(plain, name)
    assert given.opaque == 9
    assert given.remark == changes.get("remark")


def test_what_is_no_number_does_not_pass_for_a_place() -> None:
    reply = Reply(_frame(ext=_EXT | {"queueOffset": "soon"}), _learnt())
    assert reply.layout is None or reply._match is None
    assert reply.ext["queueOffset"] == "soon"


def test_a_header_that_ends_beyond_its_frame_is_refused_with_a_layout_too() -> None:
    layout, frame = _learnt(), _frame()[: -len(b"body")]
    longer = struct.pack(">I", len(frame) + 1) + frame[4:]
    with pytest.raises(RemoteProtocolError, match="beyond"):
        Reply(longer, layout)


def test_binary_answers_pass_by_the_layout() -> None:
    frame = encode_command(Command(5, dict(_EXT), b"x", "sorry", 12, 1, header=BINARY))[4:]
    reply = Reply(frame, _learnt())
    assert (reply.code, reply.opaque, reply.remark, reply.body) == (5, 12, "sorry", b"x")
    assert reply.ext == _EXT


def test_only_so_many_layouts_are_kept() -> None:
    for number in range(300):
        reply = Reply(_frame(ext={f"field-{number}": "x"}))
        assert reply.ext == {f"field-{number}": "x"}
    assert len(reply_layout._known) == 128


def test_a_layout_without_a_place_says_so() -> None:
    layout = Reply(_frame(ext={"msgId": "A", "queueId": "1"})).layout
    assert layout is not None
    assert not layout.has_place


# -- told by the bytes around the values -------------------------------------------------------------


def _bare(*what: Any, **changes: Any) -> bytes:
    """An answer without a body, as brokers answer sends."""
    return _frame(*what, **changes).removesuffix(b"body")


def _layout() -> Layout:
    found = Reply(_frame()).layout
    assert found is not None
    return found


@pytest.mark.parametrize("opaque", [1, 41, 2**31 - 1])
def test_an_answer_that_says_stored_is_told_by_its_first_and_last_bytes(opaque: int) -> None:
    assert _layout().stored_number(_bare(opaque)) == opaque
    assert _layout().stored_number(_bare(opaque, _EXT | {"queueOffset": "99999"})) == opaque


@pytest.mark.parametrize(
    "changes",
    [
        {"code": 1},
        {"code": 10},
        {"flag": 1, "remark": "no"},
        {"language": "GO", "version": 3},
        {"opaque": "x"},
        {"opaque": None},
    ],
)
def test_any_other_answer_is_not_taken_for_it(changes: dict[str, Any]) -> None:
    frame = _bare(**({"opaque": 7} | changes))
    assert _layout().stored_number(frame) == 0
    assert not _is_expected(frame, 7)


def test_a_body_behind_the_header_is_not_taken_for_it() -> None:
    assert _layout().stored_number(_frame()) == 0
    assert not _is_expected(_frame(), 7)


def _is_expected(frame: bytes, opaque: int) -> bool:
    """Whether one who waits for that number takes it for his answer, read in one go."""
    layout = _layout()
    return says_stored(struct.pack(">I", len(frame)) + frame, layout.stored_answer(opaque))


def test_an_answer_that_is_expected_is_told_by_its_number() -> None:
    assert _is_expected(_bare(41), 41)
    assert not _is_expected(_bare(141), 41)
    assert not _is_expected(_bare(41), 141)
    layout, frame = _layout(), _bare(41)
    for length in (len(frame) - 1, len(frame) + 1):  # more or less than one frame
        data = struct.pack(">I", length) + frame
        assert not says_stored(data, layout.stored_answer(41))
    as_binary = struct.pack(">I", len(frame)) + b"\x01" + frame[1:]
    assert not says_stored(as_binary, layout.stored_answer(41))


def test_many_answers_are_told_as_one_by_one() -> None:
    frames = [_bare(5), _frame(6), _bare(7, code=1), _bare(opaque="x"), _binary(opaque=8), _bare(9)]
    assert stored_numbers(_layout(), frames) == [5, 0, 0, 0, 8, 9]
    assert stored_numbers(None, frames) == [0, 0, 0, 0, 8, 0]


def test_a_layout_without_a_place_tells_nothing() -> None:
    found = Reply(_frame(ext={"a": "b"})).layout
    assert found is not None
    assert found.stored_number(_bare(ext={"a": "b"})) == 0


def test_values_that_nobody_has_asked_for_are_read_and_checked_in_the_end() -> None:
    layout = _layout()
    reply = Reply(_bare(9, _EXT | {"queueOffset": "77"}), layout)
    assert (reply.code, reply.flag, reply.opaque) == (0, 1, 9)
    assert reply.ext["queueOffset"] == "77"
    garbled = Reply(_bare(9).replace(b'"41"', b'"4"1'), layout)
    assert garbled.opaque == 9
    with pytest.raises(RemoteProtocolError):
        _ = garbled.ext


def _binary(**changes: Any) -> bytes:
    fields: dict[str, Any] = {"code": 0, "ext": _EXT, "opaque": 7, "flag": 1, "header": BINARY}
    return encode_command(Command(**(fields | changes)))[4:]


def test_a_binary_answer_that_says_stored_is_told_by_its_start() -> None:
    assert stored_in_binary(_binary()) == 7
    assert stored_in_binary(_binary(opaque=2**31 - 1)) == 2**31 - 1


@pytest.mark.parametrize(
    "frame",
    [
        _binary(code=1),
        _binary(flag=0),
        _binary(flag=3),
        _binary(remark="no"),
        _binary(ext={"msgId": "x"}),
        _binary(body=b"body"),
        _binary(opaque=0),
        _binary(opaque=-5),
        _binary()[:-1],
        _binary()[:20],
        b"\x01\x00\x00\x00",
        b"\x02" + _binary()[1:],
    ],
)
def test_any_other_binary_answer_is_not_taken_for_it(frame: bytes) -> None:
    assert stored_in_binary(frame) == 0
