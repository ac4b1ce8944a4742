"""Settings: one definition for code, mappings, environment variables, command line and Spark.

Each setting is a field with a help text and a parser that accepts text, too. Names are compared
without case, underscores and dashes, so that ``send_timeout``, ``sendTimeout`` and
``ROCKETWIRE_SEND_TIMEOUT`` are one setting. What is wrong is refused here, once, with the reason.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from rocketwire.compound_settings import (
    AddressMap,
    AutoBatch,
    Credentials,
    CredentialsSource,
    Tls,
    as_address_map,
    as_auto_batch,
    as_credentials,
    as_tls,
)
from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.java_settings import JAVA_NAMES
from rocketwire.setting_values import (
    MIB,
    flag,
    flag_of,
    name_servers,
    seconds,
    size,
    text_or_none,
    whole,
)
from rocketwire.telemetry_config import TelemetryConfig, as_telemetry

__all__ = [
    "AUTO",
    "MIB",
    "AddressMap",
    "AutoBatch",
    "ClientConfig",
    "Credentials",
    "CredentialsSource",
    "ProducerConfig",
    "ReaderConfig",
    "Tls",
    "canonical",
    "check_group",
    "from_mapping",
    "gather",
    "needs_trust",
    "option",
]

_log = logging.getLogger("rocketwire.config")
#: A send, a request or an interval that may take longer was hardly meant so.
_LIKELY_MILLISECONDS: Final = 500.0
#: Stands for "a third of the send timeout while tries are left".
AUTO: Final = -1.0
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
C = TypeVar("C", bound="ClientConfig")


def _fault(value: object) -> FaultPolicy:
    if isinstance(value, FaultPolicy):
        return value
    return FaultPolicy.named(str(value))


def _trace(value: object) -> str | None:
    if value is None or isinstance(value, bool):
        return "RMQ_SYS_TRACE_TOPIC" if value else None
    text = str(value)
    if text.lower() in {"true", "1", "yes", "on", "false", "0", "no", "off"}:
        return _trace(flag(text))
    return _name(text)


def _name(value: object) -> str | None:
    text = text_or_none(value)
    if text is not None and _NAME.fullmatch(text) is None:
        raise ConfigError(f"{text!r} is no name: letters, digits and % | _ - only")
    return text


def _hooks(value: object) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{value!r} is no list: give a list of objects, even if it is one")
    return tuple(value)


def _layers(value: object) -> tuple[Callable[..., Any], ...]:
    layers = () if value is None else _hooks(value)
    for layer in layers:
        if isinstance(layer, type):
            raise ConfigError(f"{layer.__name__} is a class: give an object of it, or a function")
        if not callable(layer):
            raise ConfigError(f"{layer!r} can't be called: give functions (message, call_next)")
    return cast("tuple[Callable[..., Any], ...]", layers)


def _choice(*allowed: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in allowed:
            raise ConfigError(f"{value!r} is none of {', '.join(allowed)}")
        return str(value)

    parse.choices = allowed  # type: ignore[attr-defined]  # for the types of options
    return parse


def _attempt_timeout(value: object) -> float | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in {"none", "off"}):
        return None
    if isinstance(value, str) and value.strip().lower() == "auto":
        return AUTO
    return seconds(value)


def _same(value: Any) -> Any:
    return value


def option(default: Any, parse: Callable[[Any], Any], text: str, **more: Any) -> Any:
    """A field with its parser and the words for the reference page.

    ``trusted=True`` marks what can read, replace or reveal something: paths, keys, encryption. Such
    settings are taken only from where the user put them, see ``needs_trust``. ``accepts`` is the
    type of what may be given, where the parser does not tell (``tools/gen_options.py``).
    """
    return field(default=default, metadata={"parse": parse, "help": text, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client needs."""

    name_servers: tuple[str, ...] = option((), name_servers, "host:port of each name server")
    client_id: str | None = option(
        None, text_or_none, "clients with one explicit id share an instance"
    )
    instance_name: str | None = option(
        None, text_or_none, "the part of the client id after the address"
    )
    unit_name: str | None = option(None, text_or_none, "a suffix of the client id")
    namespace: str | None = option(None, _name, "namespace (v1), put before topics and groups")
    namespace_v2: str | None = option(
        None, text_or_none, "namespace (v2, since 5.2), sent beside names"
    )
    credentials: CredentialsSource | None = option(
        None, as_credentials, "keys, or a function giving them", secret=True, trusted=True
    )
    tls: Tls | None = option(
        None, as_tls, "encrypt connections; the server's name is verified", trusted=True
    )
    address_map: AddressMap | None = option(
        None, as_address_map, "advertised address -> address to use instead (mapping or function)"
    )
    header: str = option("binary", _choice("binary", "json"), "how request headers are written")
    fault: FaultPolicy = field(
        default_factory=FaultPolicy,
        metadata={"parse": _fault, "help": "how slow and failing brokers are avoided"},
    )
    route_refresh: float = option(30.0, seconds, "how often routes are asked for again")
    heartbeat_interval: float = option(30.0, seconds, "how often brokers get a heartbeat")
    connect_timeout: float = option(3.0, seconds, "longest wait for a connection")
    request_timeout: float = option(
        3.0, seconds, "longest wait for routes, heartbeats, admin calls"
    )
    max_frame: int = option(16 * MIB, size, "largest frame accepted from a server")
    hooks: tuple[object, ...] = option((), _hooks, "objects that implement any of the hooks")
    background: bool = option(True, flag, "whether heartbeats, refresh and probes run")  # noqa: FBT003

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            try:
                value = spec.metadata["parse"](getattr(self, spec.name))
            except ConfigError as error:
                raise ConfigError(_blame(spec.name, str(error))) from None
            object.__setattr__(self, spec.name, value)
            # Times have a float as their default, and all that are longer by nature a long one.
            is_short = isinstance(spec.default, float) and spec.default < 100
            if is_short and value is not None and value >= _LIKELY_MILLISECONDS:
                _log.warning(
                    "%s is %g seconds: times are seconds, not milliseconds as in Java",
                    spec.name,
                    value,
                )
        _check_above_zero(
            self, "route_refresh heartbeat_interval connect_timeout request_timeout max_frame"
        )


