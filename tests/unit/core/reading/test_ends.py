"""Where a read ends: at the end that the broker told when it began, or with an error that says how much is missing."""

import pytest
from tests.unit.core.world import World

from rocketwire.core.reading.pull import ALL
from rocketwire.core.reading.topics import Reading
from rocketwire.errors import MissingQueuesError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.stored_message import encode_record

PULLS = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
QUEUE = MessageQueue("T", "broker-a", 0)


def record(offset: int) -> bytes:
    return encode_record(
        topic="T", body=b"x", properties=b"", queue_id=0, queue_offset=offset, physical_offset=offset * 100,
        system_flag=0, born_ms=1_700_000_000_000, born_host="10.0.0.1:5000",
        store_ms=1_700_000_000_100, store_host="10.0.0.2:10911",
    )  # fmt: skip


class Log:
    """A queue whose end is another at each pull, as a script says; the last word holds."""

    def __init__(self, told: int, *ends: int) -> None:
        self.world = World(brokers=1)
        self.world.extra_answer = self.answer
        self.told = told
        self.ends = list(ends)

    def answer(self, command: Command) -> Command | None:
        if command.code == RequestCode.GET_MIN_OFFSET:
            return Command(ResponseCode.SUCCESS, {"offset": "0"})
        if command.code == RequestCode.GET_MAX_OFFSET:
            return Command(ResponseCode.SUCCESS, {"offset": str(self.told)})
        if command.code not in PULLS:
            return None
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        first = int(command.ext["queueOffset"])
        last = min(end, first + int(command.ext["maxMsgNums"]))
        code = ResponseCode.SUCCESS if first < last else ResponseCode.PULL_NOT_FOUND
        ext = {"nextBeginOffset": str(max(first, last)), "minOffset": "0", "maxOffset": str(end)}
        return Command(code, ext, b"".join(record(offset) for offset in range(first, last)))

    def read(self, end=None, tags=ALL) -> list[int]:
        run = self.world.driver.run
        reading = Reading(self.world.instance, group="g", tags=tags, follow=False)
        run(reading.begin("T", [QUEUE], "earliest", end))
        found = []
        while not reading.is_over:
            found += [message.offset for message in run(reading.next_messages())]
        return found


@pytest.mark.parametrize("end", [None, "latest"])
def test_a_slave_that_is_behind_is_waited_for(end) -> None:
    log = Log(5, 3, 3, 3, 5)
    assert log.read(end) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("end", [None, "latest"])
def test_a_queue_that_stays_shorter_than_it_was_is_an_error(end) -> None:
    log = Log(5, 3)
    began = log.world.clock()
    with pytest.raises(
        MissingQueuesError, match="it ends at 3 and ended at 5 when the read began"
    ) as told:
        log.read(end)
    assert told.value.queues == (QUEUE,)
    assert 30.0 < log.world.clock() - began < 60.0


def test_an_end_that_the_caller_named_may_not_be_there_yet() -> None:
    assert Log(3, 3).read({QUEUE: 5}) == [0, 1, 2]


def test_what_comes_later_than_the_end_is_left_out() -> None:
    assert Log(3, 9).read() == [0, 1, 2]
