"""Single messages: by their place in the log, by a key, by their unique id.

Before a query by key is answered, the index is brought up to date, as far as that is quick.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.store import StoreError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_MOST: Final = 64
_MOST_UNIQUE: Final = 32
#: Messages that the index takes in before a query is answered; more than that would keep
#: all other requests waiting.
_CATCH_UP: Final = 20_000


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = MessageHandler(broker)
    return {
        RequestCode.QUERY_MESSAGE: handler.query,
        RequestCode.VIEW_MESSAGE_BY_ID: handler.view,
    }


class MessageHandler:
    """Finds messages."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def view(self, call: Call) -> Answer:
        """The record at a place in the log."""
        offset = int_field(call.ext, "offset")
        record = self._broker.store.record_at(offset)
        if record is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return Answer(body=(record,))

    def query(self, call: Call) -> Answer:
        """Records with a key, in the order in which they were stored."""
        ext, store = call.ext, self._broker.store
        unique = ext.get("_UNIQUE_KEY_QUERY") == "true"
        most = _MOST_UNIQUE if unique else _MOST
        wanted = int_field(ext, "maxNum", most)
        # A full disk stops the index, not those who ask it.
        with contextlib.suppress(StoreError):
            store.follower.step(_CATCH_UP)
        found = store.find(
            text_field(ext, "topic"),
            text_field(ext, "key"),
            int_field(ext, "beginTimestamp", 0),
            int_field(ext, "endTimestamp", (1 << 63) - 1),
            most if unique else max(min(wanted, most), 1),
        )
        places = {
            "indexLastUpdateTimestamp": str(store.index.newest_ms),
            "indexLastUpdatePhyoffset": str(store.index.indexed_to or 0),
        }
        if not found:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                places,
            )
        return Answer(ext=places, body=found[::-1])
