"""A RocketMQ cluster inside this process: for the first five minutes, and for tests."""

from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.embedded.control import BrokerHandle, ServerHandle
from rocketwire.embedded.faults import Fault, FaultKind, FaultPlan
from rocketwire.embedded.journal import Journal, JournalEntry
from rocketwire.embedded.options import BrokerOptions
from rocketwire.embedded.process import run_broker
from rocketwire.embedded.store import StoreSizes

__all__ = [
    "BrokerHandle",
    "BrokerOptions",
    "EmbeddedCluster",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "Journal",
    "JournalEntry",
    "ServerHandle",
    "StoreSizes",
    "run_broker",
]
