"""An operator has one message handled now (request 309): both shells, all clusters."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.conformance.members import TAKERS, eventually, unique_group
from tests.conformance.test_control import not_the_broker, one_queue, own, send
from tests.real.frames import ask

from rocketwire import Retry
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.lenient_json import loads
from rocketwire.wire.message_id import decode_offset_message_id


def directly(group: str, client_id: str, offset_id: str) -> Any:
    """What a broker answers to an operator who wants a message handled."""
    place = decode_offset_message_id(offset_id)
    fields = {"consumerGroup": group, "clientId": client_id, "msgId": offset_id}
    return ask(f"{place.host}:{place.port}", RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)


def outcome(answer: Any) -> dict[str, Any]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return dict(loads(answer.body))


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_the_handler_runs_and_the_operator_gets_javas_words(target, producer, member, ordered):
    topic, queue = one_queue(target, producer)
    group, seen, verdict = unique_group(), [], []

    def handle(message: Any) -> Any:
        seen.append((message.text, message.topic, message.queue, message.offset))
        result = verdict[0] if verdict else None
        if isinstance(result, Exception):
            raise result
        return result

    async def handle_on_loop(message: Any) -> Any:
        await asyncio.sleep(0)
        return handle(message)

    handler = handle if member.kind == "blocking" else handle_on_loop
    one = member(group, topic, ordered=ordered, handler=handler)
    own(one, queue)
    (sent,) = send(producer, queue, "a")
    eventually(lambda: len(seen) == 1)
    client = one.consumer.client_id

    found = outcome(directly(group, client, sent.offset_message_id))
    assert found["consumeResult"] == "CR_SUCCESS"
    assert found["order"] is ordered
    assert found["autoCommit"] is True
    assert found["spentTimeMills"] >= 0
    verdict.append(Retry(after=1))
    assert outcome(directly(group, client, sent.offset_message_id))["consumeResult"] == "CR_LATER"
    verdict[0] = Retry
    assert outcome(directly(group, client, sent.offset_message_id))["consumeResult"] == "CR_LATER"
    verdict[0] = ValueError("no such order")
    found = outcome(directly(group, client, sent.offset_message_id))
    assert found["consumeResult"] == "CR_THROW_EXCEPTION"
    assert "ValueError: no such order" in found["remark"]
    assert seen == [("a", topic, queue, 0)] * 5
    assert one.stats().handled == 1, "what an operator wants is beside the count"
    assert one.stats().retried == 0


def test_a_list_handler_gets_a_list_of_one(target, producer, member):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    group, seen = unique_group(), []
    one = member(group, topic, batch=8, handler=lambda given: seen.append([m.text for m in given]))
    own(one, queue)
    (sent,) = send(producer, queue, "a")
    eventually(lambda: seen == [["a"]])
    answer = directly(group, one.consumer.client_id, sent.offset_message_id)
    assert outcome(answer)["consumeResult"] == "CR_SUCCESS"
    assert seen == [["a"], ["a"]]


def test_while_handlers_hang_an_operator_still_gets_an_answer(target, producer, member):
    not_the_broker(target)
    if member.kind == "asyncio":
        pytest.skip("a loop that hangs answers nothing")
    topic, queue = one_queue(target, producer)
    group, go_on, began = unique_group(), threading.Event(), threading.Event()

    def handle(message: Any) -> None:
        if threading.current_thread().name.startswith("rocketwire-handler"):
            began.set()
            go_on.wait(30)

    one = member(group, topic, workers=1, handler=handle)
    own(one, queue)
    (sent,) = send(producer, queue, "a")
    assert began.wait(30)
    answer = directly(group, one.consumer.client_id, sent.offset_message_id)
    assert outcome(answer)["consumeResult"] == "CR_SUCCESS"
    go_on.set()


@pytest.mark.parametrize("kind", list(TAKERS))
def test_a_member_without_a_handler_says_so(target, producer, kind):
    not_the_broker(target)
    topic, queue = one_queue(target, producer)
    group = unique_group()
    one = TAKERS[kind](target.name_server, group, topic, start="earliest").start()
    try:
        own(one, queue)
        (sent,) = send(producer, queue, "a")
        one.take(1)
        answer = directly(group, one.consumer.client_id, sent.offset_message_id)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "has no handler that could be called" in answer.remark
        time.sleep(0.05)
        assert len(one.taken) == 1
    finally:
        one.stop()
