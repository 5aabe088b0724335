"""The batches that a learner takes, from any kind of replay memory; JAX arrays inside a program, NumPy on the host.

Shapes: B batch, F frames per state, S transitions of a sequence, T steps of its states, H hidden numbers.
"""

from typing import NamedTuple

from xladder.core.types import Array


class Batch(NamedTuple):
    """B transitions."""

    states: Array  # [B, F, …]
    actions: Array  # int8 or int32 [B], or [B, team]
    returns: Array  # float32 [B]: discounted sum of n rewards
    discounts: Array  # float32 [B]: γⁿ, or 0 after a terminal step
    next_states: Array  # [B, F, …]
    valid: Array  # float32 [B]: the weight of each transition, 0 for invalid ones


class Sequences(NamedTuple):
    """B sequences of S transitions, for a network with memory.

    The states begin with those of the burn-in, then come those of the transitions, then n more to bootstrap from.
    """

    states: Array  # [B, T, F, …]
    is_first: Array  # bool [B, T]: whether a state begins an episode
    hidden: Array  # float32 [B, H]: the network's state before the first of them, as it was when it acted
    actions: Array  # int8 or int32 [B, S], or [B, S, team]
    returns: Array  # float32 [B, S]: discounted sum of n rewards
    discounts: Array  # float32 [B, S]: γⁿ, or 0 after a terminal step
    steps: Array  # int32 [B, S]: how many steps after a transition's state its next state comes
    valid: Array  # float32 [B, S]: the weight of each transition, 0 for invalid ones
