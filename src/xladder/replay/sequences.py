"""Sequences of transitions out of a `RecurrentHistory`, with the hidden states that were stored when acting.

A sequence may start at any row and may reach over the end of an episode: the network forgets its state where the next
one begins, and the reset row in between is no transition.

Shapes: B batch, F frames per state, S transitions of a sequence, T steps of its states.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xladder.replay.batch import Sequences
from xladder.replay.history import RecurrentHistory, SampleIndices, Window, look_ahead, stacked


def gather(window: Window, history: RecurrentHistory, indices: SampleIndices, gamma: jax.Array) -> Sequences:
    """The sequences that start at `indices`; their transitions are those of `history.gather`."""
    begin, end = window.burn_in, window.burn_in + window.sequence
    env = indices.env[:, None]
    slots = (indices.slot[:, None] + jnp.arange(window.span + 1)[None, :]) % window.length  # [B, T]
    is_first = history.is_first[env, slots]
    learned = slots[:, begin:end]  # [B, S]
    every = SampleIndices(jnp.broadcast_to(env, learned.shape), learned, indices.valid)
    returns, discounts, steps = look_ahead(window, history, every, gamma)
    usable = ~is_first[:, begin + 1 : end + 1]
    if window.absences:
        usable &= ~(history.terminated[env, learned] & history.truncated[env, learned])
    frames = slots.reshape(-1, 1) + jnp.arange(1 - window.stack, 1)[None, :]  # [B·T, F]
    states = stacked(history, jnp.repeat(indices.env, slots.shape[1]), frames % window.length)
    return Sequences(
        states=states.reshape(*slots.shape, *states.shape[1:]),
        is_first=is_first,
        hidden=history.hidden[indices.env, indices.slot],
        actions=history.actions[env, learned],
        returns=returns,
        discounts=discounts,
        steps=steps,
        valid=indices.valid[:, None] * usable,
    )
