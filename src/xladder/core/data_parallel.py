"""Data parallelism over one device: every function here returns its argument.

A rung that spreads one learner over several devices replaces it (`rungs/mesh.py`). Learners and programs work with
either: they take the local part of the random numbers and batches, and combine gradients and results over devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataParallel:
    """Data parallelism over a single device."""

    size: int = 1

    def local(self, tree: Any, axis: int = 0) -> Any:
        """This device's part of a global tree, split evenly along an axis."""
        return tree

    def mean(self, tree: Any) -> Any:
        """The mean over devices."""
        return tree

    def add(self, tree: Any) -> Any:
        """The sum over devices."""
        return tree

    def gather(self, tree: Any) -> Any:
        """All devices' parts, concatenated along the first axis: the inverse of `local`."""
        return tree


SINGLE = DataParallel()
