"""All options of the data source, parsed once, on the driver.

Spark hands over names in lower case and values as text. What is unknown or wrong is refused here,
with the name as a user would write it; what passes is a frozen value that tasks can rely on.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast

from rocketwire import config as settings
from rocketwire.config import ClientConfig, ProducerConfig, ReaderConfig, canonical
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import MessageQueue
from rocketwire.selectors import named
from rocketwire.setting_values import name_servers
from rocketwire.spark.option_names import KAFKAS, SCATTERED, camel, in_camel_case
from rocketwire.spark.option_values import (
    EARLIEST,
    LATEST,
    OFFSETS_SHAPE,
    ExpectedBrokers,
    one_of,
    parse_assignment,
    parse_columns,
    parse_count,
    parse_expected_brokers,
    parse_flag,
    parse_moment,
    parse_moments,
    parse_names,
    parse_offsets,
    parse_pattern,
    parse_positive,
    parse_span,
    parse_tags,
)

OnBadRow = Literal["fail", "deadletter", "drop"]
#: Whether rows get ids, and whether those in the column ``rowId`` stay as they are.
StampRows = Literal["true", "false", "inherit"]
Included = Literal["user", "all", "none"]
OnBadBody = Literal["raw", "fail", "skip"]
T = TypeVar("T")
C = TypeVar("C", bound=ClientConfig)

#: Settings of a client that can't be written as text, or that the data source decides itself.
_NOT_OPTIONS: Final = frozenset(
    {"credentials", "hooks", "middleware", "background", "name_servers"}
)
#: What Spark itself puts among the options of a source.
_SPARKS_OWN: Final = frozenset(
    {
        "path", "paths", "checkpointlocation", "queryname", "provider", "table", "location",
        "serialization.format", "outputmode", "triggerinterval",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which queues to read: topics by name, by pattern, or single queues."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: tuple[MessageQueue, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether a topic is chosen by the pattern."""
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading begins or ends: ``at_ms`` beats ``moments`` beats ``offsets`` beats ``default``."""

    default: int
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    at_ms: int | None = None
    #: Milliseconds since 1970 for single queues.
    moments: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, how much at once, and which columns."""

    choice: TopicChoice
    start: Position
    end: Position
    latest_if_none_that_new: bool = False
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay: float = 900.0
    min_partitions: int | None = None
    max_records: int | None = None
    join_small: bool = True
    fail_on_data_loss: bool = True
    read_timeout: float = 120.0
    group_id: str | None = None
    tags: tuple[str, ...] | None = None
    #: An SQL92 expression over properties, instead of tags.
    sql: str | None = None
    columns: tuple[str, ...] | None = None
    properties: Included = "user"
    on_bad_body: OnBadBody = "raw"
    #: What the user says of a topic's brokers; it beats every record. None: nothing.
    expected: ExpectedBrokers | None = None
    #: Whether limits of a batch hold on a PySpark where AvailableNow would end early by them.
    limit_before_42: bool = False
    #: How often and how soon a question for offsets is asked again.
    offset_retries: int = 3
    offset_retry_interval: float = 0.1
    #: Queues that a pipeline has on record, and brokers that it was told to forget.
    known: tuple[MessageQueue, ...] = ()
    forgotten: tuple[str, ...] = ()
    reached: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write, and what to do with rows that can't be written."""

    topic: str | None = None
    stamp_rows: StampRows = "true"
    write_id: str | None = None
    #: Whether rows may go back to the topic that they were read from.
    allow_loop: bool = False
    on_bad_row: OnBadRow = "fail"
    dead_letter_topic: str | None = None
    summary_file: str | None = None
    delivery_timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach the cluster. Values may be secret, so none of them is ever shown."""

    name_servers: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def make(self, cls: type[C], **more: Any) -> C:
        """Settings of one kind of client; those of other kinds are left out."""
        own = {canonical(spec.name) for spec in dataclasses.fields(cls)}
        own |= {canonical(name) for name in SCATTERED}
        chosen = {name: value for name, value in self.values if canonical(name) in own}
        try:
            return settings.from_mapping(
                cls, {"name_servers": self.name_servers, **more}, mapping=chosen
            )
        except ConfigError as error:
            raise ConfigError(in_camel_case(str(error))) from None


class _Raw:
    """The options as given, by folded name. Takes care of naming them in errors."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value.strip() if value is not None and value.strip() else None

    def parse(self, name: str, parser: Callable[[str], T], default: T) -> T:
        text = self.text(name)
        if text is None:
            return default
        try:
            return parser(text)
        except ConfigError as error:
            raise ConfigError(f"option {name}: {error}") from None

    def given(self, *names: str) -> list[str]:
        return [name for name in names if self.text(name) is not None]


