"""Who shares the work of one run. Usually nobody does: then every function here gives back what it was given.

A rung that lays one learner over several devices has data parallelism of another kind (`rungs/mesh.py`). Learners and
programs do not know which: they take their share of what is drawn for all, and put together what all have found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataParallel:
    """Data parallelism over one device: nothing is shared."""

    size: int = 1

    def local(self, tree: Any, axis: int = 0) -> Any:
        """This one's part of what is for all, cut evenly along an axis."""
        return tree

    def mean(self, tree: Any) -> Any:
        """The mean over what each has."""
        return tree

    def add(self, tree: Any) -> Any:
        """The sum over what each has."""
        return tree

    def gather(self, tree: Any) -> Any:
        """What each has, one after another along the first axis: the inverse of `local`."""
        return tree


SINGLE = DataParallel()
