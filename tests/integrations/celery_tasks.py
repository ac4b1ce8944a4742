"""The application that real Celery workers of the tests run; set up by environment variables."""

import json
import os
import sys
import time
from pathlib import Path

from celery import Celery

import rocketwire.integrations.celery  # noqa: F401

app = Celery("tasks", broker=os.environ["TASKS_BROKER"], backend="rpc://")
app.conf.update(
    broker_transport_options=json.loads(os.environ.get("TASKS_OPTIONS", "{}")),
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=int(os.environ.get("TASKS_PREFETCH", "4")),
    accept_content=os.environ.get("TASKS_ACCEPT", "json").split(","),
)
JOURNAL = Path(os.environ.get("TASKS_JOURNAL", os.devnull))


def note(what):
    with JOURNAL.open("a") as file:
        file.write(f"{what} {os.getpid()}\n")


@app.task
def add(one, two):
    return one + two


@app.task(bind=True, max_retries=3)
def stubborn(self):
    note(f"try-{self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(bind=True, acks_late=True)
def slow(self, number, seconds):
    note(f"begin-{number}-{'again' if self.request.delivery_info['redelivered'] else 'first'}")
    time.sleep(seconds)
    note(f"end-{number}")
    return number


@app.task
def remember(number):
    note(f"remember-{number}")


if __name__ == "__main__":
    app.worker_main(sys.argv[1:])
