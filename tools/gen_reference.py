"""Writes the reference pages from the code: settings, errors, commands, Spark options.

Run it after a change of any of these: ``python tools/gen_reference.py``. A test compares.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from rocketwire import config, errors, fault_policy
from rocketwire.cli.application import COMMANDS, app
from rocketwire.cli.failures import FAILED, INTERRUPTED, MISUSED, OK
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.simple_consumer_config import SimpleConsumerConfig
from rocketwire.telemetry_config import TelemetryConfig

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_NOTE = "<!-- Written by tools/gen_reference.py from the code: change it there. -->\n\n"

#: What usually causes an error, and what to do about it.
REMEDIES = {
    "ConfigError": (
        "A setting is unknown or has a wrong value. The text names it and what is allowed.",
        "Correct it. `rocketwire doctor` checks addresses and credentials.",
    ),
    "InvalidMessageError": (
        "A topic name, a size, a property or a combination that RocketMQ does not allow.",
        "Correct the message; nothing was sent. Keys on different queues in one batch: use `send_many`.",
    ),
    "ReplyTimeoutError": (
        "Nobody answered a request in time. `outcome` tells whether the request was stored.",
        "Look whether a consumer of the topic runs and returns a `Reply`; give `timeout=` more. Behind a proxy there are no replies.",
    ),
    "TransactionError": (
        "A broker has not confirmed a commit, or a half message was stored less safely than asked for. `state` tells which.",
        "`UNKNOWN`: the checkers of the group decide, so look at your own records before you begin again. `ROLLED_BACK`: begin again.",
    ),
    "RecallError": (
        "`problem`: a malformed handle, too late, recalls switched off, or a broker older than 5.3.2.",
        "Give the `recall_handle` of the send's result, in time; set `recallMessageEnable=true` on the brokers.",
    ),
    "ClientClosedError": (
        "A client was used before `start()` or after `shutdown()`.",
        "Use it in a `with` statement, or make a new one.",
    ),
    "RouteError": ("No queue is known for a topic.", "See the subclasses."),
    "TopicNotFoundError": (
        "The topic does not exist and brokers do not create topics on first use. A send does not raise it by itself: it is the cause of a SendFailedError.",
        "`rocketwire topic create NAME`, or turn on `autoCreateTopicEnable` on the brokers.",
    ),
    "NoWritableQueueError": (
        "The topic exists, but its brokers are down or may not be written to.",
        "`rocketwire topic show NAME` shows permissions and masters.",
    ),
    "NameServerUnavailableError": (
        "No name server answered: a wrong address, a firewall, or it is down.",
        "`rocketwire doctor` tells which.",
    ),
    "MissingQueuesError": (
        "Queues that the topic is known to have can't be read, so a read would return less.",
        "Bring the brokers back; or say which are left in `expectedBrokers`.",
    ),
    "TransportError": (
        "A connection failed.",
        "See the subclasses; `written` tells if any byte left.",
    ),
    "ConnectFailedError": (
        "The broker is down, or the address that it advertises does not work from here.",
        "`rocketwire doctor` suggests an `address_map` for containers.",
    ),
    "ConnectionLostError": (
        "The broker closed the connection before it answered, for instance because it was restarted.",
        "Sends are tried elsewhere by themselves; otherwise try again.",
    ),
    "RequestTimeoutError": (
        "No answer before the deadline.",
        "Sends are tried elsewhere by themselves. If it happens often: `rocketwire health`.",
    ),
    "ProtocolError": ("Bytes that are not RocketMQ's protocol.", "See the subclasses."),
    "LocalProtocolError": (
        "Something was to be written that the protocol can't carry.",
        "Correct the message; the text names the field.",
    ),
    "RemoteProtocolError": (
        "The peer is no RocketMQ server, or speaks TLS.",
        "`rocketwire doctor` tells who listens there.",
    ),
    "BrokerError": (
        "A broker or name server refused; `code`, `code_name` and `remark` say why.",
        "Act on the remark.",
    ),
    "PermissionDeniedError": (
        "Wrong or missing credentials, or the topic may not be written or read.",
        "Give `credentials`; `rocketwire doctor TOPIC` shows permissions.",
    ),
    "SystemBusyError": (
        "The broker is overloaded and rejects requests for a while.",
        "Sends go elsewhere by themselves; otherwise try again later.",
    ),
    "ServiceNotAvailableError": (
        "The broker is shutting down, its disk is full, or it is a replica.",
        "Look at the broker's disk and log.",
    ),
    "UnknownTopicError": (
        "The broker does not have the topic, though its route says so.",
        "Usually over in a moment; otherwise create the topic on that broker.",
    ),
    "UnsupportedRequestError": (
        "The broker is too old for what was asked, is a proxy that does not serve it, or has it switched off.",
        "The text names the broker and the least release. Ask brokers directly instead of a proxy.",
    ),
    "GroupNotFoundError": (
        "No broker knows the consumer group, or it has no member and no position.",
        "Check its name with `rocketwire group list`; groups come with their first member.",
    ),
    "SendFailedError": (
        "Every attempt failed. `attempts` lists broker, latency and error of each.",
        (
            "`outcome` says what became of the message: `NOT_SENT` and `REJECTED` are safe to send "
            "again, `MAYBE_STORED` may be in the topic already."
        ),
    ),
    "SendTimeoutError": (
        "The deadline of the send ran out.",
        "As for SendFailedError; a longer `send_timeout` leaves room for more attempts.",
    ),
    "SendManyError": (
        "Some messages of a `send_many` failed; `failed` tells how many.",
        (
            "`results` has one result or error per message, in the order given: send again what is "
            "safe to. `return_errors=True` returns that list instead."
        ),
    ),
}

#: What each option of the Spark source means; client settings are described by the configuration.
SPARK_OPTIONS = {
    "nameServers": ("both", "name servers, `host:port;host:port`; without it, `NAMESRV_ADDR`"),
    "topic": ("both", "one topic; when writing it beats the column `topic`"),
    "topics": ("read", "a comma-separated list"),
    "topicPattern": ("read", "a regular expression that the whole name must match"),
    "assign": ("read", 'single queues: `{"topic":{"broker":[0,1]}}`'),
    "startingOffsets": (
        "read",
        (
            '`earliest`, `latest`, or `{"topic":{"broker":{"0":23}}}` with -2 earliest, -1 latest '
            "(stream: `latest`, batch: `earliest`)"
        ),
    ),
    "endingOffsets": ("read", "likewise, exclusive; an error in streams (`latest`)"),
    "startingTimestamp": ("read", "epoch milliseconds or ISO 8601; beats offsets"),
    "endingTimestamp": ("read", "likewise"),
    "startingTimestampStrategy": (
        "read",
        "`error` (default) or `latest`, where nothing is that new",
    ),
    "maxOffsetsPerTrigger": ("read", "rows of one micro-batch at most"),
    "minOffsetsPerTrigger": ("read", "rows to wait for before a micro-batch"),
    "maxTriggerDelay": ("read", "how long to wait for them (15m)"),
    "minPartitions": ("read", "tasks at least"),
    "maxRecordsPerPartition": ("read", "rows of one task at most"),
    "joinSmallRanges": ("read", "read small ranges together in one task (true)"),
    "failOnDataLoss": (
        "read",
        "fail when offsets are gone from the broker, or queues can't be reached (true)",
    ),
    "readTimeout": ("read", "how long a queue may be out of reach (120s)"),
    "expectedBrokers": (
        "read",
        (
            "names of the topic's brokers, or how many; or JSON with either by topic: one that is not "
            "there is an error"
        ),
    ),
    "limitBefore42": (
        "read",
        "keep limits of a batch on PySpark 4.0 and 4.1, for triggers other than availableNow (false)",
    ),
    "startingOffsetsByTimestamp": (
        "read",
        (
            'epoch milliseconds of single queues, `{"topic":{"broker":{"0":1794800000000}}}`; the others '
            "start as `startingOffsets` says"
        ),
    ),
    "endingOffsetsByTimestamp": ("read", "likewise, exclusive; an error in streams"),
    "offsetRetries": ("read", "how often a broker is asked again for offsets (3)"),
    "offsetRetryInterval": ("read", "how long to wait before that (100ms)"),
    "groupId": ("read", "report progress under this consumer group"),
    "sql": ("read", "an SQL92 expression over properties, instead of tags; brokers evaluate it"),
    "tags": ("read", "`TagA || TagB`"),
    "columns": (
        "read",
        (
            "comma-separated; what is left out is not decoded, and `undecodable` (why a body is "
            "given as it is stored) comes only if it is named"
        ),
    ),
    "includeProperties": ("read", "`user` (default), `all`, `none`"),
    "onBadBody": (
        "read",
        (
            "a message whose body can't be decoded: `raw` (default; as it is stored), `fail`, or "
            "`skip` (counted in the task's log)"
        ),
    ),
    "deliveryTimeout": ("write", "how long a task tries to deliver a row (120s)"),
    "stampRows": (
        "write",
        "`true`: each row gets an id by which repeats are recognised; `inherit`: the column `rowId` is it; `false`",
    ),
    "allowLoop": (
        "write",
        "let rows that still have `topic` and `queueOffset` go back to that topic (false)",
    ),
    "writeId": ("write", "a name for this write, so that a repeated job has the same row ids"),
    "onBadRow": ("write", "`fail` (default), `deadletter`, `drop`"),
    "deadLetterTopic": ("write", "where bad rows go"),
    "summaryFile": ("write", "a JSON file about what was written"),
}


#: Settings that can't be written as text.
_NOT_TEXT = {"hooks", "credentials"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def camel(name: str) -> str:
    """A setting's name as Spark's users write it."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _default(spec: dataclasses.Field[Any]) -> str:
    if spec.default_factory is not dataclasses.MISSING:
        shown = spec.default_factory()
        return "`FaultPolicy()`" if isinstance(shown, fault_policy.FaultPolicy) else f"`{shown!r}`"
    value = spec.default
    if value == config.AUTO and spec.name == "attempt_timeout":
        return "a third of `send_timeout`"
    if isinstance(value, int) and not isinstance(value, bool) and value >= config.MIB:
        return f"{value // config.MIB} MiB"
    return "" if value in (None, (), "") else f"`{value!r}`"


