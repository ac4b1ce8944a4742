"""Decisions: what to send where, when to retry, which broker to trust. No input or output."""
