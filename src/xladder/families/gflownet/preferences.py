"""Weights of several reward terms, given to a sampler as its condition. In NumPy: imports nothing heavy.

"Multi-Objective GFlowNets" (Jain et al. 2023): the weights w of K rewards are drawn from a Dirichlet distribution while
training, with α = 1 as in their code, and one network samples objects in proportion to Σ w_k R_k, or Π R_k^w_k, for all
of them. Their code encodes each weight by itself, as a thermometer. Here functions of the weights are interpolated
linearly between knots on a lattice of the simplex, as those of an exponent are between knots of its range.

Shapes: K terms, N knots.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np

from xladder.errors import UsageError

STEPS = {2: 15, 3: 7, 4: 5}  # number of terms → steps of the lattice along an edge: 16, 36 and 56 knots
MOST_TERMS = max(STEPS)
ROUNDING = 2e-3  # by which the sum of weights may differ from 1: three thirds may be typed as 0.333


@lru_cache(maxsize=8)
def lattice(terms: int) -> np.ndarray:
    """float32 [N, K − 1]: the knots. A place on the lattice is w_1, w_1 + w_2, … times the number of steps."""
    steps = STEPS[terms]
    knots = np.array(list(combinations_with_replacement(range(steps + 1), terms - 1)), np.float32)
    knots.flags.writeable = False  # it is shared
    return knots


def place(weights: np.ndarray) -> np.ndarray:
    """float32 […, K − 1]: where weights […, K] lie on the lattice."""
    return (np.cumsum(weights, -1)[..., :-1] * STEPS[weights.shape[-1]]).astype(np.float32)


def judged(terms: int) -> tuple[tuple[float, ...], ...]:
    """The weights at which a sampler is evaluated: every term alone, and equal ones in the middle of the list."""
    alone = [tuple(float(k == j) for j in range(terms)) for k in range(terms)]
    alone.insert((terms + 1) // 2, (1 / terms,) * terms)
    return tuple(alone)


def check(weights: Sequence[float], terms: int) -> None:
    """Raise a `UsageError` unless there is a weight for each term, none is negative, and they add up to one."""
    shown = ", ".join(f"{weight:g}" for weight in weights)
    if len(weights) != terms:
        example = ",".join([f"{1 / terms:.3g}"] * terms)
        raise UsageError(f"The condition is {shown}, but this sampler needs {terms} weights, such as {example}.")
    if not all(weight >= 0 for weight in weights):
        raise UsageError(f"The weights are {shown}, but a weight has to be a number, and cannot be negative.")
    if not abs(sum(weights) - 1) <= ROUNDING:
        raise UsageError(f"The weights are {shown}, which add up to {sum(weights):g}, but they have to add up to 1.")
