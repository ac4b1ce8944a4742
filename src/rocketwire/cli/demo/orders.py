"""A realistic stream of orders, made by chance from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import count
from typing import Final

from rocketwire.message import Message

_GOODS: Final = (
    ("espresso beans 1 kg", 23.5), ("filter papers", 3.2), ("hand grinder", 89.0),
    ("gooseneck kettle", 64.9), ("two mugs", 18.0), ("milk jug", 14.5), ("scale", 32.0),
)  # fmt: skip
_STEPS: Final = ("placed", "paid", "packed", "shipped")
_CUSTOMERS: Final = 500


def order_bodies(prefix: str, seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Number, step and body of order after order, without end; numbers never repeat.

    >>> number, step, body = next(order_bodies("a", 1))
    >>> number, step
    ('a-000001', 'placed')
    """
    chance = random.Random(seed)
    serial = 0
    while True:
        serial += 1
        number = f"{prefix}-{serial:06d}"
        lines = [
            {"item": item, "pieces": chance.randint(1, 3), "price": price}
            for item, price in chance.sample(_GOODS, chance.randint(1, 4))
        ]
        step = _STEPS[serial % len(_STEPS) - 1]
        body = {
            "order": number,
            "step": step,
            "customer": f"customer-{int(chance.paretovariate(1.2)) % _CUSTOMERS}",
            "total": round(sum(line["pieces"] * line["price"] for line in lines), 2),  # type: ignore[operator]
            "lines": lines,
        }
        yield number, step, json.dumps(body).encode()


def orders(topic: str, prefix: str, seed: int) -> Iterator[Message]:
    """Orders as messages: the number is the key, the step the tag."""
    for number, step, body in order_bodies(prefix, seed):
        yield Message(topic, body, keys=number, tags=step)


def ledger_entries(topic: str, account: str) -> Iterator[Message]:
    """Entries that must stay in order: the body is the entry's place in its account."""
    for place in count(1):
        yield Message(topic, str(place), keys=f"{account}-{place}", sharding_key=account)
