"""Decisions: what to send where, when to retry, whom to trust. No input or output."""