_READ: Final = (
    "topic", "topics", "topicPattern", "assign", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "startingTimestampStrategy", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "joinSmallRanges", "failOnDataLoss", "readTimeout", "groupId", "tags", "sql", "columns",
    "includeProperties", "onBadBody", "expectedBrokers", "limitBefore42", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "offsetRetries", "offsetRetryInterval",
)  # fmt: skip
#: How a pipeline hands its record to the reader; not for users.
KNOWN: Final = "_knownqueues"
FORGOTTEN: Final = "_forgottenbrokers"
#: Where a pipeline's checkpoint is, which a Spark before 4.2 does not tell a reader.
REACHED: Final = "_reachedoffset"
_ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_WRITE: Final = (
    "topic", "allowLoop", "stampRows", "writeId", "onBadRow", "deadLetterTopic", "summaryFile",
    "deliveryTimeout",
)  # fmt: skip


def _client_names() -> tuple[str, ...]:
    names = {
        spec.name for cls in (ProducerConfig, ReaderConfig) for spec in dataclasses.fields(cls)
    }
    return (*sorted(camel(name) for name in names - _NOT_OPTIONS), *SCATTERED)


CLIENT_OPTIONS: Final = _client_names()
#: What no client has.
SOURCE_OPTIONS: Final = tuple(dict.fromkeys((*_READ, *_WRITE)))
ALL_OPTIONS: Final = ("nameServers", *SOURCE_OPTIONS, *CLIENT_OPTIONS)
_KNOWN: Final = {canonical(name): name for name in ALL_OPTIONS}


def check_names(given: Mapping[str, str]) -> None:
    """Refuse options that nobody knows.

    Raises:
        ConfigError: with the nearest known name. Values are not shown: they may be secret.
    """
    for name in given:
        folded = name.lower()
        if folded in _SPARKS_OWN or folded.startswith(("spark.", "_")):
            continue
        if canonical(folded) in _KNOWN:
            continue
        if folded in KAFKAS:
            theirs, ours = KAFKAS[folded]
            raise ConfigError(f"option {theirs} is Kafka's: here it is {ours}")
        if folded.startswith("kafka."):
            raise ConfigError(
                f"option {name!r} is Kafka's: settings of the client have no prefix here, e.g. "
                "nameServers, sendTimeout, tls, accessKey"
            )
        near = difflib.get_close_matches(canonical(folded), list(_KNOWN), n=1)
        hint = f"did you mean {_KNOWN[near[0]]}?" if near else f"known: {', '.join(ALL_OPTIONS)}"
        raise ConfigError(f"option {name!r} is unknown; {hint}")


