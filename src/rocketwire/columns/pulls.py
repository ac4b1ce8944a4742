"""Pull requests by the row.

At 32 messages an answer, what a pull costs is paid for every 32 rows. So requests come from
templates, and many go out in one system call.
"""

from __future__ import annotations

from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import TagFilter, pull_request
from rocketwire.message import MessageQueue
from rocketwire.wire import headers
from rocketwire.wire.codes import PullFlag
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

    def frame(self, opaque: int, offset: int, count: int) -> bytes:
        """The whole request for so many messages from an offset on."""
        if self._template is not None:
            return self._template.request(offset, count).head(opaque)
        # Signed, or with a JSON header: every field each time.
        request = pull_request(
            self._instance,
            self._queue,
            offset,
            group=self._group,
            max_messages=count,
            tags=self._tags,
        )
        return request.head(opaque)
