"""Parcels of the fast lane over blocking sockets.

The thread that sends writes the parcel and reads the answer, as the driver does. When anything
but "stored" comes of it, the parcel goes on as an ordinary operation.
"""

from __future__ import annotations

from rocketwire.core.express import Express, Parcel, settle_one, settle_oneway
from rocketwire.errors import Outcome, RocketMQError, SendFailedError
from rocketwire.message import Message, SendResult
from rocketwire.sync.connection import Pool
from rocketwire.sync.driver import Driver
from rocketwire.wire.command import Reply


def send(express: Express, message: Message, pool: Pool, driver: Driver) -> SendResult | None:
    """Send a message by the fast lane; None if it can't take it.

    Raises:
        InvalidMessageError: nothing was sent.
        SendFailedError: its ``outcome`` tells whether the message may be stored all the same.
    """
    parcel = express.prepare(message, Parcel)
    if parcel is None:
        return None
    try:
        connection = pool.take(parcel.stop.address, parcel.deadline, parcel.began)
        try:
            answer = connection.exchange(parcel)
        except BaseException:
            connection.close()
            raise
    except RocketMQError as error:
        return _detour(express, parcel, driver, error)
    except BaseException:
        _give_up(express, parcel)
        raise
    pool.give_back(connection)
    if type(answer) is bytes:
        parcel.answer = answer
        settle_one(parcel, connection.used_at)
        return parcel.receipt()
    return _detour(express, parcel, driver, answer)


def send_oneway(express: Express, message: Message, pool: Pool, driver: Driver) -> bool:
    """Write a message that gets no answer by the fast lane; False if it can't take it.

    Raises:
        InvalidMessageError: nothing was sent.
        SendFailedError: it could not even be written.
    """
    parcel = express.prepare(message, Parcel)
    if parcel is None:
        return False
    try:
        connection = pool.take(parcel.stop.address, parcel.deadline, parcel.began)
        try:
            connection.write_parcel(parcel)
        except BaseException:
            connection.close()
            raise
    except RocketMQError as error:
        driver.go_on(express.take_over(parcel), error)
        return True
    except BaseException:
        _give_up(express, parcel)
        raise
    pool.give_back(connection)
    settle_oneway(parcel, connection.used_at)
    return True


def _give_up(express: Express, parcel: Parcel) -> None:
    """The thread is interrupted: the send ends where it stands."""
    rest = express.take_over(parcel)
    next(rest)
    rest.close()


def _detour(
    express: Express, parcel: Parcel, driver: Driver, what: bytes | Reply | RocketMQError
) -> SendResult:
    """Go on as an ordinary send whose first attempt came to this."""
    result = driver.go_on(express.take_over(parcel), what)
    if result is None:  # never for this mode
        raise SendFailedError("no answer", outcome=Outcome.MAYBE_STORED)
    return result
