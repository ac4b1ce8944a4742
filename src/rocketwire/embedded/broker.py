"""A broker: it stores messages and gives them back.

This module ties the parts together and has what every handler needs: ``put`` for messages that
go into the store, of any origin. What a request means is in ``handlers``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rocketwire.embedded.clock import Ahead
from rocketwire.embedded.connection import Connection, pack_host
from rocketwire.embedded.consumers import ClientTable, ConsumerGroup, QueueLocks
from rocketwire.embedded.group_commit import GroupCommit
from rocketwire.embedded.handlers import all_handlers
from rocketwire.embedded.journal import Journal
from rocketwire.embedded.offsets import GroupTable, OffsetTable
from rocketwire.embedded.options import BrokerOptions, check_name, parse_delays
from rocketwire.embedded.pops import Pops
from rocketwire.embedded.pulls import HeldPulls
from rocketwire.embedded.register_body import encode_register_body
from rocketwire.embedded.registration import Registrar, split_address
from rocketwire.embedded.remote_control import ACTIONS, CONTROL_CODE, RemoteControl
from rocketwire.embedded.schedule import DelaySchedule
from rocketwire.embedded.server import Server
from rocketwire.embedded.store import Draft, MessageStore, StoreError
from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.layout import SCHEDULE_TOPIC, Appended
from rocketwire.embedded.topics import RETRY_PREFIX, TopicTable
from rocketwire.embedded.transactions import Transactions
from rocketwire.wire.codes import Permission, RequestCode
from rocketwire.wire.command import JSON, Command
from rocketwire.wire.message_id import MessageIdMaker
from rocketwire.wire.pop import ANY_QUEUE

_log: Final = logging.getLogger("rocketwire.embedded")
_READ_WRITE: Final = Permission.READ | Permission.WRITE
#: Seconds between two rounds of upkeep.
_UPKEEP: Final = 5.0
#: Messages indexed in one turn of the event loop, and seconds of rest between two such turns:
#: while messages come in or go out, and while nobody wants anything.
_INDEX_BUSY: Final = (32, 0.004)
_INDEX_IDLE: Final = (256, 0.0002)


class Broker(Server):
    """One master broker in a folder. It can be killed and started again.

    Args:
        name: unique in the cluster.
        folder: of its store.
        name_servers: addresses to register with.
        journal: where requests are noted.
        options: how it behaves.
        ahead: how far its clock is ahead; shared by the brokers of a cluster.
        server_options: those of ``Server``.
    """

    store: MessageStore
    topics: TopicTable
    offsets: OffsetTable
    groups: GroupTable
    clients: ClientTable
    locks: QueueLocks
    pulls: HeldPulls
    held_pops: HeldPulls
    pops: Pops
    schedule: DelaySchedule
    transactions: Transactions
    commit: GroupCommit

    def __init__(
        self,
        name: str,
        folder: Path,
        name_servers: Sequence[str],
        journal: Journal,
        options: BrokerOptions | None = None,
        ahead: Ahead | None = None,
        **server_options: Any,
    ) -> None:
        check_name("broker name", name)
        for address in name_servers:
            split_address(address)
        super().__init__(name, journal, **server_options)
        self.has_fast_port = True
        self.folder = folder
        self.options = options if options is not None else BrokerOptions()
        self.random = random.Random(f"{name}/{server_options.get('seed', 0)}")
        self.permission = _READ_WRITE
        self.clock_offset = 0.0
        self.ahead = ahead if ahead is not None else Ahead()
        self.running = False
        self.started_at = 0.0
        self.messages_in = 0
        self.messages_out = 0
        self._traffic = 0
        self.delays_ms = parse_delays(self.options.delay_levels)
        #: Properties that every stored message gets.
        self.suffix = (
            f"MSG_REGION\x01{self.options.region}\x02TRACE_ON\x01true\x02"
            f"CLUSTER\x01{self.options.cluster}\x02"
        ).encode()
        self._ids = MessageIdMaker(
            b"\x7f\0\0\1", os.getpid(), self.random.getrandbits(31), self.clock_ms
        )
        self._name_servers = list(name_servers)
        self._registrar: Registrar | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._indexing = False

    # Life

    async def start(self) -> None:
        """Open the store, listen, register.

        Raises:
            StoreError: the store can't be opened.
            ConfigError: the port is taken.
        """
        self.loop = asyncio.get_running_loop()
        self.reserve()
        self._open()
        self.running = True
        try:
            await self._serve()
        except BaseException:
            self.kill()
            raise

    async def _serve(self) -> None:
        self.started_at = time.time()
        self.handlers = all_handlers(self)
        control = RemoteControl(lambda name: self if name in {None, self.name} else None, ACTIONS)
        self.handlers[CONTROL_CODE] = control.handle
        await self.listen()
        self._registrar = Registrar(
            self._name_servers,
            self._identity,
            self._register_body,
            interval=self.options.register_interval,
            encrypted=self.encrypted,
        )
        await self._registrar.start()
        self.schedule.start()
        self.transactions.start()
        self.pops.start()
        self._later(_UPKEEP, self._upkeep)
        self.kick_index()

    def _open(self) -> None:
        config, options = self.folder / "config", self.options
        disk = options.make_disk() if options.make_disk is not None else Disk()
        disk.limit = options.disk_limit
        self.host_bytes = pack_host(self.host, self.port)
        self.id_prefix = self.host_bytes.hex().upper()
        self.store = MessageStore(
            self.folder,
            host=self.host_bytes,
            clock_ms=self.clock_ms,
            sizes=options.sizes,
            disk=disk,
            delays_ms=self.delays_ms,
        )
        self.topics = TopicTable(
            config / "topics.json",
            broker=self.name,
            cluster=options.cluster,
            default_queues=options.queues,
            auto_create=options.auto_create_topics,
        )
        self.offsets = OffsetTable(config / "consumerOffset.json")
        self.groups = GroupTable(config / "subscriptionGroup.json")
        self.clients = ClientTable(self._notify_members)
        self.locks = QueueLocks()
        self.pulls = HeldPulls(self.loop, options.held_pulls)
        self.held_pops = HeldPulls(self.loop, options.held_pulls)
        self.pops = Pops(self, config / "pops.json")
        self.commit = GroupCommit(self.store, self.loop, options.flush_interval)
        self.schedule = DelaySchedule(self, config / "delayOffset.json")
        self.transactions = Transactions(self)

    async def stop(self) -> None:
        """End properly: say goodbye, flush everything, give the folder back."""
        if not self.running:
            return
        if self._registrar is not None:
            await self._registrar.unregister()
        self._halt()
        with contextlib.suppress(StoreError):
            self.offsets.save()
            self.schedule.save()
            self.pops.save()
            self.topics.save()
        self.store.close()

    def kill(self) -> None:
        """End as a killed process does: nothing is flushed, nobody is told."""
        if self.running:
            self._halt()
            self.store.abandon()

    def _halt(self) -> None:
        self.running = False
        if self._registrar is not None:
            self._registrar.abort()
            self._registrar = None
        self.schedule.stop()
        self.transactions.stop()
        self.pops.stop()
        self.pulls.clear()
        self.held_pops.clear()
        self.shut()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.commit.stop()

    def lost(self, connection: Connection) -> None:
        """A connection is closed: forget its clients and their waiting pulls."""
        super().lost(connection)
        if self.running:
            self.pulls.forget(connection=connection)
            self.held_pops.forget(connection=connection)
            self.clients.lost(connection)

    # Time

    def clock_ms(self) -> int:
        """The broker's clock, which a fault may have put wrong, and a test forward."""
        return int((time.time() + self.clock_offset + self.ahead.seconds) * 1000)

    def seconds_left(self) -> float | None:
        """Until something is due by the broker's clock; None when nothing waits."""
        sources = (self.schedule, self.schedule.wheel, self.pops)
        waits = [source.seconds_left() for source in sources]
        return min((left for left in waits if left is not None), default=None)

    def do_due(self) -> int:
        """Do at once what is due by the broker's clock; returns how much that was."""
        sources = (self.schedule, self.schedule.wheel, self.pops, self.transactions)
        return sum(source.do_due() for source in sources)

    def _later(self, seconds: float, action: Any) -> None:
        def run() -> None:
            self._timers.discard(handle)
            if self.running:
                action()

        handle = self.loop.call_later(seconds, run)
        self._timers.add(handle)

    def _upkeep(self) -> None:
        self._later(_UPKEEP, self._upkeep)
        self.clients.expire(self.loop.time())
        age = self.options.retention
        try:
            self.offsets.save()
            self.schedule.save()
            self.pops.save()
            self.topics.save_pending()
            self.groups.save_pending()
            self.store.retain(
                # Files age in real time, whatever a test does to the clock.
                now_ms=int((time.time() + self.clock_offset) * 1000),
                max_age_ms=int(age * 1000) if age is not None else None,
                max_bytes=self.options.retention_bytes,
            )
        except (StoreError, OSError) as error:
            _log.warning("%s: upkeep failed and is tried again: %s", self.name, error)

    # Messages

    def put(self, draft: Draft) -> Appended:
        """Store a message and answer pulls that wait for it.

        Raises:
            StoreError: it could not be stored.
        """
        place = self.store.append(draft)
        self.arrived(draft.topic, draft.queue_id)
        return place

    def arrived(self, topic: str, queue_id: int) -> None:
        """Something new is in a queue."""
        self.messages_in += 1
        self.pulls.arrived(topic, queue_id)
        if self.held_pops:
            self._wake_pops(topic)
        if topic == SCHEDULE_TOPIC:
            self.schedule.arrived(queue_id)
        if not self._indexing:
            self.kick_index()

    def _wake_pops(self, topic: str) -> None:
        """Pulls that wait for a topic wait for its retry topics, too."""
        self.held_pops.arrived(topic, ANY_QUEUE)
        if topic.startswith(RETRY_PREFIX):
            for wanted in self.held_pops.topics():
                if topic.endswith(("_" + wanted, "+" + wanted)):
                    self.held_pops.arrived(wanted, ANY_QUEUE)

    def message_id(self, log_offset: int) -> str:
        """The offset id of a message of this broker."""
        return f"{self.id_prefix}{log_offset:016X}"

    def make_unique_id(self) -> str:
        """An id for a message that came without one."""
        return self._ids.next()

    def delete_topic(self, topic: str) -> None:
        """Forget a topic, its messages and what was consumed of it."""
        self.topics.delete(topic)
        self.offsets.forget(topic=topic)
        self.pops.forget(topic=topic)
        self.store.delete_topic(topic)

    def kick_index(self) -> None:
        """Have the index follow, a little at a time, so that nobody waits for it."""
        self._indexing = True
        self._later(_INDEX_BUSY[1], self._index_some)

    def _index_some(self) -> None:
        traffic = self.messages_in + self.messages_out
        count, rest = _INDEX_IDLE if traffic == self._traffic else _INDEX_BUSY
        self._traffic = traffic
        try:
            self.store.follower.step(count)
        except StoreError as error:
            _log.warning("%s: the index has to wait: %s", self.name, error)
            self._later(_UPKEEP, self._index_some)
            return
        if self.store.follower.behind:
            self._later(rest, self._index_some)
        else:
            self._indexing = False

    # Name servers and clients

    def _identity(self) -> dict[str, str]:
        return {
            "brokerAddr": self.address,
            "brokerId": "0",
            "brokerName": self.name,
            "clusterName": self.options.cluster,
            "enableActingMaster": "false",
            "haServerAddr": self.address,
        }

    def _register_body(self) -> bytes:
        return encode_register_body(
            self.topics.version.as_json(), self.topics.as_json(self.permission)
        )

    def topics_changed(self) -> None:
        """Tell the name servers soon."""
        if self._registrar is not None:
            self._registrar.change()

    async def register_now(self) -> None:
        """Tell the name servers and wait until they know."""
        if self._registrar is not None:
            await self._registrar.register_now()

    async def ask_name_server(self, command: Command) -> Command:
        """The answer of any name server.

        Raises:
            OSError: none could be reached.
            TimeoutError: none answered.
        """
        if self._registrar is None:
            raise OSError("the broker does not run")
        return await self._registrar.ask(command)

    def allow(self, permission: int) -> None:
        """Change what may be done with this broker's queues."""
        self.permission = permission
        self.topics.touch()

    def _notify_members(self, group: ConsumerGroup) -> None:
        for member in group.members.values():
            member.connection.push(
                Command(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    {"consumerGroup": group.name},
                    header=JSON,
                )
            )
