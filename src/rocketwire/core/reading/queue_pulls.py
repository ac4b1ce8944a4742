"""The pulls of one queue.

At 32 messages an answer, what a pull costs is paid for every 32 of them. So requests come from
templates, where that can be.
"""

from __future__ import annotations

from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import TagFilter, pull_request
from rocketwire.message import MessageQueue
from rocketwire.wire import headers
from rocketwire.wire.codes import PullFlag
from rocketwire.wire.command import Request
from rocketwire.wire.pull_request import PullTemplate


class QueuePulls:
    """Makes the pulls of one queue."""

    def __init__(
        self, instance: Instance, queue: MessageQueue, group: str, tags: TagFilter
    ) -> None:
        self._instance = instance
        self._queue = queue
        self._group = group
        self._tags = tags
        self._template = self._make_template() if instance.is_plain else None

    def _make_template(self) -> PullTemplate:
        namespace = self._instance.config.namespace
        fields = headers.pull(
            group=with_namespace(self._group, namespace),
            topic=with_namespace(self._queue.topic, namespace),
            queue_id=self._queue.id,
            offset=0,
            max_messages=0,
            system_flag=PullFlag.SUBSCRIPTION,
            subscription=self._tags.expression,
            expression_type=self._tags.kind,
            broker=self._queue.broker,
        )
        return PullTemplate(fields)

    def request(self, offset: int, count: int) -> Request:
        """The request for so many messages from an offset on."""
        if self._template is not None:
            return self._template.request(offset, count)
        # Signed, or with a JSON header: every field each time.
        return pull_request(
            self._instance,
            self._queue,
            offset,
            group=self._group,
            max_messages=count,
            tags=self._tags,
        )
