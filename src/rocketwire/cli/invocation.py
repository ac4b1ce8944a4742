"""What every command is given: its connection settings and its ways to speak.

Settings come from the command line, ``ROCKETWIRE_*`` and ``NAMESRV_ADDR`` in the environment, and
a file, strongest first. The file is the first of ``--config``, ``rocketwire.toml`` here, and
``~/.config/rocketwire/config.toml``. The one in the current folder may have come with a checkout
or a download: it can say where the cluster is and how to talk to it, but name no path, key or
certificate.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints

import typer
from rich.console import Console

from rocketwire.cli import failures
from rocketwire.cli.help_screen import PlainCommand
from rocketwire.cli.output import make_console, to_json
from rocketwire.cli.safe_text import TerminalLog
from rocketwire.cli.setting_names import check_setting_names
from rocketwire.config import (
    ClientConfig,
    ProducerConfig,
    ReaderConfig,
    canonical,
    from_mapping,
    needs_trust,
)
from rocketwire.errors import ConfigError

if TYPE_CHECKING:
    from rocketwire.cli.admin import Inspector
    from rocketwire.sync.admin import Admin
    from rocketwire.sync.producer import Producer
    from rocketwire.sync.reader import Reader

#: Where ``rocketwire cluster`` listens, so that the first try needs no address.
DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
#: Settings that come with a folder.
FOLDER_FILE: Final = Path("rocketwire.toml")
_CONNECTION: Final = "Connection"
_OUTPUT: Final = "Output"
_SCATTERED_PREFIXES: Final = ("tls", "accesskey", "secretkey", "securitytoken", "credentialsfile")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Invocation:
    """One call of one command."""

    as_json: bool = False
    given: dict[str, Any] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)
    console: Console = field(default_factory=make_console)
    errors: Console = field(default_factory=lambda: make_console(stderr=True))

    @property
    def name_servers(self) -> str:
        """The name servers to ask, as text."""
        return ";".join(from_mapping(ReaderConfig, self.settings(ReaderConfig)).name_servers)

    @property
    def is_live(self) -> bool:
        """Whether a person watches, so that a screen may be drawn again and again."""
        return self.console.is_terminal and not self.as_json

    def settings(self, kind: type[ClientConfig], **own: Any) -> dict[str, Any]:
        """The settings for a kind of client; ``own`` are this command's, weaker than all."""
        known = {canonical(spec.name) for spec in dataclasses.fields(kind)}
        values = {"nameservers": DEFAULT_NAME_SERVER} | {canonical(k): v for k, v in own.items()}
        for source in (self.file, _environment(), self.given):
            values |= {canonical(name): value for name, value in source.items()}
        return {k: v for k, v in values.items() if k in known or k.startswith(_SCATTERED_PREFIXES)}

    def producer(self, **own: Any) -> Producer:
        """A producer, not yet started."""
        from rocketwire.sync.producer import Producer

        return Producer(config=self.settings(ProducerConfig, **own))

    def reader(self, **own: Any) -> Reader:
        """A reader, not yet started."""
        from rocketwire.sync.reader import Reader

        return Reader(config=self.settings(ReaderConfig, **own))

    def consumer_settings(self) -> dict[str, Any]:
        """The settings for a consumer."""
        from rocketwire.consumer_config import ConsumerConfig

        return self.settings(ConsumerConfig)

    def admin(self, **own: Any) -> Admin:
        """An admin client, not yet started."""
        from rocketwire.sync.admin import Admin

        return Admin(config=self.settings(ReaderConfig, **own))

    def inspector(self, **own: Any) -> Inspector:
        """A client that asks any server anything, not yet started."""
        from rocketwire.cli.admin import Inspector

        return Inspector(config=self.settings(ReaderConfig, **own))

    def say(self, text: object = "") -> None:
        """Something for people; nothing is written in JSON mode."""
        if not self.as_json:
            self.console.print(text, markup=False)
            self.console.file.flush()

    def emit(self, value: Any) -> None:
        """One line of JSON."""
        print(to_json(value), flush=True)

    def note(self, text: str) -> None:
        """Something beside the result, on standard error."""
        if not self.as_json:
            self.errors.print(text, markup=False)

    def remark(self, kind: str, text: str) -> None:
        """Something that must be said, on standard error; in JSON mode a line of JSON."""
        self.errors.print(to_json({kind: text}) if self.as_json else text, markup=False)