def _settings_table(cls: type[Any], without: type[Any] | None = None) -> str:
    inherited = {spec.name for spec in dataclasses.fields(without)} if without else set()
    rows = [
        (
            f"`{spec.name}`",
            _default(spec),
            spec.metadata["help"],
            "" if spec.name in _NOT_TEXT else f"`ROCKETWIRE_{spec.name.upper()}`",
        )
        for spec in dataclasses.fields(cls)
        if spec.name not in inherited
    ]
    return table(["setting", "default", "meaning", "environment"], rows)


def _arguments(doc: str) -> dict[str, str]:
    """The entries of a docstring's ``Args`` or ``Attributes`` section."""
    found: dict[str, str] = {}
    match = re.search(r"(?:Args|Attributes):\n((?:[ ]{4,}.*\n?|\n)+)", inspect.cleandoc(doc) + "\n")
    last = ""
    for line in match[1].splitlines() if match else ():
        entry = re.fullmatch(r"    (\w+): (.*)", line)
        if entry is not None:
            last = entry[1]
            found[last] = entry[2]
        elif last and line.startswith("        "):
            found[last] += " " + line.strip()
        elif line.strip():
            break
    return found


def _value_table(cls: type[Any]) -> str:
    meanings = _arguments(cls.__doc__ or "")
    rows = []
    for spec in dataclasses.fields(cls):
        shown = "" if spec.default is dataclasses.MISSING else f"`{spec.default!r}`"
        rows.append((f"`{spec.name}`", shown, meanings.get(spec.name, "").replace("``", "`")))
    return table(["field", "default", "meaning"], rows)


