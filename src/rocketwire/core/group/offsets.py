"""How far a group has come: where a queue begins, and what is committed.

An offset is committed only up to the first message that is not handled. A group that is new begins
where ``start`` says; a queue that is new to a group that exists begins at its first message, so
that nothing sent to it is missed.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketwire.core.effects import Event, Invoke, Op, invoke_all, wait
from rocketwire.core.group.membership import Group, LocalOffsets, log
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.reading.pull import (
    address_of,
    ask_queue,
    max_offset,
    min_offset,
    offset_for_time,
    read_queues,
)
from rocketwire.errors import BrokerError, RocketMQError, TransportError
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Reply, decode_command

#: Brokers from this version on (5.0) say so when they know no offset; older ones may answer 0.
_HONEST = 413
#: Seconds after which offsets that did not move are committed again.
_TELL_AGAIN = 60.0


def committed_offset(group: Group, queue: MessageQueue, deadline: float) -> Op[int | None]:
    """What the broker knows of this group's progress in a queue; None if nothing.

    Brokers before 5.0 answer 0 for a queue that still has its first message.
    """
    fields = _query(group, queue)
    code = RequestCode.QUERY_CONSUMER_OFFSET
    try:
        reply = yield from ask_queue(group.instance, queue, code, fields, deadline)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return headers.decode_offset(reply.ext)


def _query(group: Group, queue: MessageQueue) -> dict[str, str]:
    topic = group.wire_topic(queue.topic)
    return headers.query_consumer_offset(
        group.wire_name, topic, queue.id, zero_if_not_found=False, broker=queue.broker
    )


def start_offset(group: Group, queue: MessageQueue) -> Op[int]:
    """Where to begin with a queue that has just become ours.

    Raises:
        TransportError: its broker could not be reached.
        BrokerError: it refused.
    """
    instance = group.instance
    # Whatever was sent back is wanted, however new the group is.
    start = "earliest" if queue.topic == group.retry_topic else group.config.start
    deadline = instance.clock() + instance.config.request_timeout
    if group.local is not None:
        found = group.local.get(queue)
        if found is None and start == "latest":
            return (yield from _begin_at_the_end_here(group, group.local, queue, deadline))
    else:
        # Asked before the offset: what comes in between must not be skipped.
        end = yield from max_offset(instance, queue, deadline)
        found = yield from committed_offset(group, queue, deadline)
        if found is None and start == "latest":
            return (yield from _begin_at_the_end(group, queue, end, deadline))
    if isinstance(start, float) and not found:
        # A broker before 5.0 says 0 where it knows nothing; nothing before the time is wanted.
        return (yield from offset_for_time(instance, queue, start, group.name, deadline))
    if found is not None:
        return found
    ask = max_offset if start == "latest" else min_offset
    return (yield from ask(instance, queue, deadline))


def _begin_at_the_end(group: Group, queue: MessageQueue, end: int, deadline: float) -> Op[int]:
    """Begin at the end if the group is new; at the first message if only the queue is.

    The first member of a new group notes the ends of all queues of the topic at once: members that
    come a moment later then find where they begin, and do not take the group for an old one.
    """
    instance = group.instance
    queues = yield from read_queues(instance, queue.topic, deadline)
    queries = yield from _calls(
        group,
        [(q, RequestCode.QUERY_CONSUMER_OFFSET, _query(group, q)) for q in queues],
        deadline,
    )
    replies = yield from invoke_all(queries)
    if any(_is_known(reply) for reply in replies):
        return (yield from min_offset(instance, queue, deadline))
    offsets = yield from _ends(group, queues, deadline)
    offsets[queue] = end
    yield from _write(group, offsets, deadline)
    return end


def _ends(
    group: Group, queues: Sequence[MessageQueue], deadline: float
) -> Op[dict[MessageQueue, int]]:
    """The ends of some queues; those whose broker does not answer are left out."""
    asked = yield from _calls(
        group,
        [
            (
                q,
                RequestCode.GET_MAX_OFFSET,
                headers.queue(group.wire_topic(q.topic), q.id, broker=q.broker),
            )
            for q in queues
        ],
        deadline,
    )
    ends = yield from invoke_all(asked)
    return {
        q: headers.decode_offset(reply.ext)
        for q, reply in zip(queues, ends, strict=True)
        if isinstance(reply, Reply) and reply.code == ResponseCode.SUCCESS
    }


def _begin_at_the_end_here(
    group: Group, local: LocalOffsets, queue: MessageQueue, deadline: float
) -> Op[int]:
    """The same for a broadcasting member, which keeps its offsets itself.

    It notes the ends of all queues of the topic, too, so that a queue which it does not know later
    is a new one, and begins at its first message.
    """
    if local.knows(queue.topic):
        return (yield from min_offset(group.instance, queue, deadline))
    end = yield from max_offset(group.instance, queue, deadline)
    queues = yield from read_queues(group.instance, queue.topic, deadline)
    ends = yield from _ends(group, queues, deadline)
    try:
        local.save(ends | {queue: end})
    except OSError as error:
        log.warning(
            "where queues begin could not be written: %s",
            error,
            extra=about(queue, group=group.name),
        )
    return end


def _is_known(reply: Reply | RocketMQError) -> bool:
    """Whether a broker has an offset of this group for sure."""
    if not isinstance(reply, Reply) or reply.code != ResponseCode.SUCCESS:
        return False
    return headers.decode_offset(reply.ext) > 0 or decode_command(reply.frame).version >= _HONEST


def _calls(
    group: Group, wanted: Sequence[tuple[MessageQueue, int, dict[str, str]]], deadline: float
) -> Op[tuple[Invoke, ...]]:
    calls = []
    for queue, code, fields in wanted:
        address = yield from address_of(group.instance, queue, deadline)
        calls.append(Invoke(address, group.instance.request(code, fields), deadline))
    return tuple(calls)


def _write(
    group: Group, offsets: dict[MessageQueue, int], deadline: float
) -> Op[list[MessageQueue]]:
    """Write offsets to the brokers; returns those queues whose broker took it.

    One queue of each topic and broker goes ahead, alone if it is our first there. Apache's brokers
    make the table of a group that is new to a topic when the first offset comes, and do so twice,
    the second in place of the first, when two come at the same time: what the first one held is
    lost without a word.
    """
    first: dict[tuple[str, str], MessageQueue] = {}
    for queue in offsets:
        first.setdefault((queue.topic, queue.broker), queue)
    while shut := [g for p in first if (g := group.first_writes.get(p)) and not g.is_set]:
        if not (yield from wait(shut[0], deadline)):
            break
    ahead = {queue: offsets[queue] for queue in first.values()}
    rest = {queue: offset for queue, offset in offsets.items() if queue not in ahead}
    done = yield from _write_ahead(group, ahead, deadline)
    if rest:
        done += yield from _write_at_once(group, rest, deadline)
    return done


def _write_ahead(
    group: Group, offsets: dict[MessageQueue, int], deadline: float
) -> Op[list[MessageQueue]]:
    """Write one offset to each topic and broker; others wait where it is the first."""
    mine = {
        place: Event()
        for queue in offsets
        if (place := (queue.topic, queue.broker)) not in group.first_writes
    }
    group.first_writes |= mine
    done: list[MessageQueue] = []
    try:
        done = yield from _write_at_once(group, offsets, deadline)
    finally:
        for place in mine.keys() - {(queue.topic, queue.broker) for queue in done}:
            del group.first_writes[place]
        for event in mine.values():
            event.set()
    return done


def _write_at_once(
    group: Group, offsets: dict[MessageQueue, int], deadline: float
) -> Op[list[MessageQueue]]:
    wanted = []
    for queue, offset in offsets.items():
        fields = headers.update_consumer_offset(
            group.wire_name,
            group.wire_topic(queue.topic),
            queue.id,
            offset,
            broker=queue.broker,
        )
        wanted.append((queue, RequestCode.UPDATE_CONSUMER_OFFSET, fields))
    calls = yield from _calls(group, wanted, deadline)
    replies = yield from invoke_all(calls)
    # What a slave takes is for members that come while the master is away: it forgets it for what
    # the master says when that is back, and the master never hears of it. So it is told again.
    masters = set(group.instance.routes.masters().values())
    done = []
    for queue, call, reply in zip(offsets, calls, replies, strict=True):
        if isinstance(reply, Reply) and reply.code == ResponseCode.SUCCESS:
            if call.address in masters:
                done.append(queue)
            else:
                group.instance.route_wake_up.wake()  # a master may be back
        else:
            why = reply.remark if isinstance(reply, Reply) else reply
            log.debug(
                "%s: offset %d was not committed: %s",
                queue,
                offsets[queue],
                why,
                extra=about(group=group.name, offset=offsets[queue]),
            )
    return done


def commit(group: Group, queues: Sequence[ProcessQueue], deadline: float) -> Op[bool]:
    """Commit how far queues are handled; True if everything is known to be kept."""
    # A queue whose lock another member has is that member's: our offset would undo its own.
    queues = [q for q in queues if q.locked_until or not group.needs_locks]
    floors = group.floors(queues)
    changed = {q.queue: floors[q.queue] for q in queues if q.committed != floors[q.queue]}
    if not changed:
        return True
    if group.local is not None:
        try:
            group.local.save(changed)
        except OSError as error:
            log.warning(
                "offsets could not be written, they are tried again: %s",
                error,
                extra=about(group=group.name),
            )
            return False
        done = list(changed)
    else:
        try:
            done = yield from _write(group, changed, deadline)
        except (TransportError, BrokerError) as error:  # a broker that no route has any more
            log.debug("offsets were not committed: %s", error, extra=about(group=group.name))
            done = []
    for held in queues:
        if held.queue in done:
            held.committed = changed[held.queue]
    group.counters.commits += len(done)
    return len(done) == len(changed)


def keep_commits(group: Group) -> Op[None]:
    """Commit now and then, for ever; what did not move is told again once in a while.

    A broker that was killed has lost what it was told last.
    """
    instance = group.instance
    told_all = instance.clock()
    while True:
        yield from group.commit_wake_up.wait(instance.clock() + group.config.commit_interval)
        now = instance.clock()
        queues = list(group.queues.values())
        if now - told_all >= _TELL_AGAIN:
            told_all = now
            for held in queues:
                held.committed = None
        yield from commit(group, queues, now + instance.config.request_timeout)
