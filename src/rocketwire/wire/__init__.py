"""Bytes into values and back. Pure: no socket, no clock, no thread."""
