"""Verification begins when brokers have made readable what they acknowledged."""

import pytest

pytest.importorskip("pyspark")

from rocketwire.spark.pipelines.publish_verify import wait_until_readable


class Broker:
    """Makes messages readable as time passes; the time is its own."""

    def __init__(self, rate, most):
        self.now = 0.0
        self.rate, self.most = rate, most

    def count(self):
        return min(self.most, int(self.now * self.rate))

    def sleep(self, seconds):
        self.now += seconds

    def wait(self, rows):
        wait_until_readable(self.count, rows, clock=lambda: self.now, sleep=self.sleep)


def test_rows_that_are_readable_later_are_waited_for():
    broker = Broker(rate=10, most=1000)
    broker.wait(1000)
    assert broker.count() == 1000


def test_a_broker_that_goes_on_slowly_has_all_the_time_it_needs():
    broker = Broker(rate=0.5, most=60)
    broker.wait(60)
    assert broker.count() == 60
    assert broker.now == pytest.approx(120, abs=1)


def test_rows_that_do_not_come_are_given_up():
    broker = Broker(rate=100, most=70)
    broker.wait(100)
    assert broker.count() == 70
    assert broker.now < 10


def test_nothing_is_waited_for_when_all_is_there():
    broker = Broker(rate=0, most=0)
    broker.wait(0)
    assert broker.now == 0
