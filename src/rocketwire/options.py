"""What may be given to clients as ``**options``, for type checkers and editors.

Written by tools/gen_options.py from the tables of settings: change it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from os import PathLike

    from rocketwire.config import AddressMap, AutoBatch, CredentialsSource, Tls
    from rocketwire.core.faults.selection import Selector
    from rocketwire.core.group.allocation import Allocation
    from rocketwire.fault_policy import FaultPolicy
    from rocketwire.hooks import Hook
    from rocketwire.telemetry_config import TelemetryConfig

FaultPolicyName: TypeAlias = Literal["default", "java4", "java5", "java5-detector", "off"]
#: Where a new group begins. Text is also a time such as 2026-11-15T12:00:00+00:00.
Start: TypeAlias = "str | float | datetime"


class ClientOptions(TypedDict, total=False):
    """What every client may be given."""

    client_id: str | None
    """clients with one explicit id share an instance"""
    instance_name: str | None
    """the part of the client id after the address"""
    unit_name: str | None
    """a suffix of the client id"""
    namespace: str | None
    """namespace (v1), put before topics and groups"""
    namespace_v2: str | None
    """namespace (v2, since 5.2), sent beside names"""
    credentials: CredentialsSource | None
    """keys, or a function giving them"""
    tls: Tls | Mapping[str, Any] | bool | None
    """encrypt connections; the server's name is verified"""
    address_map: AddressMap | str | None
    """advertised address -> address to use instead (mapping or function)"""
    header: Literal["binary", "json"]
    """how request headers are written"""
    fault: FaultPolicy | FaultPolicyName
    """how slow and failing brokers are avoided"""
    route_refresh: float | str
    """how often routes are asked for again"""
    heartbeat_interval: float | str
    """how often brokers get a heartbeat"""
    connect_timeout: float | str
    """longest wait for a connection"""
    request_timeout: float | str
    """longest wait for routes, heartbeats, admin calls"""
    max_frame: int | str
    """largest frame accepted from a server"""
    hooks: Iterable[Hook]
    """objects that implement any of the hooks"""
    background: bool
    """whether heartbeats, refresh and probes run"""
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    credentials_file: str | None
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_key_password: str | None
    tls_verify: bool
    tls_server_name: str | None


class ProducerOptions(ClientOptions, total=False):
    """What producers may be given."""

    send_timeout: float | str
    """one deadline over all attempts of a send"""
    attempt_timeout: float | str | None
    """cap of one attempt while another broker is usable; None: no cap"""
    retries: int
    """further attempts of a blocking send"""
    async_retries: int
    """further attempts of a submitted or awaited send"""
    ordered_retries: int
    """further attempts, on the same queue, of ordered sends"""
    retry_another_broker_when_not_stored: bool
    """whether a flush or replication time-out is tried elsewhere (may duplicate)"""
    compress_over: int | str
    """bodies from this size on are compressed; 0: never"""
    compression: Literal["zlib", "lz4", "zstd"]
    """how bodies are compressed"""
    compress_level: int
    """level of the compression"""
    max_message_size: int | str
    """largest body, before compression"""
    default_topic: str
    """the topic whose route serves unknown topics"""
    default_topic_queues: int
    """queues of a topic that is created on first use"""
    max_in_flight: int
    """messages submitted and not answered yet"""
    max_in_flight_bytes: int | str
    """their bodies together"""
    auto_batch: AutoBatch | Mapping[str, Any] | bool | None
    """send submitted messages in batches"""
    selector: Selector | str | None
    """the default strategy: a selector, or its name"""
    trace: bool | str | None
    """send message traces (True, or a trace topic)"""
    status: str | None
    """a file in which a running producer shows its health"""
    telemetry: TelemetryConfig | Mapping[str, Any] | str | PathLike[str] | None
    """a folder that gets one JSON line per attempt (or TelemetryConfig)"""
    shutdown_timeout: float | str
    """how long shutdown waits for what is in flight"""


class ReaderOptions(ClientOptions, total=False):
    """What readers may be given."""

    pull_timeout: float | str
    """longest wait for a pull without long polling"""


class ConsumerOptions(ClientOptions, total=False):
    """What consumers may be given."""

    ordered: bool
    """one queue, one worker at a time, locked on the broker"""
    broadcast: bool
    """every member gets everything; offsets are kept in a local file"""
    start: Start
    """where a new group begins: earliest, latest or a time"""
    workers: int
    """handlers that run at a time: threads, or tasks"""
    max_attempts: int | None
    """tries before the dead letters; None: 17 as in Java, ordered: no end"""
    exact_retries: bool
    """Retry(after=...) to the second, by timed messages, where brokers have them (5.x)"""
    retry_pause: float | str
    """how long an ordered queue rests after a failure"""
    allocation: Allocation | Literal["average", "average-by-circle", "consistent-hash"]
    """how queues are split: average, average-by-circle, consistent-hash"""
    pull_batch: int
    """messages asked for in one pull; brokers give 32 at most"""
    pull_wait: float | str
    """how long a broker may hold a pull that finds nothing"""
    pull_timeout: float | str
    """longest wait for a pull that is not held"""
    pipeline: int
    """pulls of one queue under way at once while it is far behind"""
    max_queue_messages: int
    """messages held of one queue at most"""
    max_queue_bytes: int | str
    """bytes of bodies held of one queue at most"""
    max_queue_span: int
    """distance of the last from the first unhandled"""
    max_messages: int
    """messages held altogether at most"""
    max_bytes: int | str
    """bytes of bodies held altogether at most"""
    commit_interval: float | str
    """how often offsets are committed"""
    rebalance_interval: float | str
    """how often queues are shared anew"""
    lock_interval: float | str
    """how often locks of ordered queues are renewed"""
    lock_lifetime: float | str
    """how long a lock is trusted after its renewal"""
    handler_timeout: float | str
    """a handler is reported as hung after this"""
    drain_timeout: float | str
    """how long a lost queue waits for its handlers"""
    shutdown_timeout: float | str
    """how long stopping waits for handlers"""
    offsets_folder: str | None
    """where broadcasting keeps its offsets"""
    trace: bool | str | None
    """send message traces (True, or a trace topic)"""


class SimpleConsumerOptions(ClientOptions, total=False):
    """What simple consumers may be given."""
