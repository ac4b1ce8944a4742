"""Bodies made smaller and whole again.

zlib is always there; lz4 (its *frame* format) and zstd come with the extra ``fast`` and are
imported when first used. When a body is worth compressing is decided by the producer; how large a
body may become again is decided by the caller, and never exceeded here: the sender chose the
bytes, so a few kilobytes may ask for gigabytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from rocketwire.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from rocketwire.wire.codes import SystemFlag

#: RocketMQ's numbers for the kinds. Clients before 4.9.4 leave 0 there and mean zlib.
_TYPES: Final[dict[str, int]] = {"zlib": 3, "lz4": 1, "zstd": 2}
KINDS: Final[tuple[str, ...]] = tuple(_TYPES)
_TYPE_SHIFT: Final = 8
#: Larger bodies are made whole in pieces of this size.
_PIECE: Final = 1024 * 1024
#: zstd's largest ordinary window (level 19). Larger ones are the mark of level 20 to 22, whose
#: decoder needs up to 128 MiB whatever the size of the message.
_ZSTD_WINDOW: Final = 8 * 1024 * 1024


def compress(body: bytes, kind: str = "zlib", level: int = 5) -> tuple[bytes, int]:
    """The smaller body and the system-flag bits to send with it.

    ``level`` means what it means to zlib and zstd; lz4 ignores it, as Java does.

    Raises:
        ConfigError: the kind is unknown or its package is not installed, or the level is wrong.
    """
    if kind == "zlib":
        if not -1 <= level <= 9:
            raise ConfigError(f"compression level {level} is not one of zlib's: use 0 to 9")
        return zlib.compress(body, level), _flag(kind)
    packer = _PACKERS.get(kind)
    if packer is None:
        raise ConfigError(f"compression {kind!r} is unknown: use one of {', '.join(KINDS)}")
    return packer(body, level), _flag(kind)


def _flag(kind: str) -> int:
    return SystemFlag.COMPRESSED | _TYPES[kind] << _TYPE_SHIFT


def _pack_lz4(body: bytes, _level: int) -> bytes:
    # Java's reader refuses blocks that lean on one another, and with them all that follows.
    packed: bytes = _lz4(ConfigError).compress(body, block_linked=False)
    return packed


def _pack_zstd(body: bytes, level: int) -> bytes:
    if not 1 <= level <= 22:
        raise ConfigError(f"compression level {level} is not one of zstd's: use 1 to 22")
    packed: bytes = _zstd(ConfigError).ZstdCompressor(level=level).compress(body)
    return packed


_PACKERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {"lz4": _pack_lz4, "zstd": _pack_zstd}


def decompress(body: bytes, system_flag: int, limit: int) -> bytes:
    """The body as it was before :func:`compress`; itself when its flag says it is not compressed.

    Args:
        body: what was stored.
        system_flag: the system flag it was stored with.
        limit: the largest acceptable result, in bytes.

    Raises:
        RemoteProtocolError: the body is damaged, cut, or grows beyond the limit.
        LocalProtocolError: its package is not installed here.
    """
    if not system_flag & SystemFlag.COMPRESSED:
        return body
    number = (system_flag & SystemFlag.COMPRESSION_MASK) >> _TYPE_SHIFT
    unpacker = _UNPACKERS.get(number)
    if unpacker is None:
        raise RemoteProtocolError(f"a body is compressed in an unknown way (type {number})")
    whole = unpacker(body, limit)
    if len(whole) > limit:
        raise RemoteProtocolError(
            f"too large: a compressed body of {len(body)} bytes grows beyond the limit of {limit}"
        )
    return whole


def decompress_or_explain(body: bytes, system_flag: int, limit: int) -> tuple[bytes, str | None]:
    """The body whole again and None; or the body as it is stored, and why it stays so.

    Whatever a sender wrote, and whatever is installed here, this raises nothing.
    """
    try:
        return decompress(body, system_flag, limit), None
    except Exception as error:  # noqa: BLE001 - a package may raise anything for odd bytes
        return body, str(error) or type(error).__name__


def _unpack_zlib(body: bytes, limit: int) -> bytes:
    machine = zlib.decompressobj()
    try:
        whole = machine.decompress(body, min(limit + 1, _PIECE))
        if not machine.eof and len(whole) <= limit:
            whole = _inflate_rest(machine, whole, limit)
    except zlib.error as error:
        raise RemoteProtocolError(f"a zlib body is damaged: {error}") from None
    return _complete(whole, limit, finished=machine.eof, kind="zlib")


def _inflate_rest(machine: Any, begun: bytes, limit: int) -> bytes:
    """Go on piece by piece, into a buffer that grows in place.

    In one call zlib puts its pieces together at the end, and a large body is in memory twice.
    """
    whole = BytesIO()
    whole.write(begun)
    while not machine.eof and whole.tell() <= limit:
        piece = machine.decompress(machine.unconsumed_tail, min(limit + 1 - whole.tell(), _PIECE))
        if not piece and not machine.unconsumed_tail:
            break
        whole.write(piece)
    return whole.getvalue()


def _unpack_lz4(body: bytes, limit: int) -> bytes:
    lz4 = _lz4(LocalProtocolError)
    machine = lz4.LZ4FrameDecompressor()
    try:
        whole: bytes = machine.decompress(body, max_length=limit + 1)
    except (RuntimeError, ValueError, EOFError) as error:
        raise RemoteProtocolError(f"an lz4 body is damaged: {error}") from None
    return _complete(whole, limit, finished=machine.eof, kind="lz4")


def _unpack_zstd(body: bytes, limit: int) -> bytes:
    zstd = _zstd(LocalProtocolError)
    window = max(_ZSTD_WINDOW, 1 << min((limit - 1).bit_length(), 30))
    machine = zstd.ZstdDecompressor(max_window_size=window)
    try:
        # A reader takes what it is asked for; one-shot decompression would trust the size that
        # the frame claims.
        with machine.stream_reader(body, read_size=1 << 16) as reader:
            whole: bytes = reader.read(limit + 1)
        finished = _zstd_finished(zstd, machine, body, whole, limit)
    except zstd.ZstdError as error:
        raise RemoteProtocolError(f"a zstd body is damaged: {error}") from None
    return _complete(whole, limit, finished=finished, kind="zstd")


def _zstd_finished(zstd: Any, machine: Any, body: bytes, whole: bytes, limit: int) -> bool:
    """Whether the frame came to its end: the stream reader can't tell a cut one from a whole.

    Most frames tell their size. One that does not is read again, now that it is known to be small
    enough, by the only reader that says where a frame ends.
    """
    if len(whole) > limit or zstd.frame_content_size(body) == len(whole) > 0:
        return True
    sink = machine.decompressobj()
    sink.decompress(body)
    return bool(sink.eof)


def _complete(whole: bytes, limit: int, *, finished: bool, kind: str) -> bytes:
    if not finished and len(whole) <= limit:
        raise RemoteProtocolError(f"a {kind} body is cut short after {len(whole)} bytes")
    return whole


_UNPACKERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    0: _unpack_zlib,
    1: _unpack_lz4,
    2: _unpack_zstd,
    3: _unpack_zlib,
}


def _lz4(error: type[ConfigError | LocalProtocolError]) -> Any:
    try:
        import lz4.frame
    except ImportError:
        raise error(_missing("lz4", "lz4")) from None
    return lz4.frame


def _zstd(error: type[ConfigError | LocalProtocolError]) -> Any:
    try:
        import zstandard
    except ImportError:
        raise error(_missing("zstd", "zstandard")) from None
    return zstandard


def _missing(kind: str, package: str) -> str:
    return f"{kind} needs the package {package}: pip install 'rocketwire[fast]'"