def _check_above_zero(config: ClientConfig, names: str) -> None:
    for name in names.split():
        if getattr(config, name) <= 0:
            raise ConfigError(f"{name} is {getattr(config, name)}: it must be above zero")


def _blame(name: str, text: str) -> str:
    return text if text.startswith(name) else f"{name}: {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """What a producer needs besides."""

    group: str = option("rocketwire", str, "producer group")
    send_timeout: float = option(3.0, seconds, "one deadline over all attempts of a send")
    attempt_timeout: float | None = option(
        AUTO, _attempt_timeout, "cap of one attempt while another broker is usable; None: no cap"
    )
    retries: int = option(2, whole, "further attempts of a blocking send")
    async_retries: int = option(2, whole, "further attempts of a submitted or awaited send")
    ordered_retries: int = option(0, whole, "further attempts, on the same queue, of ordered sends")
    retry_another_broker_when_not_stored: bool = option(
        False,  # noqa: FBT003
        flag,
        "whether a flush or replication time-out is tried elsewhere (may duplicate)",
    )
    compress_over: int = option(4096, size, "bodies from this size on are compressed; 0: never")
    compression: str = option("zlib", _choice("zlib", "lz4", "zstd"), "how bodies are compressed")
    compress_level: int = option(5, whole, "level of the compression")
    max_message_size: int = option(4 * MIB, size, "largest body, before compression")
    default_topic: str = option("TBW102", str, "the topic whose route serves unknown topics")
    default_topic_queues: int = option(4, whole, "queues of a topic that is created on first use")
    max_in_flight: int = option(10_000, whole, "messages submitted and not answered yet")
    max_in_flight_bytes: int = option(64 * MIB, size, "their bodies together")
    auto_batch: AutoBatch | None = option(None, as_auto_batch, "send submitted messages in batches")
    selector: Any = option(
        None,
        _same,
        "the default strategy: a selector, or its name",
        accepts="Selector | str | None",
    )
    trace: str | None = option(None, _trace, "send message traces (True, or a trace topic)")
    status: str | None = option(
        None, text_or_none, "a file in which a running producer shows its health", trusted=True
    )
    telemetry: TelemetryConfig | None = option(
        None,
        as_telemetry,
        "a folder that gets one JSON line per attempt (or TelemetryConfig)",
        trusted=True,
    )
    shutdown_timeout: float = option(10.0, seconds, "how long shutdown waits for what is in flight")
    middleware: tuple[Callable[..., Any], ...] = option(
        (), _layers, "functions (message, call_next) that surround each send"
    )

    def __post_init__(self) -> None:
        super(ProducerConfig, self).__post_init__()
        check_group(self.group)
        _check_above_zero(
            self,
            "send_timeout max_in_flight max_in_flight_bytes max_message_size default_topic_queues",
        )
        names = "retries async_retries ordered_retries compress_over shutdown_timeout"
        for name in names.split():
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it can't be negative")
        if (
            self.attempt_timeout is not None
            and self.attempt_timeout != AUTO
            and self.attempt_timeout <= 0
        ):
            raise ConfigError(
                f"attempt_timeout is {self.attempt_timeout}: above zero, None or 'auto'"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig(ClientConfig):
    """What a reader needs besides."""

    group: str = option("rocketwire-reader", str, "the group under which it pulls")
    pull_timeout: float = option(10.0, seconds, "longest wait for a pull without long polling")

    def __post_init__(self) -> None:
        super(ReaderConfig, self).__post_init__()
        check_group(self.group)


def check_group(group: str) -> None:
    """Refuse a group name that brokers would refuse."""
    if not group or _NAME.fullmatch(group) is None:
        raise ConfigError(f"group is {group!r}: letters, digits and % | _ - only, at least one")
    if len(group) > 120:
        raise ConfigError(f"group has {len(group)} characters: at most 120")
    if group == "DEFAULT_PRODUCER":
        raise ConfigError(
            "group is 'DEFAULT_PRODUCER', which is reserved: choose a name of your own"
        )


def canonical(name: str) -> str:
    """A setting's name without case and separators."""
    return name.replace("_", "").replace("-", "").replace(".", "").lower()


