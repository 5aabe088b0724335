"""The processes of a run on several hosts: a rendezvous before it starts, and a health check while it runs.

`jax.distributed` moves the data. It does not say who is missing, takes minutes to notice that a peer has died, and
never notices one that is stuck. So every process keeps one more connection, to host 0, which carries lines of JSON:
first the rendezvous (are all hosts there, with the same settings?), then a heartbeat every second.

The coordinator uses two ports: the given one for this, and the next one for JAX.
"""

from __future__ import annotations

from xladder.distributed.membership import Membership
from xladder.distributed.team import CONCLUDING, Cluster

__all__ = ["CONCLUDING", "Cluster", "Membership", "current", "enter"]

_current: Cluster | None = None


def current() -> Cluster | None:
    """The cluster that this process has joined, or None; global, as in JAX."""
    return _current


def enter(cluster: Cluster) -> None:
    """Make a cluster the current one of this process."""
    global _current
    _current = cluster
