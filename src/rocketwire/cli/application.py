"""The ``rocketwire`` command: which commands exist, and what a failure looks like.

Command modules are imported when they are called or listed, never before, and import what is
heavy (clients, the embedded cluster, Spark) only inside their functions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from rocketwire.cli import failures
from rocketwire.cli.help_screen import CommandsFirst
from rocketwire.cli.invocation import takes_common_options

#: Name of the command: its module. The order is that of ``--help``.
COMMANDS: Final = {
    "demo": "rocketwire.cli.demo.command",
    "doctor": "rocketwire.cli.doctor.command",
    "health": "rocketwire.cli.health",
    "send": "rocketwire.cli.send",
    "read": "rocketwire.cli.read",
    "consume": "rocketwire.cli.consume",
    "topic": "rocketwire.cli.topic",
    "group": "rocketwire.cli.group",
    "dlq": "rocketwire.cli.dlq",
    "replay": "rocketwire.cli.replay",
    "outbox": "rocketwire.cli.outbox",
    "exporter": "rocketwire.cli.exporter",
    "publish": "rocketwire.cli.publish",
    "transform": "rocketwire.cli.transform",
    "archive": "rocketwire.cli.archive",
    "report": "rocketwire.cli.report",
    "lab": "rocketwire.cli.lab",
    "simulate": "rocketwire.cli.simulate",
    "cluster": "rocketwire.cli.cluster",
    "broker": "rocketwire.cli.broker",
    "fault": "rocketwire.cli.fault",
    "bench": "rocketwire.cli.bench",
}


class LazyCommands(CommandsFirst):
    """Imports a command's module when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        found: Any = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        found.name = cmd_name
        if not isinstance(getattr(found, "rich_help_panel", None), str):
            # Those without a panel would be listed before "Start here".
            found.rich_help_panel = "The cluster"
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was meant, or say which are near."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
            raise failures.UsageError(f"there is no command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=LazyCommands, name="rocketwire", pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        from rocketwire.version import __version__

        print(f"rocketwire {__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog="First steps:  rocketwire demo\n\nYour own cluster:  "
    "rocketwire doctor -n HOST:9876\n\nHelp on a command:  rocketwire send --help",
)
@takes_common_options
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Apache RocketMQ from the command line: send, read, look, try, break, mend."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code.

    0 means success, 1 that it failed, 2 that it was called wrongly, 130 that it was interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = typer.main.get_command(app).main(
            args=given, prog_name="rocketwire", standalone_mode=False
        )
    except Exception as error:  # noqa: BLE001 - every failure becomes one line
        return failures.report(error)
    except KeyboardInterrupt:
        return failures.INTERRUPTED
    return code if isinstance(code, int) else 0
