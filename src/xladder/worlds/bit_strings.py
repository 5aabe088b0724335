"""Bit strings, filled in at any position: the smallest world in which only complete objects may stop.

A state has a digit for each position: 0 empty, 1 for a zero, 2 for a one. Action `2·i + b` writes bit b at position i.
Rewards are high near a few hidden strings, as in the bit sequences of Malkin et al. 2022.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.flow import FlowWorld


class BitStrings(FlowWorld):
    """Strings of `length` bits; log R = −β · (Hamming distance to the nearest hidden string)."""

    def __init__(self, length: int = 8, hidden: int = 4, beta: float = 1.5, seed: int = 0):
        self.length, self.beta = length, beta
        self.num_actions, self.max_steps, self.num_inputs = 2 * length + 1, length + 1, 3 * length
        self.hidden = 1 + np.random.default_rng(seed).integers(0, 2, (hidden, length), dtype=np.int32)

    def initial(self) -> jax.Array:
        """The empty string."""
        return jnp.zeros(self.length, jnp.int32)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """Any empty position may be written; a full string has to stop."""
        return jnp.append(jnp.repeat(state == 0, 2), (state > 0).all())

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """Any written bit may have been written last."""
        return (state[:, None] == jnp.array([1, 2])[None, :]).reshape(-1)

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Write a bit."""
        return state.at[action // 2].set(1 + action % 2)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Erase a bit."""
        return state.at[action // 2].set(0)

    def encode(self, state: jax.Array) -> jax.Array:
        """One-hot over three values per position."""
        return state + 3 * jnp.arange(self.length)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """−β per bit that differs from the nearest hidden string."""
        distances = (jnp.asarray(self.hidden) != state[None, :]).sum(1)
        return -self.beta * distances.min()