def configuration() -> str:
    """The page on settings."""
    parts = [
        "# Configuration\n",
        (
            "One definition serves code, mappings, environment variables, the command line and Spark. "
            "An argument beats a mapping, a mapping beats `ROCKETWIRE_*`, that beats `NAMESRV_ADDR`, "
            "and that beats the settings file of the command line. Names are compared without case, "
            "underscores and dashes: `send_timeout`, `sendTimeout` and `ROCKETWIRE_SEND_TIMEOUT` are "
            "one setting. Spans of time are seconds, or text such as `500ms`, `3s`, `15m`, `1d`; sizes are "
            "bytes, or text such as `64k`, `4MiB`.\n"
        ),
        "## Every client\n",
        _settings_table(config.ClientConfig),
        (
            "Keys and TLS files may also be given as text, each as a setting of its own: `access_key`, "
            "`secret_key`, `security_token`, `credentials_file` (JSON), `tls_ca_file`, `tls_cert_file`, "
            "`tls_key_file`, `tls_key_password`, `tls_verify`, `tls_server_name`.\n"
        ),
        "## Producer and AsyncProducer\n",
        _settings_table(config.ProducerConfig, config.ClientConfig),
        "## Reader and AsyncReader\n",
        _settings_table(config.ReaderConfig, config.ClientConfig),
        "## Consumer and AsyncConsumer\n",
        _settings_table(ConsumerConfig, config.ClientConfig),
        "## SimpleConsumer and AsyncSimpleConsumer\n",
        _settings_table(SimpleConsumerConfig, config.ClientConfig),
        "## FaultPolicy\n",
        (
            "`FaultPolicy()` is on by default; `FaultPolicy.java4()` and `FaultPolicy.java5()` follow "
            "Java's tables, `FaultPolicy.off()` turns it off. As text: `default`, `java4`, `java5`, "
            "`java5-detector`, `off`. Every number of the default policy:\n"
        ),
        _value_table(fault_policy.FaultPolicy),
        "## Tls\n",
        _value_table(config.Tls),
        "## AutoBatch\n",
        _value_table(config.AutoBatch),
        "## TelemetryConfig\n",
        _value_table(TelemetryConfig),
    ]
    return "\n".join(parts)


