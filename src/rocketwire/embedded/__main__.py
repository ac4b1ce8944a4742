"""``python -m rocketwire.embedded``: a broker, or a whole cluster, for scripts.

It says nothing; ``--ready-file`` is written, as JSON, once everything serves. People use
``rocketwire cluster`` and ``rocketwire broker`` instead.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.embedded.process import run_broker
from rocketwire.errors import RocketMQError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rocketwire.embedded", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    broker = kinds.add_parser("broker", help="one broker")
    broker.add_argument("--name-server", required=True)
    broker.add_argument("--name", required=True)
    cluster = kinds.add_parser("cluster", help="a name server and brokers")
    cluster.add_argument("--brokers", type=int, default=1)
    for kind in (broker, cluster):
        kind.add_argument("--folder", required=True)
        kind.add_argument("--port", type=int, default=0)
        kind.add_argument("--host", default="127.0.0.1")
        kind.add_argument("--flush", choices=("async", "sync"), default="async")
        kind.add_argument("--ready-file", type=Path)
    return parser


def _announce(path: Path | None, addresses: dict[str, str]) -> None:
    if path is not None:
        scratch = path.with_name(path.name + ".tmp")
        scratch.write_text(json.dumps(addresses | {"pid": os.getpid()}))
        scratch.replace(path)


def _run_cluster(given: argparse.Namespace) -> None:
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    options: dict[str, Any] = {"folder": given.folder, "host": given.host, "flush": given.flush}
    with EmbeddedCluster(given.brokers, ports=given.port, **options) as cluster:
        addresses = {broker.name: broker.address for broker in cluster.brokers}
        _announce(given.ready_file, addresses | {"name-server": cluster.name_server})
        signal.sigwait(signals)


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT."""
    given = _parser().parse_args(arguments)
    try:
        if given.kind == "cluster":
            _run_cluster(given)
            return 0
        run_broker(
            name_server=given.name_server,
            name=given.name,
            folder=given.folder,
            port=given.port,
            host=given.host,
            flush=given.flush,
            ready=lambda broker: _announce(given.ready_file, {broker.name: broker.address}),
        )
    except RocketMQError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
