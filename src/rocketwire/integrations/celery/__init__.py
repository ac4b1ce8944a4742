"""Celery and kombu over RocketMQ: importing this makes ``rocketmq://`` known to kombu.

A queue of tasks is a topic, and its workers receive and acknowledge (which needs RocketMQ 5). Queues
that belong to one consumer (``auto_delete`` or ``exclusive``: replies, events, remote control) are
mailboxes: they read topics that all of them share, so that none is left behind.
"""

from rocketwire.integrations.extras import needs

needs("celery", "kombu", "celery")

from kombu.transport import TRANSPORT_ALIASES

from rocketwire.integrations.celery.topic_names import queue_name, topic_name
from rocketwire.integrations.celery.transport import Channel, Transport

__all__ = ["Channel", "Transport", "queue_name", "topic_name"]

TRANSPORT_ALIASES["rocketmq"] = "rocketwire.integrations.celery:Transport"
