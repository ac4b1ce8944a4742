"""The state of a broker as operators see it: its figures, its configuration."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.wire.admin_bodies import decode_settings
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.lenient_json import dumps

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

#: What clients and tools take us for.
VERSION_NAME: Final = "V5_3_1"


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = AdminHandler(broker)
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: handler.runtime,
        RequestCode.GET_BROKER_CONFIG: handler.config,
        RequestCode.UPDATE_BROKER_CONFIG: handler.change,
        RequestCode.GET_ALL_DELAY_OFFSET: handler.delay_offsets,
    }


class AdminHandler:
    """Answers operators' questions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def runtime(self, call: Call) -> Answer:
        """All figures that ``clusterList`` and ``brokerStatus`` show."""
        table = self._figures() | _UNUSED
        return Answer(body=(dumps({"table": {k: str(v) for k, v in table.items()}}),))

    def _figures(self) -> dict[str, object]:
        broker = self._broker
        store, log = broker.store, broker.store.log
        usage = shutil.disk_usage(broker.folder)
        ratio = f"{usage.used / usage.total:.4f}"
        seconds = max(time.time() - broker.started_at, 1e-3)
        put, got = broker.messages_in / seconds, broker.messages_out / seconds
        return {
            "bootTimestamp": int(broker.started_at * 1000),
            "brokerActive": "true",
            "brokerVersion": 475,
            "brokerVersionDesc": VERSION_NAME,
            "commitLogDirCapacity": f"Total : {usage.total} B, Free : {usage.free} B.",
            "commitLogDiskRatio": ratio,
            "commitLogDiskRatio_" + str(broker.folder / "commitlog"): ratio,
            "commitLogMaxOffset": log.end,
            "commitLogMinOffset": log.start,
            "consumeQueueDiskRatio": ratio,
            "dispatchBehindBytes": 0,
            "earliestMessageTimeStamp": store.store_ms_at(log.start),
            # 4.x tools read the other spelling, and fail where it is missing.
            "getTransferedTps": f"{got:.2f} {got:.2f} {got:.2f}",
            "getTransferredTps": f"{got:.2f} {got:.2f} {got:.2f}",
            "indexBehindBytes": store.follower.behind,
            "msgGetTotalTodayNow": broker.messages_out,
            "msgPutTotalTodayNow": broker.messages_in,
            "putTps": f"{put:.2f} {put:.2f} {put:.2f}",
            "remainHowManyDataToFlush": f"{log.end - log.synced} B",
            "runtime": f"[ {int(seconds)} seconds ]",
        }

    def config(self, call: Call) -> Answer:
        """The configuration in Apache's words, as far as it means something here."""
        broker, options = self._broker, self._broker.options
        values = {
            "brokerName": broker.name,
            "brokerClusterName": options.cluster,
            "brokerId": 0,
            "brokerIP1": broker.host,
            "listenPort": broker.port,
            "autoCreateTopicEnable": str(options.auto_create_topics).lower(),
            "brokerPermission": broker.permission,
            "defaultTopicQueueNums": options.queues,
            "enablePropertyFilter": str(options.property_filter).lower(),
            "flushDiskType": "SYNC_FLUSH" if options.flush == "sync" else "ASYNC_FLUSH",
            "maxMessageSize": options.max_message_size,
            "messageDelayLevel": options.delay_levels,
            "storePathRootDir": broker.folder,
            "mappedFileSizeCommitLog": broker.store.sizes.log_file,
            "mappedFileSizeConsumeQueue": broker.store.sizes.queue_file,
            "maxHashSlotNum": broker.store.sizes.index_slots,
            "maxIndexNum": broker.store.sizes.index_entries,
            "transactionCheckMax": options.transaction_check_max,
            "transactionTimeOut": int(options.transaction_timeout * 1000),
            "useServerSideResetOffset": "true",
        }
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        version = dumps(broker.topics.version.as_json()).decode()
        return Answer(ext={"version": version}, body=(text.encode(),))

    def change(self, call: Call) -> Answer:
        """Change what can be changed while a broker runs. Apache ignores the rest; here it is refused."""
        broker = self._broker
        changes = decode_settings(call.command.body)
        for name in changes:
            if name not in _CHANGEABLE:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"{name} can't be changed here: {', '.join(sorted(_CHANGEABLE))} can",
                )
        try:
            values = {_CHANGEABLE[n][0]: _CHANGEABLE[n][1](v) for n, v in changes.items()}
        except ValueError:
            # As Apache does with a value that it can't read.
            return Answer()
        permission = values.pop("permission", None)
        broker.options = dataclasses.replace(broker.options, **values)
        if permission is not None:
            broker.allow(permission)
            broker.topics_changed()
        return Answer()

    def delay_offsets(self, call: Call) -> Answer:
        """How far each delay level has come."""
        return Answer(body=(dumps(self._broker.schedule.as_json()),))


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


#: Settings that handlers look up for each request, and how their text is read.
_CHANGEABLE: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "brokerPermission": ("permission", int),
    "enablePropertyFilter": ("property_filter", _truth),
    "maxMessageSize": ("max_message_size", int),
    "transactionCheckMax": ("transaction_check_max", int),
    "transactionTimeOut": ("transaction_timeout", lambda text: int(text) / 1000),
}

# Tools read these, and have nothing better to say without them.
_UNUSED: Final[dict[str, object]] = {
    "EndTransactionQueueSize": 0,
    "EndTransactionThreadPoolQueueCapacity": 100000,
    "ackThreadPoolQueueCapacity": 100000,
    "ackThreadPoolQueueHeadWaitTimeMills": 0,
    "ackThreadPoolQueueSize": 0,
    "litePullThreadPoolQueueCapacity": 100000,
    "litePullThreadPoolQueueHeadWaitTimeMills": 0,
    "litePullThreadPoolQueueSize": 0,
    "msgGetTotalTodayMorning": 0,
    "msgGetTotalYesterdayMorning": 0,
    "msgPutTotalTodayMorning": 0,
    "msgPutTotalYesterdayMorning": 0,
    "pageCacheLockTimeMills": 0,
    "pullThreadPoolQueueCapacity": 100000,
    "pullThreadPoolQueueHeadWaitTimeMills": 0,
    "pullThreadPoolQueueSize": 0,
    "queryThreadPoolQueueCapacity": 20000,
    "queryThreadPoolQueueHeadWaitTimeMills": 0,
    "queryThreadPoolQueueSize": 0,
    "remainTransientStoreBufferNumbs": 2147483647,
    "sendThreadPoolQueueCapacity": 10000,
    "sendThreadPoolQueueHeadWaitTimeMills": 0,
    "sendThreadPoolQueueSize": 0,
    "startAcceptSendRequestTimeStamp": 0,
    "timerCongestNum": 0,
    "timerDequeueTps": 0.0,
    "timerEnqueueTps": 0.0,
    "timerOffsetBehind": 0,
    "timerReadBehind": 0,
}
