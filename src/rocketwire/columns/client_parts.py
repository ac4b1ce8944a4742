"""What the columns need of a blocking client besides its public names.

Frames and pulls go past the methods that make a Python object per message, straight to the
policies and connections below them. This is the one place that reaches there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.sync.client import BlockingClient
from rocketwire.sync.connection import Pool

if TYPE_CHECKING:
    from rocketwire.core.sending.sender import Sender
    from rocketwire.sync.producer import Producer

#: Seconds to wait after the first failure, and after many in a row.
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class ClientParts:
    """The inside of a running client."""

    instance: Instance
    pool: Pool
    run: Callable[[Op[Any]], Any]
    request_timeout: float

    def clock(self) -> float:
        """Seconds on the client's clock."""
        return self.instance.clock()


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row before the next try."""
    return min(_LONGEST_PAUSE, _PAUSE * failures)


def parts_of(client: BlockingClient[Any]) -> ClientParts:
    """Open a client that is running.

    Raises:
        ClientClosedError: it is not.
    """
    client._deadline()  # noqa: SLF001 - refuses a client that does not run
    return ClientParts(
        client._instance,  # noqa: SLF001
        client._pool,  # noqa: SLF001
        client._run,  # noqa: SLF001
        client._config.request_timeout,  # noqa: SLF001
    )


def sender_of(producer: Producer) -> Sender:
    """A sender with the policy of a running producer, for use by a few threads together.

    The producer's own keeps round-robin positions per thread. Threads that live for one table
    would all begin anew, so here they share one set; two that meet may take the same position,
    which harms nobody.
    """
    # A reader needs none of what sends.
    from rocketwire.core.sending.sender import Sender

    parts = parts_of(producer)
    own = producer._sender  # noqa: SLF001
    sender = Sender(parts.instance, own.config, parts.instance.new_positions(), own.hooks)
    sender.counters = own.counters
    return sender
