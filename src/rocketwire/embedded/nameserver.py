"""A name server: it tells clients where topics live, from what brokers tell it.

Brokers may be ours or Apache's. Not served: what only controllers and slaves ask for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rocketwire.embedded.call import Answer, Call, Refusal
from rocketwire.embedded.connection import Connection
from rocketwire.embedded.journal import Journal
from rocketwire.embedded.json_file import JsonFile
from rocketwire.embedded.register_body import body_checksum, decode_register_body
from rocketwire.embedded.route_table import Registration, RouteTable
from rocketwire.embedded.server import Server
from rocketwire.embedded.topics import SYSTEM_TOPICS
from rocketwire.wire.admin_bodies import decode_settings
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.lenient_json import dumps, loads
from rocketwire.wire.route import ClusterInfo, decode_route, encode_cluster_info, encode_route

_log: Final = logging.getLogger("rocketwire.embedded")
#: Versions from here on read standard JSON.
_STANDARD_FROM: Final = 401
_ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_SCAN: Final = 5.0


class NameServer(Server):
    """One name server.

    Args:
        folder: where the key-value configuration is kept; None keeps it in memory.
        order_routes: whether routes include the ordered-topic configuration.
        broker_timeout: seconds of silence after which a broker that names no limit is forgotten.
        options: those of ``Server``.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        name: str = "name-server",
        folder: Path | None = None,
        order_routes: bool = False,
        broker_timeout: float = 120.0,
        **options: Any,
    ) -> None:
        super().__init__(name, journal, **options)
        self.table = RouteTable()
        self._order_routes = order_routes
        self._broker_timeout = broker_timeout
        self._file = JsonFile(folder / "kvConfig.json") if folder is not None else None
        self._config: dict[str, dict[str, str]] = self._load_config()
        self._scan_timer: asyncio.TimerHandle | None = None
        self.handlers |= self._table_of_handlers()

    def _table_of_handlers(self) -> dict[int, Callable[[Call], Answer | None]]:
        return {
            RequestCode.GET_ROUTE_BY_TOPIC: self._route,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_version,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ALL_TOPICS_FROM_NAME_SERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPICS_FROM_NAME_SERVER: self._system_topics,
            RequestCode.DELETE_TOPIC_IN_NAME_SERVER: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAME_SERVER: self._register_topic,
            RequestCode.PUT_KV_CONFIG: self._put_config,
            RequestCode.GET_KV_CONFIG: self._get_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_config,
            RequestCode.GET_KV_LIST_BY_NAMESPACE: self._list_config,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.GET_NAMESRV_CONFIG: self._own_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._change_config,
        }

    def _own_config(self, call: Call) -> Answer:
        """The configuration in Apache's words, as far as it means something here."""
        values = {
            "listenPort": self.port,
            "bindAddress": self.host,
            "configStorePath": self._file.path if self._file is not None else "",
            "scanNotActiveBrokerInterval": int(_SCAN * 1000),
            "orderMessageEnable": str(self._order_routes).lower(),
        }
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        return Answer(body=(text.encode(),))

    def _change_config(self, call: Call) -> Answer:
        """Whether it hands out the queues of ordered topics; nothing else changes while it runs."""
        changes = decode_settings(call.command.body)
        unknown = [name for name in changes if name != "orderMessageEnable"]
        if unknown:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"{unknown[0]} can't be changed here: orderMessageEnable can",
            )
        if changes.get("orderMessageEnable") in {"true", "false"}:
            self._order_routes = changes["orderMessageEnable"] == "true"
        return Answer()

    async def listen(self) -> None:
        """Accept connections, and watch for brokers that fall silent."""
        await super().listen()
        if self._scan_timer is None:
            self._scan()

    def _scan(self) -> None:
        for broker in self.table.expire(self.loop.time()):
            _log.warning("%s: %s has been silent for too long and is forgotten", self.name, broker)
        self._scan_timer = self.loop.call_later(min(_SCAN, self._broker_timeout / 2), self._scan)

    def shut(self) -> None:
        """Stop serving."""
        super().shut()
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None

    def lost(self, connection: Connection) -> None:
        """A connection is closed; a broker that had registered over it is gone."""
        super().lost(connection)
        self.table.lost(connection)

    # Brokers

    def _register(self, call: Call) -> Answer:
        ext, body = call.ext, bytes(call.command.body)
        checksum = int_field(ext, "bodyCrc32", 0)
        if checksum and checksum != body_checksum(body):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        version, topics = decode_register_body(
            body,
            compressed=ext.get("compressed") == "true",
            request_version=call.command.version,
        )
        milliseconds = int_field(ext, "heartbeatTimeoutMillis", 0)
        new = Registration(
            text_field(ext, "clusterName"),
            text_field(ext, "brokerName"),
            int_field(ext, "brokerId"),
            text_field(ext, "brokerAddr"),
            ext.get("haServerAddr", ""),
            ext.get("__ZONE_NAME"),
            ext.get("enableActingMaster") == "true",
            milliseconds / 1000 if milliseconds > 0 else self._broker_timeout,
            version,
            topics,
        )
        if not self.table.register(new, call.connection, self.loop.time()):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return self._registered(new)

    def _registered(self, new: Registration) -> Answer:
        answer = Answer()
        master = self.table.master_of(new.broker)
        if new.broker_id and master:
            answer.ext = {"haServerAddr": new.ha_address, "masterAddr": master}
        if _ORDER_NAMESPACE in self._config:
            answer.body = (dumps({"table": self._config[_ORDER_NAMESPACE]}),)
        return answer

    def _unregister(self, call: Call) -> Answer:
        ext = call.ext
        self.table.unregister(
            text_field(ext, "clusterName"),
            text_field(ext, "brokerName"),
            int_field(ext, "brokerId"),
            text_field(ext, "brokerAddr"),
        )
        return Answer()

    def _broker_heartbeat(self, call: Call) -> Answer:
        self.table.heard(
            text_field(call.ext, "clusterName"),
            text_field(call.ext, "brokerAddr"),
            self.loop.time(),
        )
        return Answer()

    def _query_version(self, call: Call) -> Answer:
        cluster = text_field(call.ext, "clusterName")
        address = text_field(call.ext, "brokerAddr")
        self.table.heard(cluster, address, self.loop.time())
        known = self.table.version_of(cluster, address)
        changed = known is None or loads(bytes(call.command.body) or b"{}") != known
        body = (dumps(known),) if known else ()
        return Answer(ext={"changed": "true" if changed else "false"}, body=body)

    def _member_group(self, call: Call) -> Answer:
        broker = text_field(call.ext, "brokerName")
        data = self.table.brokers.get(broker)
        group = {
            "brokerAddrs": data.addresses if data is not None else {},
            "brokerName": broker,
            "cluster": text_field(call.ext, "clusterName"),
        }
        return Answer(body=(dumps({"brokerMemberGroup": group}),))

    def _wipe_write_permission(self, call: Call) -> Answer:
        count = self.table.change_write_permission(
            text_field(call.ext, "brokerName"), writable=False
        )
        return Answer(ext={"wipeTopicCount": str(count)})

    def _add_write_permission(self, call: Call) -> Answer:
        count = self.table.change_write_permission(
            text_field(call.ext, "brokerName"), writable=True
        )
        return Answer(ext={"addTopicCount": str(count)})

    # Topics

    def _route(self, call: Call) -> Answer:
        topic = text_field(call.ext, "topic")
        order = self._config.get(_ORDER_NAMESPACE, {}).get(topic) if self._order_routes else None
        route = self.table.route(topic, order)
        if route is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}: "
                "create it, or send to it where topics are made automatically",
            )
        standard = (
            call.command.version >= _STANDARD_FROM
            or call.ext.get("acceptStandardJsonOnly") == "true"
        )
        return Answer(body=(encode_route(route, standard=standard),))

    def _cluster_info(self, call: Call) -> Answer:
        info = ClusterInfo(dict(self.table.brokers), self.table.clusters())
        # Never standard JSON here, for any client: that is what Apache does.
        return Answer(body=(encode_cluster_info(info),))

    def _all_topics(self, call: Call) -> Answer:
        return Answer(body=(dumps({"topicList": self.table.topics}),))

    def _topics_by_cluster(self, call: Call) -> Answer:
        topics = self.table.topics_of_cluster(text_field(call.ext, "cluster"))
        return Answer(body=(dumps({"topicList": topics}),))

    def _system_topics(self, call: Call) -> Answer:
        names = sorted({*SYSTEM_TOPICS, *self.table.brokers, *self.table.clusters()})
        address = next((d.master for d in self.table.brokers.values() if d.master), "")
        return Answer(body=(dumps({"brokerAddr": address, "topicList": names}),))

    def _delete_topic(self, call: Call) -> Answer:
        self.table.delete_topic(text_field(call.ext, "topic"), call.ext.get("clusterName"))
        return Answer()

    def _register_topic(self, call: Call) -> Answer:
        route = decode_route(bytes(call.command.body))
        self.table.put_topic(text_field(call.ext, "topic"), route.queues)
        return Answer()

    # Key-value configuration

    def _load_config(self) -> dict[str, dict[str, str]]:
        data = self._file.load() if self._file is not None else None
        table = data.get("configTable", {}) if isinstance(data, dict) else {}
        return {str(k): dict(v) for k, v in table.items() if isinstance(v, dict)}

    def _save_config(self) -> None:
        if self._file is not None:
            self._file.save({"configTable": self._config})

    def order_topic(self, topic: str, queues: Mapping[str, int]) -> None:
        """Note how many queues of an ordered topic each broker has."""
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        self._config.setdefault(_ORDER_NAMESPACE, {})[topic] = text
        self._save_config()

    def forget_topic(self, topic: str) -> None:
        """Delete a topic with its ordered-topic configuration."""
        self.table.delete_topic(topic)
        if self._config.get(_ORDER_NAMESPACE, {}).pop(topic, None) is not None:
            self._save_config()

    def _put_config(self, call: Call) -> Answer:
        namespace, key = text_field(call.ext, "namespace"), text_field(call.ext, "key")
        self._config.setdefault(namespace, {})[key] = text_field(call.ext, "value")
        self._save_config()
        return Answer()

    def _get_config(self, call: Call) -> Answer:
        namespace, key = text_field(call.ext, "namespace"), text_field(call.ext, "key")
        value = self._config.get(namespace, {}).get(key)
        if value is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {namespace} Key: {key}",
            )
        return Answer(ext={"value": value})

    def _delete_config(self, call: Call) -> Answer:
        namespace, key = text_field(call.ext, "namespace"), text_field(call.ext, "key")
        self._config.get(namespace, {}).pop(key, None)
        self._save_config()
        return Answer()

    def _list_config(self, call: Call) -> Answer:
        namespace = text_field(call.ext, "namespace")
        table = self._config.get(namespace)
        if not table:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return Answer(body=(dumps({"table": table}),))
