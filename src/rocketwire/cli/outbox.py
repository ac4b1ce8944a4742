"""``rocketwire outbox``: relay the messages that an application wrote to its database."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rocketwire.cli.failures import CommandFailedError, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.signals import stop_requested

if TYPE_CHECKING:
    from rocketwire.integrations.outbox import Relay

app = typer.Typer(add_completion=False)

_LOOK: Final = 0.1


@command(
    app,
    "outbox",
    panel="Messages",
    examples=(
        "rocketwire outbox postgresql+psycopg://shop@db/shop",
        "rocketwire outbox sqlite:///shop.db --create --once",
        "rocketwire outbox sqlite:///shop.db --count --json",
    ),
)
def outbox(
    here: Invocation,
    *,
    url: Annotated[str, typer.Argument(help="Of the database, as SQLAlchemy writes it.")],
    once: Annotated[bool, typer.Option("--once", help="Send what waits, and end.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Create missing tables.")] = False,
    count: Annotated[
        bool, typer.Option("--count", help="Send nothing, only count what waits.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Let rows wait again that were put aside.")
    ] = False,
    lease: Annotated[
        float, typer.Option(min=1.0, help="Seconds until others take over from a relay that died.")
    ] = 15.0,
    keep: Annotated[
        float, typer.Option(min=0.0, help="Seconds for which rows that were sent are kept.")
    ] = 86400.0,
) -> None:
    """Send the messages of an outbox, until Ctrl-C; any number of relays share the work."""
    engine, database = _opened(url, create=create)
    try:
        producer = here.producer(group="rocketwire-outbox")
        relay = _relay(database, producer, lease=lease, keep=keep)
        if retry_failed:
            here.note(f"{_asked(relay.retry_failed)} rows wait again")
        if not count:
            with producer:
                _run(relay, once=once)
        _show(here, relay)
    finally:
        engine.dispose()


def _opened(url: str, *, create: bool) -> tuple[Any, Any]:
    try:
        import sqlalchemy

        from rocketwire.integrations.outbox import Outbox
    except ImportError:
        raise CommandFailedError(
            "SQLAlchemy is not installed: pip install 'rocketwire[outbox]'"
        ) from None
    try:
        engine = sqlalchemy.create_engine(url)
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        raise UsageError(f"the URL of the database can't be used: {error}") from None
    outbox = Outbox()
    if create:
        _asked(lambda: outbox.create(engine))
    return engine, outbox.database(engine)


def _relay(database: Any, producer: Any, **settings: Any) -> Relay:
    from rocketwire.integrations.outbox import Relay

    return Relay(database, producer, **settings)


def _asked(question: Any) -> Any:
    """Ask the database; what it says is told in a line."""
    import sqlalchemy

    try:
        return question()
    except sqlalchemy.exc.SQLAlchemyError as error:
        text = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise CommandFailedError(
            f"the database refused: {text} (--create makes missing tables)"
        ) from error


def _run(relay: Relay, *, once: bool) -> None:
    # A database or a table that is not there is said at once, and not tried again for ever.
    _asked(relay.stats)
    if once:
        while _asked(relay.run_once):
            pass
        _asked(relay.give_back)
        return
    with stop_requested() as stop:
        thread = threading.Thread(target=relay.run, name="outbox")
        thread.start()
        while thread.is_alive() and not stop.wait(_LOOK):
            pass
        relay.stop()
        thread.join()


def _show(here: Invocation, relay: Relay) -> None:
    found = dataclasses.asdict(_asked(relay.stats))
    if here.as_json:
        here.emit(found)
    else:
        here.note(
            f"{found['sent']:,} sent; in the outbox {found['waiting']:,} wait, "
            f"{found['put_aside']:,} are put aside, {found['kept']:,} were sent"
        )
