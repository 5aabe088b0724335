"""One level of a parity check: the difference between two sides, and its tolerance."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from xladder.core.types import Params


class Level(NamedTuple):
    """The result of one level."""

    level: str
    max_abs_diff: float
    tolerance: float
    passed: bool


def compare(name: str, share: float, ours: Any, theirs: Any) -> Level:
    """Compare two trees of the same structure; reports the array that is furthest from passing.

    Args:
        name: name of the level.
        share: tolerance relative to the largest number of each array.
        ours: JAX's arrays.
        theirs: the twin's.
    """
    worst, excess = (0.0, 0.0), -1.0
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        whole = not np.issubdtype(b.dtype, np.floating)
        a, b = a.astype(np.float64), b.astype(np.float64)
        difference = float(np.max(np.abs(a - b), initial=0.0)) if a.shape == b.shape else np.inf
        if not np.all(np.isfinite(b)) or np.isnan(difference):
            difference, b = np.inf, np.zeros(1)  # NaN is never equal, even if both sides have it
        allowed = 0.0 if whole else float(share * np.max(np.abs(b), initial=0.0))
        ratio = difference / allowed if allowed else np.inf if difference else 0.0
        if ratio > excess:
            worst, excess = (difference, allowed), ratio
    return Level(name, *worst, passed=excess <= 1.0)


def as_vector(tree: Params) -> np.ndarray:
    """All numbers of a tree as one array, to be compared with one tolerance."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
