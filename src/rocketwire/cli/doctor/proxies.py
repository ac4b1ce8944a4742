"""Checks through a proxy of RocketMQ 5, which tells no more than where a topic's messages go."""

from __future__ import annotations

from rocketwire.cli.admin import Inspector
from rocketwire.cli.doctor.brokers import Known, ask_figures, ways_to_map
from rocketwire.cli.doctor.findings import Report
from rocketwire.errors import RocketMQError
from rocketwire.wire.command import Reply


def check_ways(report: Report, admin: Inspector, topics: list[str], server: str) -> list[Known]:
    """Try the addresses to which the routes of some topics lead.

    Args:
        report: what was found.
        admin: the client.
        topics: those to ask for; a proxy may not know one of them.
        server: the proxy's address, as it was given.

    Returns:
        The brokers behind those that answer.
    """
    masters: dict[str, str] = {}
    for topic in topics:
        try:
            masters |= {d.broker: d.master for d in admin.route(topic).brokers if d.master}
        except RocketMQError:  # what is wrong with a topic is told by its own check
            continue
    if not masters:
        report.skipped("brokers", f"the proxy tells of none: it has no {' and no '.join(topics)}")
    found: list[Known] = []
    for advertised in sorted(set(masters.values())):
        names = sorted(name for name, address in masters.items() if address == advertised)
        used = admin.translate(advertised)
        if _answers(report, admin, advertised, used, names, server):
            found += [Known(name, used) for name in names]
    return found


def _answers(
    report: Report, admin: Inspector, advertised: str, used: str, names: list[str], server: str
) -> bool:
    check = f"proxy for {', '.join(names)}"
    shown = advertised if used == advertised else f"{advertised}, by address_map {used}"
    reply = ask_figures(admin, used)
    if isinstance(reply, Reply):
        report.well(check, f"{shown} answers")
        return True
    report.ill(
        check,
        f"{shown}: {reply}",
        "the proxy gives routes to an address that can't be reached from here, as behind a load "
        "balancer",
        *ways_to_map({advertised: server}),
        "or have it advertise another address: remotingAccessAddr in rmq-proxy.json",
    )
    return False
