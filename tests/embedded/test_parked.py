"""Messages that wait: delayed by level, timed, prepared in a transaction, and replies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from tests.wire_tools import is_response, iter_records
from wire_client import WireClient, send_ext

from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode, ResponseCode, SystemFlag
from rocketwire.wire.message_id import RecallHandle, decode_recall_handle, encode_recall_handle
from rocketwire.wire.stored_message import decode_record


def first_of(client: WireClient, topic: str, queue: int = 0, offset: int = 0):
    reply = client.pull(topic, queue, offset, wait_ms=10_000)
    assert reply.code == 0, reply
    return next(iter_records(reply.body))


# Delay levels


def test_a_delayed_message_appears_when_its_time_has_come(client: WireClient, topic: str) -> None:
    sent = client.send_message(topic, b"later", queue=2, properties="DELAY\x012\x02TAGS\x01t\x02")
    assert sent.ext["queueId"] == "2"
    assert client.pull(topic, 2).code == ResponseCode.PULL_NOT_FOUND
    record = first_of(client, topic, 2)
    assert record.body == b"later"
    stored = int(sent.ext["msgId"][16:], 16)
    parked = decode_record(client.call(33, {"offset": stored}).body, 0)[0]
    assert (parked.topic, parked.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert record.store_ms - parked.store_ms >= 200
    # As with Apache, what the message went through stays on it.
    wanted = {"DELAY": "2", "REAL_TOPIC": topic, "REAL_QID": "2", "TAGS": "t"}
    assert wanted.items() <= record.properties.items()
    assert record.born_ms == parked.born_ms
    assert record.born_host == parked.born_host


def test_a_level_beyond_the_last_is_the_last(client: WireClient, topic: str) -> None:
    client.send_message(topic, b"x", properties="DELAY\x0199\x02")
    assert first_of(client, topic).properties["DELAY"] == "5"


def test_a_level_that_is_none_does_not_delay(client: WireClient, topic: str) -> None:
    for level in ("0", "-3", "soon"):
        client.send_message(topic, level.encode(), properties=f"DELAY\x01{level}\x02")
    assert len(list(iter_records(client.pull(topic).body))) == 3


def test_messages_of_one_level_keep_their_order(client: WireClient, topic: str) -> None:
    for n in range(150):
        client.send_message(topic, b"%d" % n, properties="DELAY\x011\x02")
    found: list[bytes] = []
    while len(found) < 150:
        reply = client.pull(topic, 0, len(found), wait_ms=10_000)
        found += [r.body for r in iter_records(reply.body)]
    assert found == [b"%d" % n for n in range(150)]


def test_a_delay_goes_on_after_a_kill() -> None:
    with EmbeddedCluster(delay_levels="1s") as cluster:
        with WireClient(cluster.broker("broker-a").address) as client:
            client.send_message("t", b"later", properties="DELAY\x011\x02")
        cluster.broker("broker-a").kill()
        cluster.broker("broker-a").restart()
        with WireClient(cluster.broker("broker-a").address) as client:
            assert first_of(client, "t").body == b"later"


def test_a_delivered_message_is_not_delivered_again_after_a_proper_restart() -> None:
    with EmbeddedCluster(delay_levels="0.05s") as cluster:
        handle = cluster.broker("broker-a")
        with WireClient(handle.address) as client:
            client.send_message("t", b"once", properties="DELAY\x011\x02")
            first_of(client, "t")
        handle.restart()
        with WireClient(handle.address) as client:
            client.send_message("t", b"next", properties="DELAY\x011\x02")
            assert first_of(client, "t", 0, 1).body == b"next"


# Times


def test_a_timed_message_appears_at_its_second(client: WireClient, topic: str) -> None:
    now = int(time.time() * 1000)
    client.send_message(topic, b"timed", properties=f"TIMER_DELIVER_MS\x01{now + 1100}\x02")
    record = first_of(client, topic)
    out = int(record.properties["TIMER_OUT_MS"])
    assert out % 1000 == 0
    assert now <= out < now + 1100
    assert record.store_ms >= out
    assert record.properties["REAL_TOPIC"] == topic


def test_a_time_that_has_passed_means_now(client: WireClient, topic: str) -> None:
    client.send_message(topic, b"now", properties="TIMER_DELIVER_MS\x011000\x02")
    assert [r.body for r in iter_records(client.pull(topic).body)] == [b"now"]


@pytest.mark.parametrize("text", ["TIMER_DELAY_SEC\x01999999\x02", "TIMER_DELAY_MS\x01soon\x02"])
def test_an_impossible_time_is_illegal(client: WireClient, topic: str, text: str) -> None:
    assert client.send_message(topic, properties=text).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_timed_message_survives_a_kill() -> None:
    with EmbeddedCluster() as cluster:
        handle = cluster.broker("broker-a")
        with WireClient(handle.address) as client:
            client.send_message("t", b"timed", properties="TIMER_DELAY_MS\x011500\x02")
            client.send_message("t", b"direct")
        handle.kill()
        handle.restart()
        with WireClient(handle.address) as client:
            assert first_of(client, "t", 0, 0).body == b"direct"
            assert first_of(client, "t", 0, 1).body == b"timed"


# Recall


def send_timed(client: WireClient, topic: str, body: str, delay_ms: int) -> str:
    """Send a message with a time; its recall handle."""
    text = f"TIMER_DELAY_MS\x01{delay_ms}\x02UNIQ_KEY\x01U-{body}\x02"
    reply = client.send_message(topic, body.encode(), properties=text)
    assert reply.code == 0
    return reply.ext["recallHandle"]


def recall(client: WireClient, topic: str, handle: str):
    return client.call(370, {"producerGroup": "g", "topic": topic, "recallHandle": handle})


def test_a_recalled_message_never_comes(client: WireClient, topic: str) -> None:
    handles = {body: send_timed(client, topic, body, 2100) for body in ("recalled", "kept")}
    reply = recall(client, topic, handles["recalled"])
    assert reply.code == 0
    assert reply.ext["msgId"] == "U-recalled"
    assert reply.ext["MSG_REGION"] == "DefaultRegion"
    # Both have one time: when this one is there, the other would be.
    assert first_of(client, topic).body == b"kept"
    assert len(list(iter_records(client.pull(topic).body))) == 1


def test_a_recall_survives_a_kill() -> None:
    with EmbeddedCluster() as cluster:
        broker = cluster.broker("broker-a")
        with WireClient(broker.address) as client:
            handles = [send_timed(client, "t", body, 2100) for body in ("recalled", "kept")]
            assert recall(client, "t", handles[0]).code == 0
        broker.kill()
        broker.restart()
        with WireClient(broker.address) as client:
            assert first_of(client, "t").body == b"kept"
            assert len(list(iter_records(client.pull("t").body))) == 1


def test_a_handle_names_the_message_its_broker_and_its_time(client: WireClient, topic: str) -> None:
    handle = decode_recall_handle(send_timed(client, topic, "x", 60_000))
    assert handle[:2] == (topic, "broker-a")
    assert handle.message_id == "U-x"
    assert handle.deliver_ms % 1000 == 1


def test_only_messages_that_wait_for_their_time_have_a_handle(
    client: WireClient, topic: str
) -> None:
    for text in ("", "DELAY\x011\x02", "TIMER_DELIVER_MS\x011000\x02"):
        assert "recallHandle" not in client.send_message(topic, properties=text).ext


def test_a_recall_that_makes_no_sense_is_refused(client: WireClient, topic: str) -> None:
    later = int(time.time() * 1000) + 60_000
    for wrong, code in (
        ("nonsense", ResponseCode.ILLEGAL_OPERATION),
        (RecallHandle("another", "broker-a", later, "U"), ResponseCode.ILLEGAL_OPERATION),
        (RecallHandle(topic, "broker-z", later, "U"), ResponseCode.ILLEGAL_OPERATION),
        (RecallHandle(topic, "broker-a", 1000, "U"), ResponseCode.ILLEGAL_OPERATION),
        (RecallHandle(topic, "broker-a", later * 2, "U"), ResponseCode.ILLEGAL_OPERATION),
    ):
        text = wrong if isinstance(wrong, str) else encode_recall_handle(wrong)
        assert recall(client, topic, text).code == code
    handle = encode_recall_handle(RecallHandle("nowhere", "broker-a", later, "U"))
    assert recall(client, "nowhere", handle).code == ResponseCode.TOPIC_NOT_EXIST
    # Apache does not look whether there is such a message, either.
    assert (
        recall(
            client, topic, encode_recall_handle(RecallHandle(topic, "broker-a", later, "U"))
        ).code
        == 0
    )


# Transactions


PREPARED = SystemFlag.TRANSACTION_PREPARED


def prepare(client: WireClient, topic: str, body: bytes, group: str, more: str = ""):
    text = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x01U-{body.decode()}\x02{more}"
    reply = client.call(
        310, send_ext(topic, queue=1, properties=text, system_flag=PREPARED, group=group), body
    )
    assert reply.code == 0
    return reply


def end(client: WireClient, prepared, decision: int, group: str, **more):
    ext = {
        "producerGroup": group,
        "tranStateTableOffset": prepared.ext["queueOffset"],
        "commitLogOffset": int(prepared.ext["msgId"][16:], 16),
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": prepared.ext["transactionId"],
    }
    return client.call(RequestCode.END_TRANSACTION, ext | more)


def test_a_prepared_message_is_invisible_until_it_is_committed(
    client: WireClient, topic: str
) -> None:
    prepared = prepare(client, topic, b"tx", "tg")
    assert prepared.ext["queueId"] == "1"
    assert client.pull(topic, 1).code == ResponseCode.PULL_NOT_FOUND
    assert end(client, prepared, SystemFlag.TRANSACTION_COMMIT, "tg").code == 0
    record = first_of(client, topic, 1)
    assert record.body == b"tx"
    assert record.system_flag & SystemFlag.TRANSACTION_MASK == SystemFlag.TRANSACTION_COMMIT
    assert record.prepared_offset == int(prepared.ext["msgId"][16:], 16)
    wanted = {"TRAN_MSG": "true", "REAL_TOPIC": topic, "__transactionId__": "U-tx"}
    assert wanted.items() <= record.properties.items()


def test_a_rolled_back_message_never_appears(client: WireClient, topic: str) -> None:
    prepared = prepare(client, topic, b"no", "tg")
    assert end(client, prepared, SystemFlag.TRANSACTION_ROLLBACK, "tg").code == 0
    assert client.pull(topic, 1).code == ResponseCode.PULL_NOT_FOUND


def test_a_decision_must_be_about_a_prepared_message_of_the_group(
    client: WireClient, topic: str
) -> None:
    prepared = prepare(client, topic, b"mine", "tg")
    commit = SystemFlag.TRANSACTION_COMMIT
    assert end(client, prepared, commit, "other").code == ResponseCode.SYSTEM_ERROR
    wrong = end(client, prepared, commit, "tg", tranStateTableOffset=10**6)
    assert wrong.code == ResponseCode.SYSTEM_ERROR
    assert end(client, prepared, commit, "tg", commitLogOffset=3).code == ResponseCode.SYSTEM_ERROR
    plain = client.send_message(topic, b"plain")
    place = int(plain.ext["msgId"][16:], 16)
    reply = end(client, prepared, commit, "tg", commitLogOffset=place)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert end(client, prepared, commit, "tg").code == 0


def producer_heartbeat(client: WireClient, client_id: str, group: str) -> None:
    body = {"clientID": client_id, "producerDataSet": [{"groupName": group}]}
    assert client.call(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0


def test_an_undecided_producer_is_asked_and_may_decide_then(client: WireClient, topic: str) -> None:
    producer_heartbeat(client, "asked", "tg-ask")
    prepared = prepare(client, topic, b"ask", "tg-ask")
    question = client.receive()
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.is_oneway
    assert question.ext["tranStateTableOffset"] == prepared.ext["queueOffset"]
    assert question.ext["transactionId"] == "U-ask"
    assert question.ext["offsetMsgId"] == prepared.ext["msgId"]
    record = decode_record(question.body, 0)[0]
    assert (record.topic, record.queue_id, record.body) == (topic, 1, b"ask")
    ext = {
        "producerGroup": "tg-ask",
        "tranStateTableOffset": question.ext["tranStateTableOffset"],
        "commitLogOffset": question.ext["commitLogOffset"],
        "commitOrRollback": SystemFlag.TRANSACTION_COMMIT,
        "fromTransactionCheck": "true",
        "msgId": "x",
    }
    client.send(RequestCode.END_TRANSACTION, ext, flag=2)
    _skip_questions(client)
    assert first_of(client, topic, 1).body == b"ask"


def _skip_questions(client: WireClient) -> None:
    opaque = client.send(RequestCode.GET_MAX_OFFSET, {"topic": "x", "queueId": 0})
    while not (is_response(reply := client.receive()) and reply.opaque == opaque):
        assert reply.code == RequestCode.CHECK_TRANSACTION_STATE


def test_after_enough_questions_the_broker_gives_up(
    connect: Callable[[], WireClient], shared: EmbeddedCluster, topic: str
) -> None:
    producer, reader = connect(), connect()
    producer_heartbeat(producer, "mute", "tg-mute")
    prepare(producer, topic, b"mute", "tg-mute")
    for _ in range(3):
        assert producer.receive().code == RequestCode.CHECK_TRANSACTION_STATE
    deadline = time.monotonic() + 10
    while not any(m.body == b"mute" for m in shared.messages("TRANS_CHECK_MAX_TIME_TOPIC")):
        assert time.monotonic() < deadline
    assert reader.pull(topic, 1).code == ResponseCode.PULL_NOT_FOUND


def test_undecided_messages_are_still_known_after_a_kill() -> None:
    with EmbeddedCluster(transaction_check_interval=60.0) as cluster:
        handle = cluster.broker("broker-a")
        cluster.create_topic("t", queues=2)
        with WireClient(handle.address) as client:
            decided = prepare(client, "t", b"decided", "tg")
            undecided = prepare(client, "t", b"undecided", "tg")
            end(client, decided, SystemFlag.TRANSACTION_ROLLBACK, "tg")
        handle.kill()
        handle.restart()
        assert cluster._brokers["broker-a"].transactions.undecided == 1
        with WireClient(handle.address) as client:
            assert end(client, undecided, SystemFlag.TRANSACTION_COMMIT, "tg").code == 0
            assert first_of(client, "t", 1).body == b"undecided"
        assert cluster._brokers["broker-a"].transactions.undecided == 0


def test_a_decision_after_the_messages_own_time_is_refused(client: WireClient, topic: str) -> None:
    more = "CHECK_IMMUNITY_TIME_IN_SECONDS\x010\x02"
    prepared = prepare(client, topic, b"late", "tg-late", more)
    deadline = time.time() + 0.01
    while time.time() < deadline:
        pass
    reply = end(client, prepared, SystemFlag.TRANSACTION_COMMIT, "tg-late")
    assert reply.code == ResponseCode.ILLEGAL_OPERATION


# Request and reply


def test_a_reply_goes_to_the_client_that_asked(
    connect: Callable[[], WireClient], shared: EmbeddedCluster
) -> None:
    asker, answerer = connect(), connect()
    producer_heartbeat(asker, "asker-1", "rg")
    text = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01asker-1\x02CORRELATION_ID\x01c-1\x02"
    ext = send_ext("DefaultCluster_REPLY_TOPIC", properties=text)
    answerer.send(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"the answer")
    push = asker.receive()
    assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert push.body == b"the answer"
    assert "CORRELATION_ID\x01c-1" in push.ext["properties"]
    assert push.ext["storeHost"] == shared.broker("broker-a").address
    _answer(asker, push.opaque, 0)
    reply = answerer.receive()
    assert reply.code == 0
    assert reply.ext["queueId"] == "0"


def _answer(client: WireClient, opaque: int, code: int) -> None:
    from rocketwire.wire.command import Command, encode_command

    client.socket.sendall(encode_command(Command(code, {}, b"", None, opaque, 1)))


def test_a_reply_that_nobody_takes_is_an_error(
    connect: Callable[[], WireClient],
) -> None:
    asker, answerer = connect(), connect()
    producer_heartbeat(asker, "asker-2", "rg")
    for target, code in (("asker-2", 1), ("nobody", None), (None, None)):
        text = f"MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01{target}\x02" if target else "x\x01y\x02"
        ext = send_ext("DefaultCluster_REPLY_TOPIC", properties=text)
        answerer.send(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"x")
        if code is not None:
            _answer(asker, asker.receive().opaque, code)
        assert answerer.receive().code == ResponseCode.SYSTEM_ERROR
