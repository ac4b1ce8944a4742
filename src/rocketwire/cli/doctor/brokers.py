"""Checks of brokers: does each advertised address work from here, and which version is it?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from rocketwire.cli.admin import Inspector
from rocketwire.cli.doctor.findings import Report
from rocketwire.cli.doctor.reach import Peer, kind_of_host, look_at
from rocketwire.cli.doctor.servers import (
    is_about_identity,
    is_refused_for_credentials,
    report_credentials,
)
from rocketwire.errors import RocketMQError
from rocketwire.setting_values import check_address
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Reply, decode_command
from rocketwire.wire.lenient_json import loads
from rocketwire.wire.route import MASTER_ID, ClusterInfo

_PATIENCE: Final = 3.0
_OLDEST: Final = (4, 9)
#: The number of 4.0.0, and how many steps of two there are up to the one that means "newer".
_FIRST: Final = 213
_HIGHEST: Final = (612 - _FIRST) // 2


@dataclass(frozen=True, slots=True)
class Known:
    """A master that can be used: its name and the address that works from here."""

    name: str
    address: str


def check_clusters(report: Report, info: ClusterInfo) -> bool:
    """Say which clusters and brokers there are; whether there is a master at all."""
    if not info.brokers:
        report.ill(
            "brokers",
            "the name server knows no broker",
            "brokers have not registered, or with another name server",
            "start a broker with namesrvAddr set to this name server",
        )
        return False
    names = ", ".join(
        f"{cluster} ({', '.join(sorted(brokers))})" for cluster, brokers in info.clusters.items()
    )
    report.well("brokers", f"clusters: {names}")
    for name, data in sorted(info.brokers.items()):
        if MASTER_ID not in data.addresses:
            report.ill(
                f"broker {name}",
                "only replicas are registered, no master",
                "nothing can be written to it until a master is back",
                "start its master (brokerId=0), or let the controller elect one",
            )
    return any(MASTER_ID in data.addresses for data in info.brokers.values())


def check_addresses(
    report: Report, admin: Inspector, info: ClusterInfo, server: str
) -> list[Known]:
    """Try the address of each broker from here; returns the masters that answer."""
    found: list[Known] = []
    suggested: dict[str, str] = {}
    for name, data in sorted(info.brokers.items()):
        for number, advertised in sorted(data.addresses.items()):
            role = "master" if number == MASTER_ID else f"replica {number}"
            used = admin.translate(advertised)
            check = f"{name} ({role})"
            shown = advertised if used == advertised else f"{advertised}, by address_map {used}"
            reply = ask_figures(admin, used)
            if isinstance(reply, Reply):
                if _is_well(report, check, shown, reply) and number == MASTER_ID:
                    found.append(Known(name, used))
                continue
            instead = _find_instead(admin, name, advertised, server)
            if instead is not None:
                suggested[advertised] = instead
            reason = _reason(advertised, server)
            _report_unreachable(report, check, f"{shown}: {reply}", reason, instead)
    if suggested:
        report.remark("address_map", f"{len(suggested)} addresses would work under another name",
                      "brokers advertise addresses that do not work from here",
                      *ways_to_map(suggested))  # fmt: skip
    return found


def ask_figures(admin: Inspector, address: str) -> Reply | RocketMQError:
    """Ask a server for its figures; any answer shows that it can be reached."""
    try:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return admin.try_asking(address, code, timeout=_PATIENCE)
    except RocketMQError as error:
        return error


def _is_well(report: Report, check: str, shown: str, reply: Reply) -> bool:
    if is_refused_for_credentials(reply) and is_about_identity(reply.remark or ""):
        report.well(check, f"{shown} answers")
        report_credentials(report, check, reply.remark or "")
        return False
    version = version_of(reply)
    report.well(check, f"{shown} answers, version {version or 'unknown'}")
    numbers = _numbers(version)
    if numbers and numbers < _OLDEST:
        report.remark(
            f"version of {check}",
            f"it is {version}",
            "Rocketwire is tested with 4.9 and 5.x",
            "most things work with older brokers, too; test yours",
        )
    return True


def version_of(reply: Reply) -> str:
    """A broker's version in words, as ``5.3.3``: from its figures, else from its answer's header."""
    try:
        table: Any = loads(bytes(reply.body)).get("table") or {}
        text = str(table.get("brokerVersionDesc") or "")
    except (RocketMQError, AttributeError):
        text = ""
    return text.removeprefix("V").replace("_", ".") or version_name(
        decode_command(reply.frame).version
    )


def version_name(number: int) -> str:
    """The release that a number in a header means; empty where it is before 4.0 or unknown.

    Two numbers per patch, ten patches per minor release, and 5.0 follows 4.9.

    >>> version_name(479), version_name(407)
    ('5.3.3', '4.9.7')
    """
    place = (number - _FIRST) // 2
    if not 0 <= place < _HIGHEST:
        return ""
    minor, patch = divmod(place, 10)
    return f"4.{minor}.{patch}" if minor < 10 else f"5.{minor - 10}.{patch}"


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    are_sound = all(part.isdecimal() and len(part) < 10 for part in parts)
    return tuple(int(part) for part in parts) if are_sound else ()


def _find_instead(admin: Inspector, name: str, advertised: str, server: str) -> str | None:
    """Another address under which the same broker answers: its port on the name server's host."""
    port = check_address(advertised, "address")[1]
    hosts = dict.fromkeys([check_address(server, "name server")[0], "127.0.0.1"])
    for host in hosts:
        shown = f"[{host}]" if ":" in host else host
        candidate = f"{shown}:{port}"
        if candidate == advertised:
            continue
        try:
            reply = admin.try_asking(candidate, RequestCode.GET_BROKER_CONFIG, timeout=_PATIENCE)
        except RocketMQError:
            continue
        lines = bytes(reply.body).decode(errors="replace").splitlines()
        if f"brokerName={name}" in lines or is_refused_for_credentials(reply):
            return candidate
    return None


def _reason(advertised: str, server: str) -> str:
    """Why an advertised address may not work from here."""
    kind = kind_of_host(check_address(advertised, "address")[0])
    is_local = kind_of_host(check_address(server, "name server")[0]) == "loopback"
    if kind == "loopback" and not is_local:
        return "the broker advertises a loopback address, which only its own machine can use"
    if kind == "private" and is_local:
        return "probably a container's address, which is not routed from here"
    if kind == "name" and look_at(advertised).peer is Peer.UNKNOWN_HOST:
        return "a name that only its own network resolves, as in Docker or Kubernetes"
    return "the broker is down, or a firewall is in between"


def _report_unreachable(
    report: Report, check: str, saw: str, reason: str, instead: str | None
) -> None:
    remedies = []
    if instead is not None:
        remedies.append(f"the same broker answers at {instead}: see address_map below")
    else:
        remedies.append("see that the broker runs, and that its port is open to this machine")
    remedies.append("or have it advertise another address: brokerIP1=HOST in broker.conf")
    report.ill(check, saw, reason, *remedies)


def ways_to_map(suggested: dict[str, str]) -> tuple[str, ...]:
    """How to use other addresses than the advertised ones."""
    as_json = json.dumps(suggested)
    return (
        f"in code: Producer(..., address_map={suggested!r})",
        f"here: -o 'address_map={as_json}'",
        f"anywhere: export ROCKETWIRE_ADDRESS_MAP='{as_json}'",
        f"in Spark: .option('addressMap', '{as_json}')",
    )
