"""The processes of one run on several hosts: who they are, that they agree, and that all are still there.

`jax.distributed` carries the numbers. It does not say who is missing, takes minutes to notice a peer that has died, and
never notices one that is stuck. So the processes hold one more connection each, to host 0, on which lines of JSON go:
first a rendezvous (are all there, and do they want the same?), then, once a second, how far each has come.

Two ports of the coordinator are used: the one that is given for this, and the next one for JAX.
"""

from __future__ import annotations

from xladder.distributed.membership import Membership
from xladder.distributed.team import CONCLUDING, Cluster

__all__ = ["CONCLUDING", "Cluster", "Membership", "current", "enter"]

_current: Cluster | None = None


def current() -> Cluster | None:
    """The cluster that this process belongs to, as it belongs to one in JAX."""
    return _current


def enter(cluster: Cluster) -> None:
    """This process belongs to that cluster from now on."""
    global _current
    _current = cluster
