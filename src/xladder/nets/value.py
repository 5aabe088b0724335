"""A value network is a torso, which sees, and a head, which judges. Written for one state; leading axes are a batch.

Shapes: F frames, E features, Q fractions, Z numbers per action, A actions.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax

from xladder.nets.fields import Fields, unflatten
from xladder.nets.heads import Head


class ValueNet(nn.Module):
    """What the return of every action is like."""

    torso: nn.Module
    head: Head
    fields: Fields = ()
    """How a flat frame splits into named parts, for a torso that takes these; nothing if it takes the frame."""

    def __call__(self, states: jax.Array, taus: jax.Array | None = None, noise: Any = None) -> jax.Array:
        """float32 […, Z, A] from states […, F, …]."""
        return self.head(self.torso(self._parts(states)), taus, noise)

    def embed(self, taus: jax.Array) -> jax.Array:
        """float32 […, Q, E]: embedded fractions, which do not depend on the state."""
        return self.head.embed(taus)

    def mean_of_embedded(self, states: jax.Array, embedding: jax.Array, noise: Any = None) -> jax.Array:
        """float32 […, A]: the mean quantiles at embedded fractions, for acting."""
        see = getattr(self.torso, "look_up", self.torso)  # the cheaper way for a few states, where there is one
        return self.head.mean_of_embedded(see(self._parts(states)), embedding, noise)

    def _parts(self, states: jax.Array) -> Any:
        return unflatten(states, self.fields) if self.fields else states