def client_options(
    given: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> ClientOptions:
    """The part of the options that says how to reach the cluster.

    Args:
        given: the source's options.
        environ: the driver's environment, which ``NAMESRV_ADDR`` may come from. Executors have
            environments of their own, so it is read here only.
    """
    check_names(given)
    raw = _Raw(_spelled(given))
    environ = environ or {}
    fallback = environ.get("ROCKETWIRE_NAME_SERVERS") or environ.get("NAMESRV_ADDR")
    text = raw.text("nameServers") or fallback
    if not text:
        raise ConfigError("option nameServers is missing: give host:port of each name server")
    values = tuple(
        (name, value) for name in CLIENT_OPTIONS if (value := raw.text(name)) is not None
    )
    made = ClientOptions(raw_servers(text), values)
    # Wrong values are told on the driver, before any job runs.
    selector = made.make(ProducerConfig).selector
    if isinstance(selector, str):
        named(selector)
    return made


def _spelled(given: Mapping[str, str]) -> dict[str, str]:
    """Options under their usual names, however separators were written."""
    return {_KNOWN.get(canonical(name.lower()), name): value for name, value in given.items()}


def raw_servers(text: str) -> tuple[str, ...]:
    """Name server addresses from an option's text."""
    try:
        return name_servers(text)
    except ConfigError as error:
        raise ConfigError(in_camel_case(f"option nameServers: {error}")) from None


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of a read.

    Args:
        given: as Spark hands them over.
        streaming: whether of a stream or of a batch; None while that is not known, when only what
            is wrong in both is an error.

    Raises:
        ConfigError: one is unknown or wrong, or they contradict each other.
    """
    check_names(given)
    raw = _Raw(_spelled(given))
    least, most = (
        raw.parse(name, cast("Callable[[str], int | None]", parse_positive), None)
        for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    )
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"option minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger {most}"
        )
    positive = cast("Callable[[str], int | None]", parse_positive)
    nothing: tuple[MessageQueue, ...] = ()
    return ReadOptions(
        choice=_choice(raw),
        start=_start(raw, streaming=streaming),
        end=_end(raw, streaming=streaming),
        latest_if_none_that_new=raw.parse(
            "startingTimestampStrategy", one_of("error", "latest"), "error"
        )
        == "latest",
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay=raw.parse("maxTriggerDelay", parse_span, 900.0),
        min_partitions=raw.parse("minPartitions", positive, None),
        max_records=raw.parse("maxRecordsPerPartition", positive, None),
        join_small=raw.parse("joinSmallRanges", parse_flag, default=True),
        fail_on_data_loss=raw.parse("failOnDataLoss", parse_flag, default=True),
        read_timeout=raw.parse("readTimeout", parse_span, 120.0),
        group_id=raw.parse("groupId", _group, None),
        tags=raw.parse("tags", parse_tags, None),
        sql=_sql(raw),
        columns=raw.parse("columns", cast("Callable[[str], Any]", parse_columns), None),
        on_bad_body=cast("OnBadBody", raw.parse("onBadBody", one_of("raw", "fail", "skip"), "raw")),
        properties=cast(
            "Included", raw.parse("includeProperties", one_of("user", "all", "none"), "user")
        ),
        expected=raw.parse("expectedBrokers", _expected, None),
        offset_retries=raw.parse("offsetRetries", parse_count, 3),
        offset_retry_interval=raw.parse("offsetRetryInterval", parse_span, 0.1),
        limit_before_42=raw.parse("limitBefore42", parse_flag, default=False),
        known=raw.parse(KNOWN, parse_assignment, nothing),
        forgotten=raw.parse(FORGOTTEN, parse_names, ()),
        reached=raw.text(REACHED),
    )


def _expected(text: str) -> ExpectedBrokers | None:
    return parse_expected_brokers(text)


def check_expected_topics(options: ReadOptions) -> None:
    """Refuse a promise about a topic that is not read: misspelt, it would guard nothing in silence.

    Raises:
        ConfigError: there is one.
    """
    choice = options.choice
    read = {*choice.topics, *(queue.topic for queue in choice.queues)}
    for topic in options.expected or ():
        if topic and topic not in read and not choice.matches(topic):
            raise ConfigError(
                f"option expectedBrokers: topic {topic!r} is not read here; check its name"
            )


def _sql(raw: _Raw) -> str | None:
    found = raw.text("sql")
    if found is not None and raw.text("tags") is not None:
        raise ConfigError("options tags and sql are both given: brokers filter by one of them")
    return found


def _group(text: str) -> str | None:
    settings.check_group(text)
    return text


def _choice(raw: _Raw) -> TopicChoice:
    given = raw.given("topic", "topics", "topicPattern", "assign")
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        raise ConfigError(
            f"exactly one of the options topic, topics, topicPattern, assign says what to read: {found}"
        )
    if given[0] == "topicPattern":
        return TopicChoice(pattern=raw.parse("topicPattern", parse_pattern, ""))
    if given[0] == "assign":
        nothing: tuple[MessageQueue, ...] = ()
        return TopicChoice(queues=raw.parse("assign", parse_assignment, nothing))
    names = parse_names(raw.text(given[0]) or "")
    if not names:
        raise ConfigError(f"option {given[0]} names no topic")
    return TopicChoice(topics=names)


def _start(raw: _Raw, *, streaming: bool | None) -> Position:
    default, offsets = _place(raw, "startingOffsets", LATEST if streaming else EARLIEST)
    if streaming is False and (default == LATEST or LATEST in offsets.values()):
        raise ConfigError(
            "option startingOffsets: a batch that starts at latest (-1) reads nothing; "
            "use earliest, offsets, or startingTimestamp"
        )
    moment = raw.parse("startingTimestamp", cast("Callable[[str], int | None]", parse_moment), None)
    nothing: dict[MessageQueue, int] = {}
    moments = raw.parse("startingOffsetsByTimestamp", parse_moments, nothing)
    return Position(default, offsets, moment, moments)


def _end(raw: _Raw, *, streaming: bool | None) -> Position:
    if streaming and (given := raw.given(*_ENDING)):
        raise ConfigError(
            f"option {given[0]} ends a batch, not a stream; drop it, or use spark.read"
        )
    default, offsets = _place(raw, "endingOffsets", LATEST)
    if default == EARLIEST or EARLIEST in offsets.values():
        raise ConfigError("option endingOffsets: earliest (-2) is no end; use latest or offsets")
    moment = raw.parse("endingTimestamp", cast("Callable[[str], int | None]", parse_moment), None)
    nothing: dict[MessageQueue, int] = {}
    moments = raw.parse("endingOffsetsByTimestamp", parse_moments, nothing)
    return Position(default, offsets, moment, moments)


def _place(raw: _Raw, name: str, default: int) -> tuple[int, dict[MessageQueue, int]]:
    text = raw.text(name)
    if text is None:
        return default, {}
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return words[text.lower()], {}
    if not text.startswith("{"):
        raise ConfigError(f"option {name}: {text!r} is not earliest, latest, or {OFFSETS_SHAPE}")
    return default, raw.parse(name, parse_offsets, {})


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write.

    Raises:
        ConfigError: one is unknown or wrong.
    """
    check_names(given)
    raw = _Raw(_spelled(given))
    on_bad_row = raw.parse("onBadRow", one_of("fail", "deadletter", "drop"), "fail")
    dead_letters = raw.parse("deadLetterTopic", _written_topic, None)
    if on_bad_row == "deadletter" and dead_letters is None:
        raise ConfigError("option onBadRow is deadletter: name the topic in deadLetterTopic")
    return WriteOptions(
        topic=raw.parse("topic", _written_topic, None),
        stamp_rows=cast(
            "StampRows", raw.parse("stampRows", one_of("true", "false", "inherit"), "true")
        ),
        write_id=raw.parse("writeId", _write_id, None),
        allow_loop=raw.parse("allowLoop", parse_flag, default=False),
        on_bad_row=cast("OnBadRow", on_bad_row),
        dead_letter_topic=dead_letters,
        summary_file=raw.text("summaryFile"),
        delivery_timeout=raw.parse("deliveryTimeout", parse_span, 120.0),
    )


def _written_topic(text: str) -> str | None:
    try:
        check_topic(text)
    except InvalidMessageError as error:
        raise ConfigError(str(error).removeprefix("topic is ")) from None
    return text


def _write_id(text: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text) is None:
        raise ConfigError(f"{text!r}: 1 to 64 letters, digits, dots, dashes or underscores")
    return text