def _error_classes() -> list[type[errors.RocketMQError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.RocketMQError)
    ]


def error_page() -> str:
    """The page on errors."""
    tree = re.search(r"::\n\n(.*?)\n\nAll of them", errors.__doc__ or "", re.DOTALL)
    parts = [
        "# Errors\n",
        (
            "Every exception that Rocketwire raises, all of them importable from `rocketwire`. They "
            "survive pickling, so that they cross process boundaries whole. What to catch, and what an outcome "
            "means: [when a send fails](../howto/when-a-send-fails.md).\n"
        ),
        f"```text\n{inspect.cleandoc(tree[1]) if tree else ''}\n```\n",
    ]
    for cls in _error_classes():
        if cls is errors.RocketMQError:
            continue
        cause, remedy = REMEDIES[cls.__name__]
        parts += [
            f"## {cls.__name__}\n",
            f"{inspect.cleandoc(cls.__doc__ or '').replace('``', '`')}\n",
            f"**Cause.** {cause}\n",
            f"**Remedy.** {remedy}\n",
        ]
        if cls.retryable:
            parts.append("`retryable` is true: the same call may succeed later, or elsewhere.\n")
    return "\n".join(parts)


def _command_section(name: str, found: Any) -> list[str]:
    usage = [f"rocketwire {name}"]
    usage += [_argument(p) for p in found.params if p.param_type_name == "argument"]
    parts = [f"## rocketwire {name}\n", f"{inspect.cleandoc(found.help or '')}\n"]
    parts.append(f"```text\n{' '.join(usage)} [OPTIONS]\n```\n")
    rows = [
        (f"`{_option_names(p)}`", _text(p.help), _option_default(p))
        for p in found.params
        if not getattr(p, "hidden", False) and p.name not in _COMMON_OPTIONS
    ]
    if rows:
        parts.append(table(["", "meaning", "default"], rows))
    examples = [line.strip() for line in (found.epilog or "").replace("\\[", "[").split("\n\n")[1:]]
    parts.append("```text\n" + "\n".join(f"$ {line}" for line in examples) + "\n```\n")
    return parts


