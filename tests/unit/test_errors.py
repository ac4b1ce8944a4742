from __future__ import annotations

import inspect
import pickle

import pytest

from rocketwire import errors
from rocketwire.errors import (
    Attempt,
    BrokerError,
    ConnectFailedError,
    Outcome,
    RequestTimeoutError,
    RocketMQError,
    SendFailedError,
    SendTimeoutError,
)
from rocketwire.message import MessageQueue, TransactionState
from rocketwire.wire.codes import error_for

ALL = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, RocketMQError) and cls.__module__ == errors.__name__
]


def make(cls: type[RocketMQError]) -> RocketMQError:
    if issubclass(cls, BrokerError):
        return cls(13, "too large", "broker-a", name="MESSAGE_ILLEGAL")
    if issubclass(cls, errors.TransportError):
        return cls("lost", written=True)
    if issubclass(cls, errors.SendManyError):
        return cls([make(SendFailedError), make(SendFailedError)])
    if issubclass(cls, SendFailedError):
        queue = MessageQueue("T", "broker-a", 3)
        attempt = Attempt(queue, 0.5, ConnectFailedError("refused"), Outcome.NOT_SENT)
        return cls("gone", attempts=[attempt], outcome=Outcome.MAYBE_STORED)
    if issubclass(cls, errors.TransactionError):
        return cls("unknown", TransactionState.UNKNOWN)
    if issubclass(cls, errors.RecallError):
        return cls("gone", errors.RecallProblem.TOO_LATE)
    return cls("text")


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_with_its_fields_and_cause(cls: type[RocketMQError]) -> None:
    error = make(cls)
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error)
    assert {k: repr(v) for k, v in vars(copy).items()} == {
        k: repr(v) for k, v in vars(error).items()
    }
    assert isinstance(copy.__cause__, ConnectionRefusedError)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_stands_in_the_tree_of_the_docstring(cls: type[RocketMQError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")


def test_time_outs_are_what_python_calls_time_outs() -> None:
    assert issubclass(RequestTimeoutError, TimeoutError)
    assert issubclass(SendTimeoutError, TimeoutError)


def test_wrong_input_is_a_value_error() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.InvalidMessageError, ValueError)


def test_the_worst_outcome_counts() -> None:
    not_sent, rejected, maybe = Outcome.NOT_SENT, Outcome.REJECTED, Outcome.MAYBE_STORED
    assert Outcome.worst([not_sent, maybe, rejected]) is maybe
    assert Outcome.worst([not_sent, rejected]) is rejected
    assert Outcome.worst([not_sent]) is not_sent
    assert Outcome.worst([]) is not_sent


def test_a_broker_error_says_who_said_what() -> None:
    error = error_for(13, "the message is too large", "broker-a")
    assert str(error) == "broker-a answered MESSAGE_ILLEGAL 13: the message is too large"
    assert (error.code, error.remark, error.broker) == (13, "the message is too large", "broker-a")
    assert str(error_for(4711, None, "broker-a")) == "broker-a answered code 4711: no remark"


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (2, errors.SystemBusyError),
        (14, errors.ServiceNotAvailableError),
        (16, errors.PermissionDeniedError),
        (17, errors.UnknownTopicError),
        (1, errors.BrokerError),
    ],
)
def test_codes_that_callers_branch_on_have_classes(code: int, cls: type) -> None:
    assert type(error_for(code, "", "b")) is cls
