"""Sequences of transitions out of a `HostHistory` with hidden states, in NumPy: the twin of `sequences.py`.

Shapes: B batch, F frames per state, S transitions of a sequence, T steps of its states.
"""

from __future__ import annotations

import numpy as np

from xladder.replay.batch import Sequences
from xladder.replay.history import SampleIndices
from xladder.replay.history_host import HostHistory


def gather(memory: HostHistory, indices: SampleIndices, gamma: float) -> Sequences:
    """The sequences that start at `indices`."""
    window, rows = memory.window, memory.rows
    slots = (indices.slot[:, None] + np.arange(window.span + 1)) % window.length  # [B, T]
    env = np.broadcast_to(indices.env[:, None], slots.shape)
    learned = slice(window.burn_in, window.burn_in + window.sequence)
    places = env[:, learned], slots[:, learned]  # [B, S] each
    returns, discounts, steps = memory.look_ahead(SampleIndices(*places, indices.valid), gamma)
    ends = rows.is_first[places[0], (places[1] + 1) % window.length]
    if window.absences:
        ends = ends | (rows.terminated[places] & rows.truncated[places])
    states = memory.states(env.reshape(-1), slots.reshape(-1))
    return Sequences(
        states=states.reshape(*slots.shape, *states.shape[1:]),
        is_first=rows.is_first[env, slots],
        hidden=rows.hidden[indices.env, indices.slot],
        actions=rows.actions[places],
        returns=returns,
        discounts=discounts,
        steps=steps.astype(np.int32),
        valid=(indices.valid[:, None] * ~ends).astype(np.float32),
    )
