"""Namespaces (v1) and the names that RocketMQ keeps for itself."""

from __future__ import annotations

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

#: Nobody may send to these.
FORBIDDEN_TOPICS: Final = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPICS: Final = FORBIDDEN_TOPICS | {
    "TBW102",
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
}


def is_system(name: str) -> bool:
    """Whether a topic or group is one of RocketMQ's own, which namespaces leave alone."""
    return (
        name in SYSTEM_TOPICS or name.startswith(("rmq_sys_", "CID_RMQ_SYS_")) or name == "TBW102"
    )


def with_namespace(name: str, namespace: str | None) -> str:
    """The name by which servers know a topic or group."""
    if not namespace or is_system(name):
        return name
    prefix, rest = _split(name)
    return name if rest.startswith(f"{namespace}%") else f"{prefix}{namespace}%{rest}"


def without_namespace(name: str, namespace: str | None) -> str:
    """The name by which users know it."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(f"{namespace}%")


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
