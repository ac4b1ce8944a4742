"""The fields of requests that only operators send, by Java's names, all as text."""

from __future__ import annotations


def group_only(group: str, topic: str | None = None) -> dict[str, str]:
    """GET_CONSUMER_CONNECTION_LIST and GET_CONSUME_STATS."""
    return {"consumerGroup": group} | ({"topic": topic} if topic else {})


def producer_group_only(group: str) -> dict[str, str]:
    """GET_PRODUCER_CONNECTION_LIST."""
    return {"producerGroup": group}


def delete_group(group: str) -> dict[str, str]:
    """DELETE_SUBSCRIPTION_GROUP, with what the group has consumed: 4.x has another name for that."""
    return {"groupName": group, "cleanOffset": "true", "removeOffset": "true"}


def running_info(group: str, client_id: str) -> dict[str, str]:
    """GET_CONSUMER_RUNNING_INFO, which the broker passes on to a member."""
    return {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}


def reset_by_time(group: str, topic: str, timestamp_ms: int) -> dict[str, str]:
    """INVOKE_BROKER_TO_RESET_OFFSET for all queues of a broker; -1 means the end."""
    return {"group": group, "topic": topic, "timestamp": str(timestamp_ms), "isForce": "true"}


def reset_queue(group: str, topic: str, queue_id: int, offset: int) -> dict[str, str]:
    """INVOKE_BROKER_TO_RESET_OFFSET for one queue, of brokers that do it themselves."""
    where = {"queueId": str(queue_id), "offset": str(offset)}
    return reset_by_time(group, topic, 0) | where


def clone_offsets(source: str, target: str, topic: str) -> dict[str, str]:
    """CLONE_GROUP_OFFSET. Without a topic brokers would copy nothing, so there is always one."""
    return {"srcGroup": source, "destGroup": target, "topic": topic, "offline": "true"}
