"""What must hold after the demo, read back from the brokers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from rocketwire.cli.demo.load import Client, LedgerClient
from rocketwire.message import MessageQueue
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


def check_order(reader: Reader, client: LedgerClient) -> Check:
    """Each account has one queue, in which its entries stand in order, repeats left out."""
    seen: dict[str, int] = {}
    places: dict[str, set[MessageQueue]] = defaultdict(set)
    entries = gaps = 0
    for queue in reader.queues(client.topic):
        for message in reader.read(queue):
            key, place = str(message.sharding_key), int(message.body)
            last = seen.get(key, 0)
            entries += 1
            gaps += place > last + 1
            seen[key] = max(last, place)
            places[key].add(queue)
    moved = sum(len(queues) > 1 for queues in places.values())
    acknowledged = client.last_acknowledged()
    missing = sum(seen.get(key, 0) < place for key, place in acknowledged.items())
    return Check(
        "ordered messages: each account's entries are in one queue, in order, with none missing",
        gaps == moved == missing == 0,
        f"{len(seen)} accounts, {entries:,} entries, {gaps} gaps, {moved} accounts moved, "
        f"{missing} cut short",
    )
