"""The value learner with memory: a GRU between torso and head, learned from sequences. One agent, pure JAX.

After R2D2 (Kapturowski et al. 2019): a sequence starts from the hidden state that was stored when acting, the first
steps only bring that state up to date (burn-in), and the loss is that of the steps after them. The priority of a
sequence is a mixture of its largest and its mean error.

Shapes: B batch, S transitions of a sequence, T steps of its states, F frames, H hidden numbers, Q fractions,
Z outputs per action, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from xladder.core.types import Params
from xladder.learners.masks import mask_values
from xladder.learners.value import Draws, Passes, Transitions, ValueLearner
from xladder.replay.batch import Sequences


@dataclass(frozen=True)
class RecurrentLearner(ValueLearner):
    """A value learner whose `net` is a `RecurrentNet`, and whose batches are `Sequences`."""

    def draw_update(self, sample_key: jax.Array, noise_key: jax.Array) -> Draws:
        """The random numbers for one update: fractions for every transition of every sequence."""
        c = self.config
        taus = jax.random.uniform(sample_key, (3, c.batch_size * c.sequence, self.fractions))
        return Draws(taus, jax.random.normal(noise_key, (3, self.noise_size)))

    def act(
        self, params: Params, states: jax.Array, hidden: Any, taus: jax.Array | None, noise: Any
    ) -> tuple[jax.Array, Any]:
        """The expected returns of all actions, float32 […, A], and the hidden states after this step, […, H].

        Without hidden states, the states begin an episode.
        """
        seen, mask = self.split_mask(states)
        hidden = self.net.apply({"params": params}, seen, hidden, method="step")
        if self.fractions:
            embedding = self.net.apply({"params": params}, taus, method="embed")
            found: Any = self.net.apply({"params": params}, hidden, embedding, noise, method="mean_of_embedded")
        else:
            found = self.head.expected(self.outputs(params, hidden, None, noise))
        return mask_values(found, mask), hidden

    def values(self, params: Params, states: jax.Array, taus: jax.Array | None, noise: Any) -> jax.Array:
        """float32 […, A]: the expected returns in states that begin an episode."""
        return self.act(params, states, None, taus, noise)[0]

    def outputs(self, params: Params, hidden: jax.Array, taus: jax.Array | None, noise: Any) -> jax.Array:
        """float32 […, Z, A]: the network's outputs for hidden states […, H]."""
        taus = taus if self.fractions else None
        found: Any = self.net.apply({"params": params}, hidden, taus, noise, method="outputs")
        return found

    def passes(self, params: Params, batch: Sequences) -> Passes:
        """A network's passes over the states and the next states of all transitions, [B·S, …]; both share a scan."""
        seen, _ = self.split_mask(batch.states)
        given = seen, batch.hidden, batch.is_first, self.config.burn_in
        hidden: Any = self.net.apply({"params": params}, *given, method="unroll")  # [B, T, H]

        def at(places: jax.Array) -> Callable[..., jax.Array]:
            found = jnp.take_along_axis(hidden, places[:, :, None], axis=1)
            return partial(self.outputs, params, found.reshape(-1, hidden.shape[-1]))

        now = self._places(batch)
        return Passes(at(now), at(now + batch.steps))

    def transitions(self, batch: Sequences) -> Transitions:
        """The transitions of all sequences, leaves [B·S, …]."""
        _, masks = self.split_mask(batch.states)  # [B, T, A]
        now = self._places(batch)

        def mask_at(places: jax.Array) -> jax.Array | None:
            if masks is None:
                return None
            beside = places.reshape(*places.shape, *(1,) * (masks.ndim - places.ndim))
            return flat(jnp.take_along_axis(masks, beside, axis=1))

        def flat(values: jax.Array) -> jax.Array:
            return values.reshape(-1, *values.shape[2:])

        actions, returns, discounts = map(flat, (batch.actions, batch.returns, batch.discounts))
        return Transitions(actions, returns, discounts, mask_at(now), mask_at(now + batch.steps))

    def loss(
        self,
        params: Params,
        target: Params,
        batch: Any,
        taus: jax.Array,
        noise: tuple[Any, Any, Any],
        hyperparams: Any = None,
    ) -> tuple[jax.Array, jax.Array]:
        """The mean loss over all transitions, weighted by `valid`, and the sequences' errors, float32 [B]."""
        losses, errors = self.losses(params, target, batch, taus, noise, hyperparams)
        found = mixed_errors(errors.reshape(batch.valid.shape), batch.valid > 0, self.config.eta)
        return jnp.mean(losses * batch.valid.reshape(-1)), found

    def _places(self, batch: Sequences) -> jax.Array:
        """int32 [B, S]: where the transitions' states are among the steps of their sequences."""
        steps = self.config.burn_in + jnp.arange(batch.steps.shape[1], dtype=jnp.int32)
        return jnp.broadcast_to(steps[None, :], batch.steps.shape)


def mixed_errors(errors: jax.Array, valid: jax.Array, eta: float) -> jax.Array:
    """float32 [B]: η · max |δ| + (1 − η) · mean |δ| over the valid transitions of each sequence, from errors [B, S]."""
    sizes = jnp.where(valid, jnp.abs(errors), 0.0)
    mean = sizes.sum(1) / jnp.maximum(valid.sum(1), 1)
    return eta * sizes.max(1) + (1.0 - eta) * mean
