"""A value network with memory: a torso, a GRU (Cho et al. 2014) and a head.

The GRU has the parameters of PyTorch's `GRUCell`: one dense layer for its input and one for its state, each with the
gates reset, update and new side by side.

Shapes: B batch, T steps, F frames, E features of the torso, H numbers of the state, Z numbers per action, A actions.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.nets.affine import affine
from xladder.nets.fields import Fields, unflatten
from xladder.nets.heads import Head
from xladder.nets.initial import symmetric_uniform


class Gates(nn.Module):
    """A dense layer to the three gates of a GRU, with PyTorch's initial distribution."""

    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 […, 3H] from […, in]."""
        init = symmetric_uniform(self.width**-0.5)
        kernel = self.param("kernel", init, (x.shape[-1], 3 * self.width), jnp.float32)
        bias = self.param("bias", init, (3 * self.width,), jnp.float32)
        return affine(x, kernel, bias, self.dtype)


class Gru(nn.Module):
    """A gated recurrent unit."""

    width: int
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """The layers of its input and of its state."""
        self.input, self.state = Gates(self.width, self.dtype), Gates(self.width, self.dtype)

    def gates(self, features: jax.Array) -> jax.Array:
        """float32 […, 3H]: what the input adds to the gates, which does not depend on the state."""
        return self.input(features)

    def advance(self, gates: jax.Array, hidden: jax.Array) -> jax.Array:
        """float32 […, H]: the next state."""
        given, kept = jnp.split(gates, 3, axis=-1), jnp.split(self.state(hidden), 3, axis=-1)
        reset, update = nn.sigmoid(given[0] + kept[0]), nn.sigmoid(given[1] + kept[1])
        new = jnp.tanh(given[2] + reset * kept[2])
        return (1.0 - update) * new + update * hidden


class RecurrentNet(nn.Module):
    """A torso, a GRU and a head: the head sees the GRU's state."""

    torso: nn.Module
    memory: Gru
    head: Head
    fields: Fields = ()
    """How a flat frame splits into named parts, for a torso that takes those; empty if it takes the frame."""
    normaliser: nn.Module | None = None
    """Normalises states before anything else sees them."""

    def __call__(self, states: jax.Array, taus: jax.Array | None = None, noise: Any = None) -> jax.Array:
        """float32 […, Z, A] from states […, F, …] that begin an episode."""
        return self.head(self.step(states), taus, noise)

    def step(self, states: jax.Array, hidden: jax.Array | None = None) -> jax.Array:
        """float32 […, H]: the hidden state after one more step, from states […, F, …] and hidden states […, H].

        Without hidden states, the states begin an episode.
        """
        gates = self.memory.gates(self._features(states))
        if hidden is None:
            hidden = jnp.zeros((*gates.shape[:-1], self.memory.width), jnp.float32)
        return self.memory.advance(gates, hidden)

    def unroll(self, states: jax.Array, hidden: jax.Array, is_first: jax.Array, burn_in: int) -> jax.Array:
        """float32 [B, T, H]: the state after every step, from states [B, T, F, …] and the state before them [B, H].

        Where an episode begins, bool [B, T], the state is forgotten. No gradient flows through the first `burn_in`
        steps: they only prepare the state.
        """
        gates = jnp.moveaxis(self.memory.gates(self._features(states)), 1, 0)  # [T, B, 3H]
        forgotten = jnp.moveaxis(is_first, 1, 0)

        def advance(memory: Gru, hidden: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            gates, forgotten = given
            hidden = memory.advance(gates, jnp.where(forgotten[:, None], 0.0, hidden))
            return hidden, hidden

        scan = nn.scan(advance, variable_broadcast="params", split_rngs={"params": False})
        found = []
        if burn_in:
            hidden, early = scan(self.memory, hidden, (gates[:burn_in], forgotten[:burn_in]))
            hidden, early = jax.lax.stop_gradient((hidden, early))
            found.append(early)
        found.append(scan(self.memory, hidden, (gates[burn_in:], forgotten[burn_in:]))[1])
        return jnp.moveaxis(jnp.concatenate(found), 0, 1)

    def outputs(self, hidden: jax.Array, taus: jax.Array | None = None, noise: Any = None) -> jax.Array:
        """float32 […, Z, A] from hidden states […, H]."""
        return self.head(hidden, taus, noise)

    def mean_of_embedded(self, hidden: jax.Array, embedding: jax.Array, noise: Any = None) -> jax.Array:
        """float32 […, A]: the mean quantiles at embedded fractions, for acting, from hidden states […, H]."""
        return self.head.mean_of_embedded(hidden, embedding, noise)

    def embed(self, taus: jax.Array) -> jax.Array:
        """float32 […, Q, H]: embedded fractions, which do not depend on the state."""
        return self.head.embed(taus)

    def _features(self, states: jax.Array) -> jax.Array:
        if self.normaliser is not None:
            states = self.normaliser(states)
        return self.torso(unflatten(states, self.fields) if self.fields else states)
