"""What must hold after the demo, read back from the brokers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rocketwire.cli.demo.load import Client
from rocketwire.sync.reader import Reader


@dataclass(frozen=True, slots=True)
class Check:
    """One statement, whether it holds, and the figures behind it."""

    statement: str
    holds: bool
    figures: str


def check_orders(reader: Reader, client: Client) -> tuple[list[Check], int]:
    """Every acknowledged order is there, and repeats were foretold; also counts the repeats."""
    stored = Counter(str(message.keys) for message in reader.read(client.topic))
    missing = client.acknowledged - set(stored)
    repeats = {key: count - 1 for key, count in stored.items() if count > 1}
    untold = [key for key in repeats if key not in client.doubtful]
    ghosts = [
        key for key in stored if key not in client.acknowledged and key not in client.doubtful
    ]
    checks = [
        Check(
            f"{client.name}: every acknowledged order is stored",
            not missing,
            f"{len(client.acknowledged):,} acknowledged, {len(missing)} missing",
        ),
        Check(
            f"{client.name}: a send had told of every repeat",
            not untold and not ghosts,
            f"{sum(repeats.values())} repeats, {len(client.doubtful)} sends told that one may be",
        ),
    ]
    return checks, sum(repeats.values())


def check_failures(client: Client) -> Check:
    """No send failed."""
    failed = len(client.failures)
    return Check(
        f"{client.name}: no send failed",
        failed == 0,
        f"{len(client.samples):,} sends, {failed} failed",
    )


def check_order(reader: Reader, client: Client) -> Check:
    """Entries of each account were stored in order, once repeats are left out.

    While a broker is gone from the route, its accounts move to another queue, as in Java: so the
    order is that of the store times, over all queues.
    """
    entries = [
        (str(message.sharding_key), message.stored_at, int(message.body))
        for message in reader.read(client.topic)
    ]
    seen: dict[str, int] = {}
    gaps = 0
    for key, _, place in sorted(entries):
        last = seen.get(key, 0)
        gaps += place > last + 1
        seen[key] = max(last, place)
    return Check(
        "ordered messages: each account's entries are stored in order",
        gaps == 0,
        f"{len(seen)} accounts, {len(entries):,} entries, {gaps} gaps",
    )
