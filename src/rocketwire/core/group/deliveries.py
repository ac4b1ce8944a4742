"""Messages that a program acknowledges itself: handed out, open until it decides, never passed over.

An open one keeps its queue's offset from being committed past it. Nothing takes it away, however long
it takes; when its queue goes to another member, or its consumer ends, it comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.effects import Op
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.returning import check_reason
from rocketwire.core.group.send_back import Retry, bury_work, return_work
from rocketwire.core.group.trace import FAILED, SUCCESS
from rocketwire.core.group.workload import Work
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.log_fields import about
from rocketwire.setting_values import seconds
from rocketwire.stored_message import StoredMessage

_ACKNOWLEDGED: Final = "acknowledged"
_RETRIED: Final = "given back for a retry"
_BURIED: Final = "moved to the dead letters"


def check_deliveries(config: ConsumerConfig) -> None:
    """Refuse settings that deliveries do not go with.

    Raises:
        ConfigError: messages were to come in lists.
    """
    if config.batch > 1:
        raise ConfigError(
            f"batch is {config.batch}: deliveries() gives single messages, leave it 1"
        )


class HandedOut:
    """One message in a program's hand, and what the program decides about it.

    Args:
        group: the membership.
        work: the message, handed out as open.
    """

    __slots__ = ("_group", "_trace", "_verdict", "_work", "counts", "message")

    def __init__(self, group: Group, work: Work) -> None:
        self._group = group
        self._work = work
        self.message: StoredMessage = work.messages[0]
        self._verdict = ""
        #: Whether the decision came in time.
        self.counts = False
        self._trace = None if group.tracer is None else group.tracer.begin((self.message,))

    def acknowledge(self) -> bool:
        """It is handled; False if that came too late: the message comes again elsewhere.

        Raises:
            ClientClosedError: the consumer has left its group, and the message comes again.
            ConfigError: something else was decided already.
        """
        if self._decide(_ACKNOWLEDGED) and self.counts:
            workload = self._group.workload
            self.counts = workload.finish(self._work)
            if workload.ordered:
                # The next of its queue may come now, and nothing else looks for it.
                workload.look_again(self._work.process_queue)
            self._end_trace(SUCCESS)
        return self.counts

    def retry(self, after: float | str | None) -> Op[None] | None:
        """What gives it back for a retry; None if nothing is left to be done.

        Raises:
            ClientClosedError: the consumer has left its group, and the message comes again.
            ConfigError: something else was decided already, or the time makes no sense.
        """
        wanted = Retry(None if after is None else seconds(after))
        if not self._decide(_RETRIED) or not self.counts:
            return None
        self._end_trace(FAILED)
        return return_work(self._group, self._work, wanted, None)

    def dead_letter(self, reason: str) -> Op[None] | None:
        """What moves it to the dead letters of the group; None if nothing is left to be done.

        Raises:
            ClientClosedError: the consumer has left its group, and the message comes again.
            ConfigError: something else was decided already, or the consumer broadcasts.
            InvalidMessageError: the reason says nothing.
        """
        if self._group.config.broadcast:
            raise ConfigError(
                "a broadcasting consumer has no dead letters: keep the message elsewhere, and ack() it"
            )
        text = check_reason(reason)
        if not self._decide(_BURIED) or not self.counts:
            return None
        self._end_trace(FAILED)
        return bury_work(self._group, self._work, text)

    def when_seen_to(self, call: Callable[[], None]) -> None:
        """Call this when what was decided is done; on whatever thread does it."""
        self._work.on_closed = call

    def run(self, operation: Op[None]) -> None:
        """Carry out what was decided. On the thread of the membership."""
        self._group.start(operation)

    @property
    def limit(self) -> float:
        """How long giving a message back takes at most, in seconds."""
        # Two requests, one of which may be the second way to the dead letters.
        return 1.0 + 2 * max(5.0, self._group.config.request_timeout)

    def _decide(self, verdict: str) -> bool:
        """Note a decision; False if it was the same before."""
        work, workload = self._work, self._group.workload
        with workload.lock:
            earlier = self._verdict
            if not earlier:
                self._verdict, work.is_open = verdict, False
                self.counts = not work.is_abandoned and work.epoch == work.process_queue.epoch
        if earlier and not self.counts:
            self._tell_of_loss()  # whatever was decided then has done nothing
            return False
        if earlier:
            if earlier != verdict:
                raise ConfigError(f"this delivery was {earlier}: it can't be {verdict} as well")
            return False
        if not self.counts:
            workload.close(work)
            self._tell_of_loss()
        return True

    def _tell_of_loss(self) -> None:
        text = f"{self.message.message_id} of {self.message.queue} comes again"
        if self._group.is_leaving:
            raise ClientClosedError(f"the consumer has left its group: {text}")
        log.info(
            "%s: its queue was lost, or moved, before it was decided about",
            text,
            extra=about(self.message, group=self._group.name),
        )

    def _end_trace(self, code: int) -> None:
        if self._group.tracer is not None:
            self._group.tracer.end(self._trace, code)
