"""What the words and figures of the page mean, exactly."""

from __future__ import annotations

from typing import Final

DEFINITIONS: Final = (
    (
        "Send",
        (
            "One call that sends a message or a batch, counted by its first attempt. It failed when no "
            "attempt of it is recorded as acknowledged."
        ),
    ),
    (
        "Acknowledged",
        "The broker answered that it stored the message; a oneway message counts once it is written.",
    ),
    (
        "Latency",
        (
            "From the beginning of an attempt to its answer, or until the producer gave up waiting. "
            "Quantiles are approximate: a rank is off by one in a thousand at most within a step of time, "
            "and by one in ten thousand in tables. Attempts that never left the producer and oneway "
            "messages are not in them."
        ),
    ),
    (
        "Refused, no answer, not sent",
        (
            "The broker answered with an error; the request was written and never answered, so the "
            "message may be stored; the request was not written, so it is not."
        ),
    ),
    (
        "Maybe-duplicate",
        "A send that was stored after an earlier attempt of it that was stored or may have been.",
    ),
    (
        "Left, avoided, isolated",
        (
            "From the moment a producer isolates a broker until it takes it back; isolating it again in "
            "between prolongs it. Without a recorded return it ends at the time told with the isolation, "
            "at the latest with the producer's last record. Times over several producers are those in "
            "which at least one of them avoided the broker."
        ),
    ),
    (
        "Retry",
        "An attempt after the first. It comes from the broker of the attempt before.",
    ),
    (
        "Even share",
        (
            "All acknowledged messages of a topic, divided by the number of its queues that got an "
            "attempt."
        ),
    ),
    (
        "Order within keys",
        (
            "Stored messages of one sharding key and topic from one producer, in the order in which their "
            "answers came; each is compared with the one before it. Backwards: in the same queue, at an "
            "offset that is not behind the earlier one. Overlapping: begun more than 2 ms before the "
            "earlier one was answered. These two are violations. Messages of one key from different "
            "producers have no order and are not compared. A clock that was put back looks like a "
            "violation."
        ),
    ),
    (
        "Dropped, unreadable, foreign",
        (
            "Records that a producer counted but could not write down in time; lines that are no whole "
            "JSON object, have a field of a wrong type or more than 64 KiB; lines that are JSON but no record of a "
            "producer, lack a field, or have an impossible time."
        ),
    ),
)
