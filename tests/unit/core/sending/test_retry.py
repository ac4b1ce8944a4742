import pickle

import pytest

from rocketwire.core.durations import span
from rocketwire.core.failure_text import what_happened
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.retry import (
    attempt_deadline,
    default_attempt_timeout,
    describe_failure,
    failure,
    is_retryable,
    may_succeed_later,
    outcome_of,
    should_retry_status,
    tries_allowed,
)
from rocketwire.errors import (
    Attempt,
    BrokerError,
    ClientClosedError,
    ConnectFailedError,
    ConnectionLostError,
    InvalidMessageError,
    LocalProtocolError,
    NameServerUnavailableError,
    NoWritableQueueError,
    Outcome,
    PermissionDeniedError,
    RemoteProtocolError,
    RequestTimeoutError,
    SendFailedError,
    SendTimeoutError,
    TopicNotFoundError,
)
from rocketwire.message import MessageQueue, SendStatus
from rocketwire.wire.codes import error_for

SETTINGS = {"retries": 2, "async_retries": 3, "ordered_retries": 4}


@pytest.mark.parametrize(
    ("mode", "pinned", "tries"),
    [
        (SendMode.BLOCKING, False, 3),
        (SendMode.ASYNC, False, 4),
        (SendMode.ONEWAY, False, 1),
        (SendMode.BLOCKING, True, 5),
        (SendMode.ASYNC, True, 5),
        (SendMode.ONEWAY, True, 1),
    ],
)
def test_tries_by_mode(mode, pinned, tries):
    assert tries_allowed(mode, pinned=pinned, **SETTINGS) == tries


def test_the_default_cap_is_an_even_share():
    assert default_attempt_timeout(3.0, 3) == 1.0
    assert default_attempt_timeout(3.0, 1) == 3.0
    assert default_attempt_timeout(3.0, 0) == 3.0


@pytest.mark.parametrize(
    ("cap", "tries_left", "another", "deadline"),
    [
        (1.0, 2, True, 11.0),
        (1.0, 1, True, 11.0),
        (1.0, 0, True, 13.0),  # nobody would use the time that is saved
        (1.0, 2, False, 13.0),  # giving up here would only add load elsewhere
        (None, 2, True, 13.0),
        (5.0, 2, True, 13.0),  # never past the deadline
    ],
)
def test_the_cap_holds_only_where_giving_up_helps(cap, tries_left, another, deadline):
    assert (
        attempt_deadline(10.0, 13.0, cap, tries_left=tries_left, another_usable=another) == deadline
    )


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 215, 1500])
def test_retryable_codes(code):
    assert is_retryable(error_for(code, "", "b"))


@pytest.mark.parametrize("code", [3, 13, 29, 18, 604, 999])
def test_codes_that_another_broker_would_answer_too_are_not_retried(code):
    assert not is_retryable(error_for(code, "", "b"))
    assert is_retryable(error_for(code, "", "b"), also=[code])


@pytest.mark.parametrize(
    "error",
    [
        ConnectFailedError("x"),
        ConnectionLostError("x", written=True),
        RequestTimeoutError("x", written=True),
        RemoteProtocolError("junk"),
        NoWritableQueueError("x"),
    ],
)
def test_errors_worth_another_try(error):
    assert is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [LocalProtocolError("x"), InvalidMessageError("x"), ClientClosedError("x"), OSError("x")],
)
def test_errors_that_another_try_would_repeat(error):
    assert not is_retryable(error)


def test_a_send_is_made_again_later_if_its_last_attempt_was_worth_another_one():
    busy, illegal = attempt("b", error_for(2, "", "b")), attempt("b", error_for(13, "", "b"))
    assert may_succeed_later(failure([illegal, busy], 1.0, deadline_passed=False))
    assert not may_succeed_later(failure([busy, illegal], 1.0, deadline_passed=True))
    # An attempt without an error was stored, if not as safely as asked for.
    assert may_succeed_later(failure([attempt("b", None)], 1.0, deadline_passed=False))