def _environment() -> dict[str, str]:
    """What the environment says, by canonical name; it is stronger than the file."""
    found: dict[str, str] = {}
    if os.environ.get("NAMESRV_ADDR"):
        found["nameservers"] = os.environ["NAMESRV_ADDR"]
    for name, value in os.environ.items():
        if name.startswith("ROCKETWIRE_") and value:
            found[canonical(name.removeprefix("ROCKETWIRE_"))] = value
    return found


def _settings(here: Invocation, given: Path | None) -> dict[str, Any]:
    """The settings of the first file that there is; says so where it is the current folder's."""
    if given is not None:
        return read_settings_file(given)
    if FOLDER_FILE.is_file():
        found = read_folder_file()
        here.remark("settings_file", f"settings from {FOLDER_FILE.absolute()}")
        return found
    return read_settings_file(_own_file()) if _own_file().is_file() else {}


def read_folder_file() -> dict[str, Any]:
    """The settings of ``rocketwire.toml`` in the current folder, which are not trusted.

    Raises:
        ConfigError: as ``read_settings_file``, or it has a setting that needs trust.
    """
    content = _parsed(FOLDER_FILE)
    # Before the values are looked at: that would open the files that they name.
    refused = [name for name in content if _needs_trust(name)]
    if refused:
        raise ConfigError(
            f"{FOLDER_FILE.absolute()}: {', '.join(refused)}: paths, TLS and credentials are not "
            "taken from the current folder's file, which may be anybody's; if it is yours, give "
            f"--config {FOLDER_FILE}, or put them into {_own_file()}"
        )
    return _checked(FOLDER_FILE, content)


def _needs_trust(name: str) -> bool:
    from rocketwire.consumer_config import ConsumerConfig

    return needs_trust(ProducerConfig, name) or needs_trust(ConsumerConfig, name)


def read_settings_file(path: Path) -> dict[str, Any]:
    """The settings of a file that the user chose.

    Raises:
        ConfigError: it can't be read, or has an unknown setting.
    """
    return _checked(path, _parsed(path))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"the settings file {path} can't be read: {error}") from None


