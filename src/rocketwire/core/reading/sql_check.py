"""Whether brokers understand an SQL92 expression, asked before the first message is wanted."""

from __future__ import annotations

from rocketwire.core.effects import Op, invoke
from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import address_of, read_queues
from rocketwire.errors import ConfigError, TransportError
from rocketwire.message import MessageQueue
from rocketwire.wire.client_bodies import Subscription
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.lenient_json import dumps

_SWITCHED_OFF = "does not support consumer to filter"


def check_sql(
    instance: Instance, group: str, subscription: Subscription, deadline: float
) -> Op[None]:
    """Have every broker of a topic that can be reached check a subscription by SQL92.

    Args:
        instance: the one that asks.
        group: the consumer group, as users know it.
        subscription: what it wants; its topic is the one that users know.
        deadline: for all of it.

    Raises:
        ConfigError: a broker can't read the expression, or has such filters switched off.
        BrokerError: it answered with another error.
        TransportError: none could be reached.
    """
    queues = yield from read_queues(instance, subscription.topic, deadline)
    by_broker = {queue.broker: queue for queue in reversed(queues)}
    failures: list[TransportError] = []
    for queue in reversed(by_broker.values()):
        # A dead broker must not take the time in which another one can answer.
        limit = min(deadline, instance.clock() + instance.config.request_timeout / 2)
        try:
            yield from _check_at(instance, group, subscription, queue, limit)
        except TransportError as error:
            failures.append(error)
    if failures and len(failures) == len(by_broker):
        raise failures[0]


def _check_at(
    instance: Instance, group: str, subscription: Subscription, queue: MessageQueue, deadline: float
) -> Op[None]:
    namespace = instance.config.namespace
    wired = subscription._replace(topic=with_namespace(subscription.topic, namespace))
    body = {
        "clientId": instance.client_id,
        "group": with_namespace(group, namespace),
        "subscriptionData": wired.as_json(),
    }
    request = instance.request(RequestCode.CHECK_CLIENT_CONFIG, {}, dumps(body))
    address = yield from address_of(instance, queue, deadline)
    reply = yield from invoke(address, request, deadline)
    if reply.code == ResponseCode.SUCCESS:
        return
    what = f"sql of topic {subscription.topic} is {subscription.expression!r}"
    # Apache's parser lists on many lines what it had expected.
    remark = " ".join((reply.remark or "no remark").split())
    if reply.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        raise ConfigError(f"{what}: broker {queue.broker} can't read it: {remark}")
    if _SWITCHED_OFF in remark:
        raise ConfigError(
            f"{what}: broker {queue.broker} filters by tags only; set enablePropertyFilter=true "
            f"in its configuration and restart it, or filter in your program ({remark})"
        )
    raise error_for(reply.code, reply.remark, queue.broker, asked=RequestCode.CHECK_CLIENT_CONFIG)