_COMMON_OPTIONS = {"name_server", "option", "config", "json", "debug", "help"}


def _text(help_text: str | None) -> str:
    return (help_text or "").replace("\n", " ").strip()


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name or "").upper()
    return name if parameter.required else f"[{name}]"


def _option_names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _argument(parameter)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    is_flag = getattr(parameter, "is_flag", False)
    metavar = (
        "" if is_flag else f" {parameter.metavar or (parameter.name or '').upper().strip('_')}"
    )
    return names + metavar


def _option_default(parameter: Any) -> str:
    value = parameter.default
    if getattr(parameter, "required", False):
        return "required" if parameter.param_type_name == "option" else ""
    return "" if value in (None, False, "") or callable(value) else f"`{value}`"


def commands() -> str:
    """The page on commands."""
    parts = [
        "# Commands\n",
        (
            "`pip install './rocketwire[cli]'`, in the folder that holds your clone, brings the `rocketwire` command; `python -m rocketwire` "
            "is the same. `rocketwire --install-completion` teaches it to bash, zsh or fish; in a new zsh the first "
            "Tab only loads it.\n"
        ),
        (
            "Every command that talks to a cluster takes `--name-server HOST:PORT` (`-n`), "
            "`--option NAME=VALUE` (`-o`, any client setting) and `--config FILE`. Without them "
            "`NAMESRV_ADDR`, `rocketwire.toml` in the current folder, "
            "`~/.config/rocketwire/config.toml`, and at last `127.0.0.1:9876` count. "
            "A `rocketwire.toml` in the current folder may have come with a checkout: the commands "
            "say on standard error that they read it, and it may name servers and harmless settings "
            "only. Paths (`status`, `telemetry`, `offsets_folder`, `credentials_file`), TLS and "
            "credentials in it are an error; they belong into the environment, into "
            "`~/.config/rocketwire/config.toml`, or into a file given with `--config`. "
            "`--json` writes JSON for programs; `--debug` shows the traceback of a failure. All of these "
            "may also come before the command: `rocketwire --json doctor`.\n"
        ),
        table(
            ["exit code", "meaning"],
            [
                (str(OK), "success"),
                (str(FAILED), "it failed; one line on standard error says why"),
                (str(MISUSED), "it was called wrongly, or a setting is wrong"),
                (str(INTERRUPTED), "interrupted"),
            ],
        ),
    ]
    group = typer.main.get_command(app)
    for name in COMMANDS:
        found: Any = typer.main.get_command(import_module(COMMANDS[name]).app)
        if hasattr(found, "commands"):
            for inner, command in found.commands.items():
                parts += _command_section(f"{name} {inner}", command)
        else:
            parts += _command_section(name, found)
    assert group is not None
    return "\n".join(parts)


def spark_options() -> str:
    """The page on options of the Spark data source."""
    from rocketwire.spark.options import ALL_OPTIONS, CLIENT_OPTIONS

    own = [name for name in ALL_OPTIONS if name not in CLIENT_OPTIONS]
    unknown = [name for name in own if name not in SPARK_OPTIONS]
    if unknown:
        sys.exit(f"tools/gen_reference.py says nothing about the Spark options {unknown}")
    parts = [
        "# Spark options\n",
        (
            'Options of `spark.read.format("rocketmq")` and its three siblings. Names are compared '
            "without case; an unknown one is an error that names the nearest.\n"
        ),
        table(["option", "for", "meaning"], [(f"`{n}`", *SPARK_OPTIONS[n]) for n in own]),
        "Every client setting is an option, too, in camel case and as text: "
        + ", ".join(f"`{name}`" for name in CLIENT_OPTIONS)
        + ". See [configuration](configuration.md).\n",
    ]
    return "\n".join(parts)


PAGES = {
    "configuration.md": configuration,
    "errors.md": error_page,
    "commands.md": commands,
    "spark-options.md": spark_options,
}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(_NOTE + make().rstrip() + "\n", encoding="utf-8")


def expected(name: str) -> str:
    """What a page should hold; for the test."""
    return _NOTE + PAGES[name]().rstrip() + "\n"


if __name__ == "__main__":
    main()