@pytest.mark.parametrize(
    ("cause", "may"),
    [
        (None, True),  # it ended before its turn
        (NoWritableQueueError("x"), True),
        (NameServerUnavailableError("x"), True),
        (TopicNotFoundError("x"), False),  # waiting does not make a topic
        (ClientClosedError("x"), False),
        (OSError("x"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_a_send_without_an_attempt_is_made_again_later_if_its_cause_may_pass(cause, may):
    error = SendFailedError("x")
    error.__cause__ = cause
    assert may_succeed_later(error) is may


@pytest.mark.parametrize("status", SendStatus)
def test_a_status_is_retried_only_on_request_and_only_if_it_is_not_ok(status):
    assert should_retry_status(status, retry_when_not_stored=True) == (status is not SendStatus.OK)
    assert not should_retry_status(status, retry_when_not_stored=False)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectFailedError("x"), Outcome.NOT_SENT),
        (RequestTimeoutError("x"), Outcome.NOT_SENT),
        (RequestTimeoutError("x", written=True), Outcome.MAYBE_STORED),
        (ConnectionLostError("x"), Outcome.NOT_SENT),
        (ConnectionLostError("x", written=True), Outcome.MAYBE_STORED),
        (error_for(2, "", "b"), Outcome.REJECTED),
        (RemoteProtocolError("junk"), Outcome.MAYBE_STORED),
        (LocalProtocolError("x"), Outcome.NOT_SENT),
        (KeyboardInterrupt(), Outcome.NOT_SENT),
    ],
)
def test_the_outcome_of_an_attempt(error, outcome):
    assert outcome_of(error) == outcome


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (KeyboardInterrupt(), Outcome.MAYBE_STORED),
        (ConnectionLostError("x"), Outcome.MAYBE_STORED),
        (error_for(2, "", "b"), Outcome.REJECTED),
    ],
)
def test_what_was_written_may_be_stored_unless_it_was_refused(error, outcome):
    assert outcome_of(error, written=True) == outcome


def refused():
    error = ConnectFailedError("no route")
    error.__cause__ = ConnectionRefusedError(111, "")
    return error


def disconnected():
    error = ConnectionLostError("x", written=True)
    error.__cause__ = RemoteProtocolError("junk")
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (disconnected(), "answered with something else than the protocol (junk)"),
        (RequestTimeoutError("x", written=True), "gave no answer in 1.0 s"),
        (RequestTimeoutError("x"), "could not be reached in 1.0 s"),
        (refused(), "refused the connection"),
        (ConnectFailedError("Connection refused"), "refused the connection"),
        (ConnectFailedError("no such host"), "could not be reached (no such host)"),
        (ConnectFailedError("10.0.0.1:10911 hung up on TLS"), "hung up on TLS"),
        (ConnectFailedError("[::1]:10911 hung up on TLS"), "hung up on TLS"),
        (ConnectFailedError("broker: down"), "could not be reached (broker: down)"),
        (ConnectFailedError("10.0.0.1:10911"), "could not be reached (10.0.0.1:10911)"),
        (ConnectionLostError("x", written=True), "closed the connection without an answer"),
        (ConnectionLostError("x"), "closed the connection at once"),
        (error_for(2, "too much", "b"), "answered SYSTEM_BUSY (2): too much"),
        (error_for(2, "", "b"), "answered SYSTEM_BUSY (2)"),
        (error_for(4711, "", "b"), "answered code 4711"),
        (RemoteProtocolError("junk"), "answered with something else than the protocol (junk)"),
        (LocalProtocolError("too big"), "failed (too big)"),
        (OSError(), "failed (OSError)"),
    ],
)
def test_what_happened_in_words(error, words):
    assert what_happened(error, 1.0) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (0.0994, "99 ms"),
        (0.09948, "99 ms"),
        (0.1, "0.1 s"),
        (1.04, "1.0 s"),
        (12, "12.0 s"),
    ],
)
def test_times_in_words(seconds, words):
    assert span(seconds) == words


def attempt(broker, error, latency=0.0, outcome=None):
    outcome = outcome or (outcome_of(error) if error is not None else None)
    return Attempt(MessageQueue("t", broker, 0), latency, error, outcome)


