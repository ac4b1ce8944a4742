"""Faults: which brokers are slow or gone, and which queue a send takes."""