#: Settings that are several text options elsewhere.
_SCATTERED: Final = {
    "accesskey", "secretkey", "securitytoken", "credentialsfile",
    "tlscafile", "tlscertfile", "tlskeyfile", "tlskeypassword", "tlsverify", "tlsservername",
}  # fmt: skip


def needs_trust(kind: type[ClientConfig], name: str) -> bool:
    """Whether a setting may come only from a source that the user chose."""
    key = canonical(name)
    return key in _SCATTERED or any(
        spec.metadata.get("trusted") and canonical(spec.name) == key
        for spec in dataclasses.fields(kind)
    )


def from_mapping(
    cls: type[C],
    arguments: Mapping[str, Any] | None = None,
    *,
    mapping: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Mapping[str, Any] | None = None,
) -> C:
    """Settings from all their sources: arguments, mapping, environment, file, strongest first.

    Raises:
        ConfigError: a name is unknown (the nearest known one is told) or a value is wrong.
    """
    known = {canonical(spec.name): spec.name for spec in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for source in (file, _from_environment(environ, known), mapping, arguments):
        if source:
            values |= _recognise(source, known)
    return cls(**gather(values, known))


def _from_environment(
    environ: Mapping[str, str] | None, known: Mapping[str, str]
) -> dict[str, str]:
    values: dict[str, str] = {}
    if environ is None:
        return values
    if environ.get("NAMESRV_ADDR"):
        values["nameservers"] = environ["NAMESRV_ADDR"]
    for name, value in environ.items():
        if name.startswith("ROCKETWIRE_") and value:
            key = canonical(name.removeprefix("ROCKETWIRE_"))
            if key in known or key in _SCATTERED:  # other programs may use the prefix, too
                values[key] = value
    return values


def _recognise(source: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in source.items():
        key = canonical(name)
        if key not in known and key not in _SCATTERED:
            if key in JAVA_NAMES:
                raise ConfigError(f"{name!r} is Java's name: here it is {JAVA_NAMES[key]}")
            import difflib  # slow to load, and needed for a mistake only

            near = difflib.get_close_matches(key, [*known, *_SCATTERED], n=1)
            hint = f"; did you mean {known.get(near[0], near[0])}?" if near else ""
            raise ConfigError(f"unknown setting {name!r}{hint}")
        values[key] = value
    return values


def gather(values: dict[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Join the options that are one setting here, and give settings their own names."""
    if values.get("credentialsfile") and not values.get("accesskey"):
        values |= _read_credentials(str(values["credentialsfile"]))
    if values.get("accesskey") or values.get("secretkey"):
        values["credentials"] = Credentials(
            str(values.get("accesskey") or ""),
            str(values.get("secretkey") or ""),
            text_or_none(values.get("securitytoken")),
        )
    parts = {
        key[3:]: values[key]
        for key in _SCATTERED
        if key.startswith("tls") and values.get(key) not in {None, ""}
    }
    if (
        parts
        and values.get("tls") not in {False, "false"}
        and not isinstance(values.get("tls"), Tls)
    ):
        values["tls"] = Tls(
            ca_file=parts.get("cafile"),
            cert_file=parts.get("certfile"),
            key_file=parts.get("keyfile"),
            key_password=parts.get("keypassword"),
            verify=flag_of("tls_verify", parts.get("verify", True)),
            server_name=parts.get("servername"),
        )
    return {known[key]: value for key, value in values.items() if key in known}


def _read_credentials(path: str) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"credentials_file {path!r} can't be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"credentials_file {path!r} holds no JSON object")
    names = {"accesskey", "secretkey", "securitytoken"}
    return {canonical(k): v for k, v in content.items() if canonical(k) in names}
