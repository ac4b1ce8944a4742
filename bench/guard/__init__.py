"""Counts of what a send costs that are the same on a quiet machine and on a busy one."""
