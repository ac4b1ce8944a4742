"""Names that no client has as a setting: what was meant, and how it is given.

The commands that run on Spark take settings of the client (``--option``) and options of the Spark
source (``--set``). A name that is given the wrong way is answered with the right one; what is
spelled wrongly is compared with the names of both: the nearest one is not always the client's.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Final

from rocketwire.config import ClientConfig, canonical, needs_trust
from rocketwire.errors import ConfigError
from rocketwire.java_settings import JAVA_NAMES

#: What those commands ask for in words of their own, because they decide about it.
_OWN_WORDS: Final = {
    "topic": "their argument {topic}",
    "topics": "their argument {topic}",
    "startingOffsets": "--from",
}


def check_setting_names(names: Iterable[str], kinds: Iterable[type[ClientConfig]]) -> None:
    """Refuse names that no kind of client knows and that resemble one, or the Spark source has.

    Raises:
        ConfigError: with the way to give what was meant. Values are not shown: they may be secret.
    """
    kinds = tuple(kinds)
    known = {canonical(spec.name): spec.name for kind in kinds for spec in dataclasses.fields(kind)}
    for name in names:
        folded = canonical(name)
        # Parts of a setting, and Java's names, are answered where values are read.
        is_part = any(needs_trust(kind, name) for kind in kinds)
        if folded in known or is_part or folded in JAVA_NAMES:
            continue
        if sentence := _about(name, known):
            raise ConfigError(sentence)


def _about(name: str, known: dict[str, str]) -> str:
    """What may have been meant; empty where nothing here is near."""
    folded, sources = canonical(name), _source_options()
    if folded in sources:
        return f"{name!r} is an option of the Spark source: {_way(sources[folded])}"
    near = difflib.get_close_matches(folded, [*known, *sources], n=1)
    if not near:
        return ""
    if near[0] in known:
        return f"unknown setting {name!r}; did you mean {known[near[0]]}?"
    option = sources[near[0]]
    return f"unknown setting {name!r}; did you mean {option} of the Spark source? {_way(option)}"


def _way(option: str) -> str:
    own = _OWN_WORDS.get(option, f"--set {option}=...")
    return f"commands on Spark take it as {own}"


def _source_options() -> dict[str, str]:
    """By folded name; none without the packages that Spark needs."""
    try:
        from rocketwire.spark.options import SOURCE_OPTIONS
    except ImportError:
        return {}
    return {canonical(name): name for name in SOURCE_OPTIONS}
