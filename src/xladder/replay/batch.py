"""The batch of transitions that a learner takes, from any kind of replay memory.

Shapes: B batch, F frames per state.
"""

from typing import NamedTuple

from xladder.core.types import Array


class Batch(NamedTuple):
    """B transitions; JAX arrays inside a program, NumPy arrays on the host."""

    states: Array  # [B, F, …]
    actions: Array  # int8 or int32 [B]
    returns: Array  # float32 [B]: discounted sum of n rewards
    discounts: Array  # float32 [B]: γⁿ, or 0 after a terminal step
    next_states: Array  # [B, F, …]
    valid: Array  # float32 [B]: the weight of each transition, 0 for invalid ones
