"""``rocketwire doctor``: what is wrong between here and a cluster, and how to put it right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from rocketwire.cli.doctor.findings import Finding, Report, Verdict
from rocketwire.cli.failures import FAILED
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.safe_text import visible
from rocketwire.errors import RocketMQError, UnsupportedRequestError

if TYPE_CHECKING:
    from rocketwire.cli.admin import Inspector
    from rocketwire.cli.doctor.brokers import Known

app = typer.Typer(add_completion=False)

_MARKS: Final = {
    Verdict.WELL: ("ok  ", "green"),
    Verdict.REMARK: ("note", "yellow"),
    Verdict.ILL: ("BAD ", "bold red"),
    Verdict.SKIPPED: ("-   ", "dim"),
}


@command(
    app,
    "doctor",
    panel="Start here",
    examples=(
        "rocketwire doctor --name-server rocketmq.example.com:9876",
        "rocketwire doctor orders --probe",
        "rocketwire doctor --json | jq '.findings[] | select(.verdict == \"ill\")'",
    ),
)
def doctor(
    here: Invocation,
    *,
    topic: Annotated[str | None, typer.Argument(help="Also look at this topic.")] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Send a test message to TOPIC itself, too.")
    ] = False,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Send no test message at all.")
    ] = False,
) -> None:
    """Check name servers, brokers, addresses, topic, credentials, clocks, and a message."""
    report = Report()
    shown = 0
    for _ in _examine(here, report, topic, probe=probe, send=not no_probe):
        for finding in report.findings[shown:]:
            _show(here, finding)
        shown = len(report.findings)
    if here.as_json:
        found = [finding.described() for finding in report.findings]
        here.emit({"well": report.is_well, "findings": found})
    else:
        _conclude(here, report)
    if not report.is_well:
        raise typer.Exit(FAILED)


def _examine(
    here: Invocation, report: Report, topic: str | None, *, probe: bool, send: bool
) -> Iterator[None]:
    """The checks in their order; gives way after each group, so that it can be shown."""
    from rocketwire.cli.doctor.brokers import check_addresses, check_clusters
    from rocketwire.cli.doctor.proxies import check_ways
    from rocketwire.cli.doctor.servers import check_name_servers
    from rocketwire.cli.doctor.topics import PROBE_TOPIC, check_topic_route

    servers = here.name_servers.split(";")
    with here.inspector(background=False) as admin:
        usable = check_name_servers(report, admin, servers, tls=admin.uses_tls)
        yield
        if not usable:
            report.skipped("brokers, topic, probe", "there is no name server to ask")
            yield
            return
        known = []
        try:
            if check_clusters(report, info := admin.clusters()):
                yield
                known = check_addresses(report, admin, info, servers[0])
        except UnsupportedRequestError:
            names = [PROBE_TOPIC] if topic is None else [PROBE_TOPIC, topic]
            known = check_ways(report, admin, names, servers[0])
        except RocketMQError as error:
            report.skipped("brokers", f"the name server does not tell: {error}")
            yield
            return
        yield
        if topic is not None:
            check_topic_route(report, admin, topic)
            yield
        if send and known:
            for _ in _probe(here, report, admin, known, topic if probe else None):
                yield
        elif send:
            report.skipped("probe", "no broker can be used")
    yield


def _probe(
    here: Invocation, report: Report, admin: Inspector, known: list[Known], topic: str | None
) -> Iterator[None]:
    from rocketwire.cli.doctor.topics import PROBE_TOPIC, check_probe

    with here.producer(background=False, group="rocketwire-doctor") as producer:
        for name in (PROBE_TOPIC, topic):
            if name is None:
                continue
            try:
                brokers = {queue.broker for queue in producer.publish_queues(name)}
            except RocketMQError as error:
                report.skipped(f"probe of {name}", str(error))
                continue
            for broker in known:
                if broker.name in brokers:
                    check_probe(report, admin, producer, name, broker)
                    yield


def _show(here: Invocation, finding: Finding) -> None:
    if here.as_json:
        return
    mark, style = _MARKS[finding.verdict]
    here.console.print(
        Text.assemble((mark, style), f" {visible(f'{finding.check}: {finding.saw}')}")
    )
    if finding.means:
        here.console.print(Text(f"       {visible(finding.means)}"))
    for line in finding.remedy:
        here.console.print(Text.assemble("       ", ("-> ", "cyan"), visible(line)))


def _conclude(here: Invocation, report: Report) -> None:
    ill = sum(finding.verdict is Verdict.ILL for finding in report.findings)
    remarks = sum(finding.verdict is Verdict.REMARK for finding in report.findings)
    here.say()
    if ill:
        here.say(f"{ill} of {len(report.findings)} checks are bad; what to do is above.")
        return
    noted = f", {remarks} to note" if remarks else ""
    here.say(f"All is well{noted}. In your code:")
    here.say(f'  with Producer("{here.name_servers}") as producer:')
    here.say('      producer.send(Message("orders", b"hello"))')
