"""Prometheus: the numbers of producers and consumers, and of a whole cluster.

Needs the extra ``rocketwire[prometheus]``.
"""

from __future__ import annotations

from rocketwire.integrations.extras import needs

needs("prometheus", "prometheus_client")

from rocketwire.integrations.prometheus.cluster import ClusterCollector
from rocketwire.integrations.prometheus.collector import Collector

__all__ = ["ClusterCollector", "Collector"]
