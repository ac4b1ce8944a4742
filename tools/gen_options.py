"""Writes ``src/rocketwire/options.py``: what type checkers know of the settings.

Run it after a change of a setting: ``python tools/gen_options.py`` (or ``make options``). A test
compares. The settings themselves are defined once, in the tables of ``config``,
``consumer_config`` and ``simple_consumer_config``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocketwire import compound_settings, config, consumer_config, setting_values, telemetry_config
from rocketwire.simple_consumer_config import SimpleConsumerConfig

TARGET: Final = Path(__file__).parent.parent / "src" / "rocketwire" / "options.py"

#: What a setting accepts, by the function that reads it. Numbers and flags are also read from text,
#: for variables and command lines; in code a text there is more likely a mistake.
ACCEPTS: Final[dict[Any, str]] = {
    str: "str",
    setting_values.text_or_none: "str | None",
    setting_values.flag: "bool",
    setting_values.whole: "int",
    setting_values.size: "int | str",
    setting_values.seconds: "float | str",
    config._name: "str | None",  # noqa: SLF001 - this tool belongs to the tables
    compound_settings.as_credentials: "CredentialsSource | None",
    compound_settings.as_tls: "Tls | Mapping[str, Any] | bool | None",
    compound_settings.as_address_map: "AddressMap | str | None",
    config._fault: "FaultPolicy | FaultPolicyName",  # noqa: SLF001
    config._hooks: "Iterable[Hook]",  # noqa: SLF001
    config._attempt_timeout: "float | str | None",  # noqa: SLF001
    compound_settings.as_auto_batch: "AutoBatch | Mapping[str, Any] | bool | None",
    config._trace: "bool | str | None",  # noqa: SLF001
    telemetry_config.as_telemetry: "TelemetryConfig | Mapping[str, Any] | str | PathLike[str] | None",
    consumer_config.start_position: "Start",
    consumer_config._attempts: "int | None",  # noqa: SLF001
}

#: Parameters of the clients' constructors that are no part of ``**options``.
APART: Final = {"name_servers", "group"}
#: A consumer's ``batch`` decides what its handler gets, and the shells differ in what they take as
#: ``middleware``, so these are parameters, too; a simple consumer's ``start`` always was one.
APART_IN: Final = {
    "ProducerOptions": {"middleware"},
    "ConsumerOptions": {"batch", "middleware"},
    "SimpleConsumerOptions": {"start"},
}

#: Settings that are several text options elsewhere may be given so in code, too.
SCATTERED: Final = {
    "access_key": "str | None",
    "secret_key": "str | None",
    "security_token": "str | None",
    "credentials_file": "str | None",
    "tls_ca_file": "str | None",
    "tls_cert_file": "str | None",
    "tls_key_file": "str | None",
    "tls_key_password": "str | None",
    "tls_verify": "bool",
    "tls_server_name": "str | None",
}

HEAD: Final = '''"""What may be given to clients as ``**options``, for type checkers and editors.

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

FaultPolicyName: TypeAlias = Literal[{policies}]
#: Where a new group begins. Text is also a time such as 2026-11-15T12:00:00+00:00.
Start: TypeAlias = "str | float | datetime"
'''

CLASSES: Final = (
    ("ClientOptions", config.ClientConfig, None, "What every client may be given."),
    ("ProducerOptions", config.ProducerConfig, "ClientOptions", "What producers may be given."),
    ("ReaderOptions", config.ReaderConfig, "ClientOptions", "What readers may be given."),
    ("ConsumerOptions", consumer_config.ConsumerConfig, "ClientOptions", "What consumers may be given."),
    (
        "SimpleConsumerOptions",
        SimpleConsumerConfig,
        "ClientOptions",
        "What simple consumers may be given.",
    ),
)  # fmt: skip


def accepted(spec: dataclasses.Field[Any]) -> str:
    """The type of what a setting accepts."""
    if "accepts" in spec.metadata:
        return str(spec.metadata["accepts"])
    parse = spec.metadata["parse"]
    choices = getattr(parse, "choices", None)
    if choices is not None:
        return f"Literal[{_quoted(choices)}]"
    if parse not in ACCEPTS:
        sys.exit(f"{spec.name}: say what it accepts, in ACCEPTS or by option(accepts=...)")
    return ACCEPTS[parse]


def _quoted(names: Iterator[str] | tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _items(name: str, kind: type[config.ClientConfig], parent: str | None) -> Iterator[str]:
    inherited = {spec.name for spec in dataclasses.fields(config.ClientConfig)} if parent else set()
    left_out = inherited | APART | APART_IN.get(name, set())
    for spec in dataclasses.fields(kind):
        if spec.name not in left_out:
            yield f"    {spec.name}: {accepted(spec)}"
            yield f'    """{spec.metadata["help"]}"""'
    if parent is None:
        yield from (f"    {option}: {kind}" for option, kind in SCATTERED.items())


def generate() -> str:
    """The module's text."""
    from rocketwire.fault_policy import FaultPolicy

    lines = [HEAD.format(policies=_quoted(tuple(FaultPolicy.by_name())))]
    for name, kind, parent, text in CLASSES:
        lines += [
            "",
            f"class {name}({parent or 'TypedDict'}, total=False):",
            f'    """{text}"""',
            "",
        ]
        lines += [*_items(name, kind, parent), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    TARGET.write_text(generate())
    print(TARGET)
