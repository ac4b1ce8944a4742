"""Properties of messages that have the same names in the same order, as those of one program do.

Once such an order has come twice, it is known as a *shape*: one match by a pattern then tells that a
block has it and where its values lie, in a third of the time that taking the block apart needs. The
shape of the block before is tried first, then the last one of as many properties: several programs
may write to a topic, and one may write several kinds of messages. Blocks of any other shape go the
general way, and give the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from rocketwire.wire.properties import (
    NAME_END,
    SYSTEM,
    TRANSIENT_PREFIX,
    VALUE_END,
    Property,
    decode_properties_bytes,
    is_user_property,
)

#: Making a pattern takes as long as reading some hundred messages without one.
_MOST_SHAPES: Final = 32
_LONGEST: Final = 40
#: Orders that are remembered to have come once.
_MOST_SEEN: Final = 64
_MOST_TOPICS: Final = 1024
#: Up to the next end of a value, as the general way takes it: what ends names may be in it.
_VALUE: Final = f"[^{VALUE_END}]++"
#: A group that takes part in no match.
_NEVER: Final = "((?!))?"
_NAME_END: Final = ord(NAME_END)
_FIELDS: Final = (Property.TAGS, Property.KEYS)


def own_of(properties: Mapping[str, str]) -> dict[str, str]:
    """The user's own ones among all properties of a message."""
    # As is_user_property tells it, without a call for each of them.
    return {
        name: value
        for name, value in properties.items()
        if name not in SYSTEM and not name.startswith(TRANSIENT_PREFIX)
    }


class Shape:
    """An order of names: the pattern of their blocks, and where a match has what is asked for."""

    __slots__ = ("keys", "match", "own", "tags")

    def __init__(self, names: tuple[str, ...]) -> None:
        """Make the pattern.

        Args:
            names: no two alike.
        """
        wanted = [name for name in names if name in _FIELDS or is_user_property(name)]
        own = [name for name in wanted if name not in _FIELDS]
        #: The groups of tags and keys; where there are none, one that takes part in no match.
        self.tags, self.keys = (
            wanted.index(name) + 1 if name in wanted else len(wanted) + 1 for name in _FIELDS
        )
        #: What makes the user's own properties of a match. Python itself makes a dictionary of groups
        #: that have names, in a third of the time, but they can only be named like variables.
        can_be_named = all(name.isidentifier() for name in own)
        self.own: Callable[[re.Match[str]], dict[str, str]] = (
            re.Match.groupdict if can_be_named else _reader(own, wanted)
        )
        groups = dict.fromkeys(names, _VALUE) | dict.fromkeys(wanted, f"({_VALUE})")
        if can_be_named:
            groups |= {name: f"(?P<{name}>{_VALUE})" for name in own}
        items = [re.escape(name) + NAME_END + group for name, group in groups.items()]
        self.match = re.compile(f"{VALUE_END.join(items)}{VALUE_END}?{_NEVER}").fullmatch


def _reader(own: list[str], wanted: list[str]) -> Callable[[re.Match[str]], dict[str, str]]:
    """What makes a dictionary of groups without names."""
    pick: Callable[[Sequence[str]], Sequence[str]]
    places = [wanted.index(name) for name in own]
    if len(places) == 1 or places[-1] - places[0] == len(places) - 1:
        pick = itemgetter(slice(places[0], places[-1] + 1))
    else:
        pick = itemgetter(*places)
    return lambda found: dict(zip(own, pick(found.groups())))  # noqa: B905 - as many


#: That of a block without properties.
_EMPTY: Final = Shape(())


class Shapes:
    """What is known of the properties of one topic's messages.

    Threads may use it at the same time: each step leaves it whole.
    """

    __slots__ = ("_by_count", "_learned", "_seen", "shape")

    def __init__(self) -> None:
        #: The one that the next block has, most likely: that of the last one.
        self.shape = _EMPTY
        #: The last one with so many properties.
        self._by_count: dict[int, Shape] = {}
        self._learned: dict[tuple[str, ...], Shape] = {(): _EMPTY}
        #: Orders of names that have come once.
        self._seen: set[tuple[str, ...]] = set()

    def match(self, data: bytes) -> tuple[Shape, re.Match[str]] | None:
        """Try the last shape of as many properties, and if a block has it, expect it of the next.

        Bytes that are no UTF-8 have no shape.
        """
        shape = self._by_count.get(data.count(_NAME_END))
        if shape is None or shape is self.shape:
            return None
        try:
            found = shape.match(data.decode())
        except UnicodeDecodeError:
            return None
        if found is None:
            return None
        self.shape = shape
        return shape, found

    def split(self, data: bytes) -> dict[str, str]:
        """Take a block apart whose shape is not known, and learn it.

        Bytes that are no UTF-8 become replacement characters.
        """
        found = decode_properties_bytes(data)
        self._learn(tuple(found))
        return found

    def _learn(self, names: tuple[str, ...]) -> None:
        """Make a shape of an order of names that has come twice."""
        shape = self._learned.get(names)
        if shape is None:
            if len(self._learned) >= _MOST_SHAPES or len(names) > _LONGEST:
                return
            if names not in self._seen:
                if len(self._seen) >= _MOST_SEEN:
                    self._seen.clear()
                self._seen.add(names)
                return
            shape = self._learned[names] = Shape(names)
        self.shape = self._by_count[len(names)] = shape


_by_topic: dict[str, Shapes] = {}


def shapes_of(topic: str) -> Shapes:
    """What is known of a topic."""
    found = _by_topic.get(topic)
    if found is None:
        if len(_by_topic) >= _MOST_TOPICS:
            _by_topic.clear()
        found = _by_topic.setdefault(topic, Shapes())
    return found
