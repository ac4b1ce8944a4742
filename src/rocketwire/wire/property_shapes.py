"""Properties of messages that have the same names in the same order, as those of one program do.

Once such an order has come twice running, it is known as a *shape*: one match by a pattern then
tells that a block has it and where its values lie, in a third of the time that taking the block
apart needs. Blocks of any other shape go the general way, and give the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from rocketwire.wire.properties import (
    NAME_END,
    VALUE_END,
    Property,
    decode_properties_bytes,
    is_user_property,
)

#: Making a pattern takes as long as reading some hundred messages without one.
_MOST_SHAPES: Final = 32
_LONGEST: Final = 40
_MOST_TOPICS: Final = 1024
#: Up to the next end of a value, as the general way takes it: what ends names may be in it.
_VALUE: Final = f"[^{VALUE_END}]++"


def own_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The user's own ones among all properties of a message."""
    return {name: value for name, value in properties.items() if is_user_property(name)}


class Shape:
    """An order of names: which of them are asked for, and the pattern of their blocks."""

    __slots__ = ("keys", "match", "names", "own", "pick", "tags")

    def __init__(self, names: tuple[str, ...]) -> None:
        """Make the pattern.

        Args:
            names: at least one, no two alike.
        """
        named = (Property.TAGS, Property.KEYS)
        wanted = [name for name in names if name in named or is_user_property(name)]
        self.names = names
        self.own = tuple(name for name in wanted if name not in named)
        #: Where tags and keys are among the values; -1 for nowhere.
        self.tags, self.keys = (wanted.index(n) if n in wanted else -1 for n in named)
        self.pick = _picker([place for place, name in enumerate(wanted) if name not in named])
        pattern = VALUE_END.join(
            re.escape(name) + NAME_END + (f"({_VALUE})" if name in wanted else _VALUE)
            for name in names
        )
        self.match = re.compile(f"{pattern}{VALUE_END}?").fullmatch


def _picker(places: list[int]) -> Callable[[Sequence[str]], Iterable[str]]:
    """What takes the values at some places out of all."""
    if not places:
        return lambda _: ()
    if places[-1] - places[0] == len(places) - 1:
        return itemgetter(slice(places[0], places[-1] + 1))
    return itemgetter(*places)


class Shapes:
    """What is known of the properties of one topic's messages.

    Threads may use it at the same time: each step leaves it whole.
    """

    __slots__ = ("_before", "_learned", "shape")

    def __init__(self) -> None:
        #: The one that the next block has, most likely.
        self.shape: Shape | None = None
        self._before: tuple[str, ...] = ()
        self._learned: dict[tuple[str, ...], Shape] = {}

    def split(self, data: bytes) -> dict[str, str]:
        """Take a block apart that has not the shape, and learn its own.

        Bytes that are no UTF-8 become replacement characters.
        """
        found = decode_properties_bytes(data)
        self._learn(tuple(found))
        return found

    def _learn(self, names: tuple[str, ...]) -> None:
        """Make a shape of an order of names that has come twice running."""
        before, self._before = self._before, names
        if names == before and 0 < len(names) <= _LONGEST:
            shape = self._learned.get(names)
            if shape is None and len(self._learned) < _MOST_SHAPES:
                shape = self._learned[names] = Shape(names)
            self.shape = shape or self.shape


_by_topic: dict[str, Shapes] = {}


def shapes_of(topic: str) -> Shapes:
    """What is known of a topic."""
    found = _by_topic.get(topic)
    if found is None:
        if len(_by_topic) >= _MOST_TOPICS:
            _by_topic.clear()
        found = _by_topic.setdefault(topic, Shapes())
    return found
