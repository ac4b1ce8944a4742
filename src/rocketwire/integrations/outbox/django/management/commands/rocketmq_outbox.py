"""``manage.py rocketmq_outbox``: relay the outbox until it is interrupted."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from django.core.management.base import BaseCommand

from rocketwire import Producer
from rocketwire.integrations.outbox import Relay
from rocketwire.integrations.outbox.django import database


class Command(BaseCommand):
    """Relays until it is interrupted or terminated."""

    help = "Send the messages of the outbox, until interrupted"

    def add_arguments(self, parser: Any) -> None:
        """The options."""
        parser.add_argument("--database", default="default", help="which of DATABASES")
        parser.add_argument(
            "--name-server", default=None, help="host:port; NAMESRV_ADDR by default"
        )
        parser.add_argument("--lease", type=float, default=15.0, help="seconds")
        parser.add_argument("--once", action="store_true", help="send what waits, and end")

    def handle(self, *_: Any, **options: Any) -> None:
        """Run."""
        producer = Producer(options["name_server"], group="rocketwire-outbox")
        with producer:
            relay = Relay(database(options["database"]), producer, lease=options["lease"])
            if options["once"]:
                while relay.run_once():
                    pass
                relay.give_back()
                return
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, lambda *_: relay.stop())
                signal.signal(signal.SIGINT, lambda *_: relay.stop())
            relay.run()
