"""Sending: from a checked message to a stored one."""
