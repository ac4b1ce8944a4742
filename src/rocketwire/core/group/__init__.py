"""Consumer groups: members, their queues and offsets, and what becomes of each message."""
