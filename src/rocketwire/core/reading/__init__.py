"""Reading: pulls, filters, and the queues that a topic should have."""
