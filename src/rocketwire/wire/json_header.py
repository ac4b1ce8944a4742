"""The JSON form of a header."""

from __future__ import annotations

import json
from typing import Any, Final

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import LANGUAGE_NAMES, Language
from rocketwire.wire.lenient_json import check_depth

_INT_FIELDS: Final = ("code", "version", "opaque", "flag")
_LANGUAGE_CODES: Final = {name: number for number, name in enumerate(LANGUAGE_NAMES)}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode
_raw_decode: Final = json.JSONDecoder().raw_decode


def encode_json_header(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | None,
) -> bytes:
    """The header as Java writes it: keys sorted, nulls left out."""
    if not remark and not ext:  # as is the answer to every reply that is pushed to us
        name = language_name(language)
        return (
            f'{{"code":{code:d},"flag":{flag:d},"language":"{name}","opaque":{opaque:d},'
            f'"serializeTypeCurrentRPC":"JSON","version":{version:d}}}'
        ).encode()
    fields: dict[str, Any] = {
        "code": code,
        "flag": flag,
        "language": language_name(language),
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    if remark:
        fields["remark"] = remark
    if ext:
        fields["extFields"] = ext
    return _encode(fields).encode()


def decode_json_header(
    data: bytes,
) -> tuple[int, int, int, int, int, str | None, dict[str, str]]:
    """Code, language, version, opaque, flag, remark and ext fields.

    Raises:
        RemoteProtocolError: this is not a header.
    """
    try:
        # Half the time of json.loads, which looks for encodings and blanks that are not there.
        text = data.decode().strip()
        check_depth(text)
        fields, end = _raw_decode(text)
        if end != len(text):
            raise RemoteProtocolError(f"header has {len(text) - end} characters behind its JSON")
    except ValueError as error:
        raise RemoteProtocolError(f"header is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RemoteProtocolError("header is not a JSON object")
    numbers = []
    for name in _INT_FIELDS:
        value = fields.get(name, 0)
        if type(value) is not int or not -(2**31) <= value < 2**31:
            raise RemoteProtocolError(f"header field {name} is {str(value)[:40]!r}, not an int32")
        numbers.append(value)
    code, version, opaque, flag = numbers
    remark = fields.get("remark")
    return (
        code,
        _language_code(fields.get("language")),
        version,
        opaque,
        flag,
        remark if isinstance(remark, str) else None,
        _decode_ext(fields.get("extFields")),
    )


def _decode_ext(ext: object) -> dict[str, str]:
    if ext is None:
        return {}
    if not isinstance(ext, dict):
        raise RemoteProtocolError("header field extFields is not an object")
    for value in ext.values():
        if type(value) is not str:
            # Java writes strings only; other clients write bare numbers and booleans.
            return {k: _as_text(v) for k, v in ext.items() if v is not None}
    return ext


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def language_name(code: int) -> str:
    """The name by which JSON headers call a language."""
    return LANGUAGE_NAMES[code] if 0 <= code < len(LANGUAGE_NAMES) else "OTHER"


def _language_code(name: object) -> int:
    return _LANGUAGE_CODES.get(name, Language.OTHER) if isinstance(name, str) else Language.OTHER
