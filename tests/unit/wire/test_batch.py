"""Batch bodies: the layout, and every way in which it can be broken."""

import struct

import pytest
from tests.wire_tools import encode_batch, encode_item

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.batch import (
    HEAD_SIZE,
    ITEM_OVERHEAD,
    BatchItem,
    decode_batch,
    encode_items,
    first_properties,
    item_array_fields,
)
from rocketwire.wire.message_id import IdBlock

# protocol.md section 12.
HELLO = bytes.fromhex(
    "00000025 00000000 00000000 00000000 00000005 68656c6c6f 000a 54414753015461674102"
)


def test_an_item_is_the_published_vector():
    assert encode_item(b"hello", b"TAGS\x01TagA\x02", 0) == HELLO
    assert list(decode_batch(HELLO)) == [BatchItem(b"hello", b"TAGS\x01TagA\x02", 0)]


def test_items_follow_one_another():
    items = [(b"a", b"", -1), (b"", b"p\x01q\x02", 2**31 - 1), (b"\x00" * 300, b"", 0)]
    body = encode_batch(items)
    assert len(body) == sum(ITEM_OVERHEAD + len(b) + len(p) for b, p, _ in items)
    assert list(decode_batch(body)) == items


def test_an_empty_body_has_no_items():
    assert list(decode_batch(b"")) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_and_gives_bytes(kind):
    (item,) = decode_batch(kind(HELLO))
    assert type(item.body) is bytes
    assert type(item.properties_raw) is bytes


def changed(position, layout, value):
    data = bytearray(HELLO)
    struct.pack_into(layout, data, position, value)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(HELLO[:21], id="cut within the fixed fields"),
        pytest.param(HELLO[:-1], id="cut within the properties"),
        pytest.param(HELLO + b"\x00", id="a byte too many"),
        pytest.param(changed(0, ">i", 0), id="size 0, which would never end"),
        pytest.param(changed(0, ">i", 21), id="size below the least"),
        pytest.param(changed(0, ">i", -1), id="size negative"),
        pytest.param(changed(0, ">i", 38), id="size beyond the end"),
        pytest.param(changed(0, ">i", 2**31 - 1), id="size huge"),
        pytest.param(changed(16, ">i", -1), id="body length negative"),
        pytest.param(changed(16, ">i", 16), id="body length beyond the item"),
        pytest.param(changed(16, ">i", 2**31 - 1), id="body length huge"),
        pytest.param(changed(25, ">h", 9), id="properties length too small"),
        pytest.param(changed(25, ">h", 11), id="properties length too large"),
        pytest.param(changed(25, ">h", -1), id="properties length negative"),
    ],
)
def test_broken_batches_are_refused(data):
    with pytest.raises(RemoteProtocolError, match="batch item at byte"):
        list(decode_batch(data))


def test_items_before_the_broken_one_are_given():
    items = decode_batch(HELLO + HELLO[:30])
    assert next(items).body == b"hello"
    with pytest.raises(RemoteProtocolError, match="at byte 37"):
        next(items)


def test_the_largest_properties_fit():
    (item,) = decode_batch(encode_item(b"", b"x" * 32767, 0))
    assert len(item.properties_raw) == 32767


@pytest.mark.parametrize("first", [0, 0xFE, 0x1FF, 0xFFFE, 0x12FFFE])
@pytest.mark.parametrize("count", [1, 2, 256, 600])
@pytest.mark.parametrize("lengths", [[1], [70_000], [1, 2, 3, 4, 5, 6, 7]])
def test_items_are_what_they_would_be_one_by_one(first, count, lengths):
    head = "7F00000100012A9F00000000" + "0012AB34"
    bodies = [b"%d" % (n % 10) * lengths[n % len(lengths)] for n in range(count)]
    ids = IdBlock(head, first, len(bodies))
    fields = [b"INSTANCE_ID\x01n\x02" + b"TAGS\x01t\x02" * (n % 3) for n in range(count)]
    flags = [n % 5 for n in range(count)]
    properties = [
        f"UNIQ_KEY\x01{text}\x02".encode() + field
        for text, field in zip(ids.texts(), fields, strict=True)
    ]
    body = encode_items(bodies, fields, flags, ids)
    assert body == encode_batch(zip(bodies, properties, flags, strict=True))


def test_how_the_first_properties_begin():
    body = encode_batch([(b"a body", b"UNIQ_KEY\x01one\x02", 0), (b"b", b"UNIQ_KEY\x01two\x02", 0)])
    assert first_properties(body, 12) == b"UNIQ_KEY\x01one"
    assert first_properties(memoryview(body), 8) == b"UNIQ_KEY"
    assert first_properties(b"", 8) == b""


def test_the_fields_of_an_array_are_those_of_an_item():
    np = pytest.importorskip("numpy")
    (found,) = np.frombuffer(encode_item(b"four", b"p", 7)[:HEAD_SIZE], item_array_fields())
    assert found.tolist() == (ITEM_OVERHEAD + 5, 0, 0, 7, 4)
