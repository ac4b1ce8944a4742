"""A range is read whole and in order, whatever brokers give and in whatever order they answer."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rocketwire.columns.cursor import MOST_MESSAGES, RangeCursor
from rocketwire.message import MessageQueue

QUEUE = MessageQueue("t", "b", 0)


def read(cursor, answer, choose=lambda pending: 0, room=64):
    """Run a cursor against a broker; returns the bodies and how many pulls it took."""
    pending, bodies, pulls, most = [], [], 0, 0
    while not cursor.is_done:
        for pull in cursor.next_pulls(room - len(pending)):
            pending.append(pull)
            pulls += 1
        most = max(most, len(pending))
        offset, count = pending.pop(choose(pending))
        answer(cursor, offset, count)
        bodies += cursor.ready()
        assert pulls < 100_000
    assert not pending
    return bodies, pulls, most


def capped(cap):
    def answer(cursor, offset, count):
        given = min(cap, count)
        cursor.answered(offset, offset + given, b"x" * given)

    return answer


def offsets_of(bodies):
    return [offset for part in bodies for offset in range(part.first, part.end)]


@given(st.integers(0, 2**32), st.integers(0, 50), st.integers(0, 3000))
def test_every_offset_comes_once_and_in_order(seed, start, rows):
    random = Random(seed)
    generous = random.choice([1, 3, 32, 1000])

    def answer(cursor, offset, count):
        kind = random.randrange(10)
        if kind == 0:
            cursor.unanswered(offset)
        elif kind == 1:
            cursor.answered(offset, offset, b"")  # nothing: asked again
        else:
            cursor.answered(offset, offset + random.randint(1, min(count, generous)), b"x")

    cursor = RangeCursor(QUEUE, start, start + rows)
    bodies, _, _ = read(cursor, answer, lambda pending: random.randrange(len(pending)))
    assert offsets_of(bodies) == list(range(start, start + rows))


def test_pulls_go_out_before_the_first_is_answered():
    bodies, pulls, most = read(RangeCursor(QUEUE, 0, 32 * 1000), capped(32))
    assert offsets_of(bodies) == list(range(32_000))
    assert most == 64
    assert pulls < 1100  # 1000 would be the least


def test_a_broker_that_gives_more_is_asked_for_more():
    _, pulls, _ = read(RangeCursor(QUEUE, 0, 100 * MOST_MESSAGES), capped(10_000))
    assert pulls == 100


def test_a_broker_that_begins_to_give_more_is_found_out():
    given = {"pulls": 0}

    def answer(cursor, offset, count):
        given["pulls"] += 1
        capped(8 if given["pulls"] < 50 else 256)(cursor, offset, count)

    _, pulls, _ = read(RangeCursor(QUEUE, 0, 256 * 400), answer)
    assert pulls < 256 * 400 / 32


def test_large_messages_narrow_the_window():
    def answer(cursor, offset, count):
        cursor.answered(offset, offset + 1, b"x" * 2_000_000)

    _, _, most = read(RangeCursor(QUEUE, 0, 200), answer)
    assert most <= 2


def test_a_filtered_range_has_one_pull_under_way():
    """Answers reach further than they hold messages, by how much is not known before."""

    def answer(cursor, offset, count):
        cursor.answered(offset, offset + 100, b"x")

    bodies, pulls, most = read(RangeCursor(QUEUE, 0, 1000, is_filtered=True), answer)
    assert (pulls, most) == (10, 1)
    assert offsets_of(bodies) == list(range(1000))


def test_an_answer_that_reaches_too_far_is_cut():
    cursor = RangeCursor(QUEUE, 0, 10, is_filtered=True)
    ((offset, _),) = cursor.next_pulls(1)
    cursor.answered(offset, 50, b"x")
    (part,) = cursor.ready()
    assert (part.first, part.end) == (0, 10)
    assert cursor.is_done


def test_lost_messages_are_skipped():
    cursor = RangeCursor(QUEUE, 0, 100)
    ((offset, _),) = cursor.next_pulls(1)
    cursor.skip(offset, 40)
    bodies, _, _ = read(cursor, capped(1000))
    assert offsets_of(bodies) == list(range(40, 100))


def test_everything_lost_ends_the_range():
    cursor = RangeCursor(QUEUE, 0, 100)
    ((offset, _),) = cursor.next_pulls(1)
    cursor.skip(offset, 100)
    assert list(cursor.ready()) == []
    assert cursor.is_done


def test_a_range_whose_end_is_gone_ends_early():
    cursor = RangeCursor(QUEUE, 0, 100)
    ((offset, _),) = cursor.next_pulls(1)
    cursor.answered(offset, 10, b"x")
    under_way = list(cursor.next_pulls(2))
    assert under_way == [(10, 10), (20, 10)]
    cursor.end_at(15)
    cursor.answered(10, 20, b"x")
    cursor.unanswered(20)
    assert offsets_of(cursor.ready()) == list(range(15))
    assert cursor.is_done
    assert list(cursor.next_pulls(9)) == []


def test_an_empty_range_is_done_at_once():
    cursor = RangeCursor(QUEUE, 5, 5)
    assert cursor.is_done
    assert list(cursor.next_pulls(8)) == []