HUNG = attempt("broker-a", RequestTimeoutError("x", written=True), 1.0)
DOWN_B = attempt("broker-b", refused())
DOWN_C = attempt("broker-c", refused())


def test_a_failure_is_one_sentence_about_every_attempt():
    assert describe_failure([HUNG, DOWN_B, DOWN_C], 1.0) == (
        "maybe stored: broker-a gave no answer in 1.0 s, broker-b refused the connection, "
        "broker-c refused the connection (3 attempts, 1.0 s)"
    )


@pytest.mark.parametrize(
    ("attempts", "start", "end"),
    [
        ([DOWN_B], "not sent: broker-b refused", "(1 attempt, 0.5 s)"),
        (
            [DOWN_B, attempt("c", error_for(2, "", "c"))],
            "rejected: broker-b",
            "(2 attempts, 0.5 s)",
        ),
        (
            [attempt("c", error_for(2, "", "c")), HUNG],
            "maybe stored: c answered",
            "(2 attempts, 0.5 s)",
        ),
    ],
)
def test_the_sentence_begins_with_the_worst_outcome(attempts, start, end):
    text = describe_failure(attempts, 0.5)
    assert text.startswith(start)
    assert text.endswith(end)


def test_a_failure_without_an_attempt_tells_its_cause():
    cause = NoWritableQueueError("topic 'x' has no writable queue")
    text = "not sent: topic 'x' has no writable queue (no attempt, 3.0 s)"
    assert describe_failure([], 3.0, cause=cause) == text
    assert str(failure([], 3.0, deadline_passed=False, cause=cause)) == text
    nothing = "not sent: there was no time to try (no attempt, 12 ms)"
    assert describe_failure([], 0.012) == nothing
    assert describe_failure([], 0.012, cause=OSError()) == nothing


def test_an_attempt_that_was_stored_less_safely_says_so_and_may_be_stored():
    text = describe_failure([attempt("broker-a", None, 0.1), DOWN_B], 0.2)
    assert text == (
        "maybe stored: broker-a stored it less safely than asked for, "
        "broker-b refused the connection (2 attempts, 0.2 s)"
    )


def test_the_error_of_a_failed_send_carries_everything():
    error = failure([HUNG, DOWN_B], 1.5, deadline_passed=False)
    assert type(error) is SendFailedError
    assert error.attempts == (HUNG, DOWN_B)
    assert error.outcome is Outcome.MAYBE_STORED
    assert error.__cause__ is DOWN_B.error
    assert str(error) == describe_failure([HUNG, DOWN_B], 1.5)


def test_a_given_cause_is_chained():
    cause = OSError("x")
    assert failure([HUNG], 1.0, deadline_passed=False, cause=cause).__cause__ is cause
    empty = failure([], 1.0, deadline_passed=False)
    assert empty.__cause__ is None
    assert empty.outcome is Outcome.NOT_SENT


def test_a_passed_deadline_is_a_time_out():
    error = failure([HUNG], 3.0, deadline_passed=True)
    assert type(error) is SendTimeoutError
    assert isinstance(error, TimeoutError)


def test_the_error_of_a_failed_send_survives_pickling():
    error = failure([HUNG, DOWN_B], 1.5, deadline_passed=True)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is SendTimeoutError
    assert (str(copy), copy.outcome) == (str(error), error.outcome)
    assert [one.broker for one in copy.attempts] == ["broker-a", "broker-b"]


def test_a_refusal_for_lack_of_permission_ends_with_what_to_do():
    queue = MessageQueue("T", "broker-a", 0)
    refused = Attempt(queue, 0.0, PermissionDeniedError(16, "no", "broker-a"), Outcome.REJECTED)
    busy = Attempt(queue, 0.0, BrokerError(2, "busy", "broker-a"), Outcome.REJECTED)
    end = "; check the credentials, and what they may do"
    assert describe_failure([busy, refused, busy], 1.0).endswith(end)
    assert not describe_failure([busy], 1.0).endswith(end)
