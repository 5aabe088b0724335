"""A value network: a torso followed by a head. Written for one state; leading axes are batch axes.

Shapes: F frames, E features, Q fractions, Z numbers per action, A actions.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax

from xladder.nets.fields import Fields, unflatten
from xladder.nets.heads import Head


class ValueNet(nn.Module):
    """A torso and a head: from states to outputs that describe the return of every action."""

    torso: nn.Module
    head: Head
    fields: Fields = ()
    """How a flat frame splits into named parts, for a torso that takes those; empty if it takes the frame."""
    normaliser: nn.Module | None = None
    """Normalises states before anything else sees them."""

    def __call__(self, states: jax.Array, taus: jax.Array | None = None, noise: Any = None) -> jax.Array:
        """float32 […, Z, A] from states […, F, …]."""
        return self.head(self.torso(self._parts(states)), taus, noise)

    def embed(self, taus: jax.Array) -> jax.Array:
        """[…, Q, E]: embedded fractions, which do not depend on the state."""
        return self.head.embed(taus)

    def mean_of_embedded(self, states: jax.Array, embedding: jax.Array, noise: Any = None) -> jax.Array:
        """float32 […, A]: the mean quantiles at embedded fractions, for acting."""
        torso = getattr(self.torso, "look_up", self.torso)  # cheaper for few states, if the torso has it
        return self.head.mean_of_embedded(torso(self._parts(states)), embedding, noise)

    def mean_of_features(self, features: jax.Array, embedding: jax.Array) -> jax.Array:
        """The same from what the torso makes of a state, float32 […, E]."""
        return self.head.mean_of_embedded(features, embedding)

    def _parts(self, states: jax.Array) -> Any:
        if self.normaliser is not None:
            states = self.normaliser(states)
        return unflatten(states, self.fields) if self.fields else states
