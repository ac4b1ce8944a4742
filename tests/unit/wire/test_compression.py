"""Compression: both ways, and never more than was asked for."""

import sys
import tracemalloc
import zlib

import pytest
from tests.wire_tools import available

from rocketwire.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from rocketwire.wire.compression import compress, decompress

KINDS = available()
FLAGS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
BODY = b"some text that repeats itself, " * 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_is_whole_again(kind):
    packed, flag = compress(BODY, kind, 5)
    assert flag == FLAGS[kind]
    assert len(packed) < len(BODY) // 10
    assert decompress(packed, flag, len(BODY)) == BODY


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_body_is_whole_again(kind):
    packed, flag = compress(b"", kind, 5)
    assert decompress(packed, flag, 10) == b""


def test_old_clients_leave_the_kind_out_and_mean_zlib():
    assert decompress(zlib.compress(BODY), 0x1, len(BODY)) == BODY


@pytest.mark.parametrize("flag", [0, 0x300, 0x40])
def test_without_the_flag_a_body_is_itself(flag):
    assert decompress(b"plain", flag, 1) == b"plain"


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_kinds_are_refused(number):
    with pytest.raises(RemoteProtocolError, match=f"type {number}"):
        decompress(b"x", 1 | number << 8, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused_without_being_unpacked(kind):
    bomb, flag = compress(bytes(64 * 1024 * 1024), kind, 9)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="beyond the limit of 100000"):
            decompress(bomb, flag, 100_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_itself_is_allowed(kind):
    packed, flag = compress(BODY, kind, 5)
    assert len(decompress(packed, flag, len(BODY))) == len(BODY)
    with pytest.raises(RemoteProtocolError, match="limit"):
        decompress(packed, flag, len(BODY) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_body_is_refused_wherever_it_is_cut(kind):
    packed, flag = compress(BODY, kind, 5)
    for length in range(len(packed)):
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:length], flag, len(BODY))


def test_a_zstd_frame_that_hides_its_size_is_read_and_its_end_is_missed():
    zstandard = pytest.importorskip("zstandard")
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    packed = stream.compress(BODY) + stream.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert decompress(packed, 0x201, len(BODY)) == BODY
    with pytest.raises(RemoteProtocolError):
        decompress(packed[:-3], 0x201, len(BODY))


def test_a_zstd_window_of_128_mib_is_refused():
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(BODY) + stream.flush()
    with pytest.raises(RemoteProtocolError, match="zstd"):
        decompress(packed, 0x201, len(BODY))


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_the_peers_fault(kind):
    with pytest.raises(RemoteProtocolError, match=kind):
        decompress(b"\xff\xfe garbage that is no stream at all", FLAGS[kind], 1000)


@pytest.mark.parametrize(("kind", "level"), [("zlib", 10), ("zlib", -2), ("zstd", 0), ("zstd", 23)])
def test_impossible_levels_are_refused(kind, level):
    with pytest.raises(ConfigError, match=f"level {level}"):
        compress(b"x", kind, level)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="zlib, lz4, zstd"):
        compress(b"x", "gzip", 5)


@pytest.mark.parametrize(("kind", "module"), [("lz4", "lz4.frame"), ("zstd", "zstandard")])
def test_a_missing_package_is_named_with_the_remedy(kind, module, monkeypatch):
    # None in sys.modules makes an import fail, as if the package were not installed.
    monkeypatch.setitem(sys.modules, module, None)
    if kind == "lz4":
        monkeypatch.setitem(sys.modules, "lz4", None)
    with pytest.raises(ConfigError, match="pip install"):
        compress(b"x", kind, 5)
    with pytest.raises(LocalProtocolError, match="pip install"):
        decompress(b"x", FLAGS[kind], 10)


def test_lz4_blocks_are_independent_for_java_reads_no_others():
    """Linked blocks made Apache's client stop at the message, and never get to those behind it."""
    pytest.importorskip("lz4.frame")
    packed, _ = compress(b"the quick brown fox " * 5000, "lz4")
    frame_flags = packed[4]
    assert frame_flags & 0x20