def _checked(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    try:
        _check_names(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return content


def _own_file() -> Path:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "rocketwire" / "config.toml"


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings from ``NAME=VALUE`` words.

    >>> parse_options(["send_timeout=5s"])
    {'send_timeout': '5s'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise failures.UsageError(f"--option {pair!r}: write NAME=VALUE, like send_timeout=5s")
        found[name.strip()] = value.strip()
    _check_names(found)
    return found


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuse names that no client knows; values are checked by the client that uses them."""
    from rocketwire.consumer_config import ConsumerConfig

    check_setting_names(settings, (ProducerConfig, ReaderConfig, ConsumerConfig))
    others = {
        canonical(spec.name)
        for kind in (ReaderConfig, ConsumerConfig)
        for spec in dataclasses.fields(kind)
    }
    from_mapping(ProducerConfig, {k: v for k, v in settings.items() if canonical(k) not in others})


_connection_options: Final = {
    "name_server": (
        Annotated[
            str | None,
            typer.Option(
                "--name-server", "-n", metavar="HOST:PORT", rich_help_panel=_CONNECTION,
                help="Name servers, separated by semicolons. Default: NAMESRV_ADDR, the settings "
                f"file, {DEFAULT_NAME_SERVER}.",
            ),
        ],
        None,
    ),
    "option": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--option", "-o", metavar="NAME=VALUE", rich_help_panel=_CONNECTION,
                help="Any client setting, e.g. access_key=..., tls=true. May be repeated.",
            ),
        ],
        None,
    ),
    "config": (
        Annotated[
            Path | None,
            typer.Option(
                "--config", metavar="FILE", rich_help_panel=_CONNECTION,
                help="Settings file. Default: rocketwire.toml (there without paths, TLS and keys), "
                "~/.config/rocketwire/config.toml.",
            ),
        ],
        None,
    ),
}  # fmt: skip
_output_options: Final = {
    "json": (
        Annotated[
            bool, typer.Option("--json", rich_help_panel=_OUTPUT, help="Write JSON, for programs.")
        ],
        False,
    ),
    "debug": (
        Annotated[
            bool,
            typer.Option(
                "--debug",
                rich_help_panel=_OUTPUT,
                help="Show the traceback of a failure, and logs.",
            ),
        ],
        False,
    ),
}
_all_common: Final = _connection_options | _output_options


def command(
    app: typer.Typer,
    name: str,
    *,
    panel: str | None = None,
    connects: bool = True,
    examples: Iterable[str] = (),
) -> Callable[[F], F]:
    """Register a function as a command with the common options.

    Its first parameter gets the ``Invocation``; the others are its own options and arguments.

    Args:
        app: where to register it.
        name: of the command.
        panel: its group in ``--help``.
        connects: whether it has the options for connections.
        examples: command lines for ``--help``.
    """
    common = dict(_connection_options if connects else {}) | _output_options

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]

        def call(**values: Any) -> Any:
            context = values.pop("context")
            chosen = {n: values.pop(n) for n in common}
            return function(_begin(_with_those_before(chosen, context)), **values)

        call.__name__ = function.__name__
        call.__doc__ = function.__doc__
        parameters = [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own]
        _declare(call, [*parameters, *_declared(common)])
        epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in examples)])
        app.command(
            name, cls=PlainCommand, epilog=epilog.replace("[", r"\["), rich_help_panel=panel
        )(call)
        return function

    return register


def takes_common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Let the root command take them, too: ``rocketwire --json doctor`` means what it says.

    The function's own parameters are a context and options; the common ones are read from the
    context by the command that follows.
    """
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]

    def call(**values: Any) -> None:
        failures.wishes.debug, failures.wishes.as_json = values["debug"], values["json"]
        function(values["context"], **{p.name: values[p.name] for p in own})

    call.__doc__ = function.__doc__
    parameters = [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own]
    _declare(call, [*parameters, *_declared(_all_common)])
    return call


def _declared(options: Mapping[str, tuple[Any, Any]]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)
        for n, (hint, default) in options.items()
    ]


def _declare(call: Callable[..., Any], options: Iterable[inspect.Parameter]) -> None:
    """Give a function the signature that typer reads: a context, and these options."""
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *options]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}


def _with_those_before(chosen: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """The options of a command, completed by those that were given before its name."""
    before = {n: v for n, v in context.find_root().params.items() if n in _all_common and v}
    for name in before.keys() - chosen.keys():
        raise failures.UsageError(
            f"{context.command_path} takes no --{name.replace('_', '-')}: it connects to nothing"
        )
    return {name: value or before.get(name) or value for name, value in chosen.items()}


def _show_logs(*, debug: bool) -> None:
    """Let the library's log go to standard error: warnings, or everything with tracebacks."""
    logger = logging.getLogger("rocketwire")
    for handler in [h for h in logger.handlers if isinstance(h, TerminalLog)]:
        logger.removeHandler(handler)
    logger.addHandler(TerminalLog(tracebacks=debug))
    if debug:
        logger.setLevel(logging.INFO)


def _begin(chosen: Mapping[str, Any]) -> Invocation:
    failures.wishes.debug = chosen["debug"]
    failures.wishes.as_json = chosen["json"]
    _show_logs(debug=chosen["debug"])
    here = Invocation(as_json=chosen["json"])
    if "config" in chosen:
        here.file = _settings(here, chosen["config"])
        here.given = parse_options(chosen["option"] or ())
        if chosen["name_server"]:
            here.given["name_servers"] = chosen["name_server"]
    return here
