"""A world with its reward raised to a power, in JAX.

Shapes: D numbers in a state, A forward actions, N states.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.flow import NOTHING, BoundWorld, Enumeration


class Tempered(BoundWorld):
    """A `BoundWorld` whose log-rewards are multiplied by `beta`; everything else is that of `base`."""

    def __init__(self, base: BoundWorld, beta: float):
        self.base, self.beta = base, beta
        self.state_size, self.num_actions, self.max_steps = base.state_size, base.num_actions, base.max_steps
        self.num_inputs, self.below = base.num_inputs, base.below
        self.state_name, self.state_words = base.state_name, base.state_words
        self.min_steps = base.min_steps
        self.num_tokens, self.actions_per_token = base.num_tokens, base.actions_per_token
        self.chart_text, self.chart_axes = base.chart_text, base.chart_axes

    def initial(self) -> jax.Array:
        """int32 [D]: the initial state."""
        return self.base.initial()

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A]: which forward actions are allowed in a state."""
        return self.base.forward_mask(state)

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A − 1]: which actions may have led to a state."""
        return self.base.backward_mask(state)

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """The state after an action; stop does not change it."""
        return self.base.forward(state, action)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """The state before an action; stop does not change it."""
        return self.base.backward(state, action)

    def encode(self, state: jax.Array) -> jax.Array:
        """float32 [F], or int32 [K]: the indices of the active one-hot inputs."""
        return self.base.encode(state)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """float32 []: β times the log-reward."""
        return jnp.float32(self.beta) * self.base.log_reward(state)

    def enumeration(self) -> Enumeration | None:
        """All states, with their rewards under the condition; None if there are too many."""
        return self._enumeration

    @cached_property
    def _enumeration(self) -> Enumeration | None:
        found = self.base.enumeration()
        if found is None:
            return None
        return replace(found, log_rewards=np.where(found.terminal, self.beta * found.log_rewards, NOTHING))

    def target_picture(self, exact: bool) -> np.ndarray | None:
        """float64 [H, W]: the target's figure, if all states are known and the world has one."""
        known = self.enumeration()
        if not exact or known is None:
            return None
        found = self.marginal(jnp.asarray(np.exp(known.log_target), jnp.float32), jnp.asarray(known.states))
        return None if found is None else np.asarray(found, float)

    def marginal(self, p: jax.Array, states: jax.Array) -> jax.Array | None:
        """float32 [H, W]: the figure, from the probability of all states [N] int32 [N, D]; None if there is none."""
        return self.base.marginal(p, states)

    def histogram(self, objects: jax.Array) -> jax.Array | None:
        """float32 [H, W]: the figure of objects [B, D]; None if there is none."""
        return self.base.histogram(objects)
