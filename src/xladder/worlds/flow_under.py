"""A world under a condition, in JAX: the same objects, with the reward raised to a power or several rewards weighted.

Shapes: D numbers in a state, A forward actions, N states, K reward terms.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.flow import AT_ONCE, NOTHING, BoundWorld, Enumeration
from xladder.worlds.flow_jitted import JittedHost
from xladder.worlds.flow_states import best_objects

SMALLEST = 1e-30  # weight of a reward whose logarithm is taken


def log_reward_under(world: BoundWorld, scalarisation: str, state: jax.Array, condition: jax.Array) -> jax.Array:
    """float32 []: log-reward of a state int32 [D] under a condition, an exponent [] or weights [K] of its terms."""
    if condition.ndim == 0:
        return condition * world.log_reward(state)
    return scalarise(world.log_terms(state), condition, scalarisation)


def scalarise(log_terms: jax.Array, weights: jax.Array, scalarisation: str) -> jax.Array:
    """float32 [] from the logarithms of rewards [K] and their weights [K]: log Σ w_k R_k, or log Π R_k^w_k."""
    if scalarisation == "product":
        return (weights * log_terms).sum()
    return jax.nn.logsumexp(log_terms + jnp.log(jnp.maximum(weights, SMALLEST)))


class Conditioned(BoundWorld):
    """A `BoundWorld` with other rewards; everything else is that of `base`."""

    def __init__(self, base: BoundWorld, condition: float | tuple[float, ...], scalarisation: str = "sum"):
        self.base, self.condition, self.scalarisation = base, np.array(condition, np.float32), scalarisation
        self.weighted = isinstance(condition, tuple)
        self._exponent = 1.0 if isinstance(condition, tuple) else condition
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
        """float32 []: the log-reward under the condition."""
        return log_reward_under(self.base, self.scalarisation, state, jnp.asarray(self.condition))

    def table(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Columns [B] that describe states int32 [B, D], as in `base`."""
        return dict(self.base.table(states))

    def image(self, state: np.ndarray) -> np.ndarray | None:
        """float [H, W]: a picture of an object int32 [D], as in `base`."""
        return self.base.image(state)

    def enumeration(self) -> Enumeration | None:
        """All states, with their rewards under the condition; None if there are too many."""
        return self._enumeration

    @cached_property
    def _enumeration(self) -> Enumeration | None:
        found = self.base.enumeration()
        if found is None:
            return None
        if not self.weighted:
            return replace(found, log_rewards=np.where(found.terminal, self._exponent * found.log_rewards, NOTHING))
        log_rewards = np.full(len(found.states), NOTHING)
        with jax.ensure_compile_time_eval():
            host, objects = JittedHost(self), np.flatnonzero(found.terminal)
            for begin in range(0, len(objects), AT_ONCE):
                part = objects[begin : begin + AT_ONCE]
                log_rewards[part] = host.log_reward(found.states[part])
        return replace(found, log_rewards=log_rewards, modes=best_objects(log_rewards, found.terminal))

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
