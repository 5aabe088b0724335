"""Transitions packed for sending between processes: frames that both states share are stored once.

Two stacks of four frames that are one step apart have five distinct frames. They are read from the memory at once and
sent without another copy; the learner's program unpacks them.

Shapes: B batch, F frames per state, n steps, W = min(F + n, 2 F).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from xladder.core.types import Array
from xladder.replay.batch import Batch
from xladder.replay.history import SampleIndices, Window, mask_before_reset
from xladder.replay.history_host import HostHistory
from xladder.replay.priorities_host import weights


class PackedTrajectories(NamedTuple):
    """B packed transitions; fields with the same name as in `Batch` are the same."""

    frames: Array  # [B, W, *frame]: the state's frames, then the further ones of the next state
    is_first: Array  # bool [B, W]: whether an episode begins there
    later: Array  # int32 [B]: the index at which the next state begins
    actions: Array  # int8 or int32 [B]
    returns: Array  # float32 [B]
    discounts: Array  # float32 [B]
    valid: Array  # float32 [B]


def gather(memory: HostHistory, indices: SampleIndices, gamma: float) -> PackedTrajectories:
    """Gather the transitions that start at `indices`."""
    window, rows = memory.window, memory.rows
    returns, discounts, steps = memory.look_ahead(indices, gamma)
    if window.n_step < window.stack:
        slots, later = indices.slot[:, None] + np.arange(1 - window.stack, window.n_step + 1), steps
    else:
        now = indices.slot[:, None] + np.arange(1 - window.stack, 1)
        slots, later = np.concatenate([now, now + steps[:, None]], axis=1), np.full_like(steps, window.stack)
    place = indices.env[:, None], slots % window.length
    columns = rows.actions[indices.env, indices.slot], returns, discounts, indices.valid
    return PackedTrajectories(rows.frames[place], rows.is_first[place], later.astype(np.int32), *columns)


def batch_of(packed: PackedTrajectories, stack: int) -> Batch:
    """Unpack the transitions, inside a program."""
    states = mask_before_reset(packed.frames[:, :stack], packed.is_first[:, :stack])

    def behind(frames: jax.Array, later: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(frames, later, stack)

    next_states = mask_before_reset(*(jax.vmap(behind)(x, packed.later) for x in (packed.frames, packed.is_first)))
    return Batch(states, packed.actions, packed.returns, packed.discounts, next_states, packed.valid)


def nothing(window: Window, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> PackedTrajectories:
    """`rows` transitions of the right shapes with zero weights."""
    short = HostHistory(1, Window(window.stack, window.n_step, window.stack + window.n_step), shape, dtype)
    return gather(short, short.sample_indices(np.zeros((rows, 1, 2), np.float32)), 0.0)


def weighted(packed: PackedTrajectories, probability: np.ndarray, updates: int, beta: float) -> PackedTrajectories:
    """The transitions of several updates with importance weights from their sampling probabilities."""
    each = probability.reshape(updates, -1)
    return packed._replace(valid=np.concatenate([weights(one, beta) for one in each]))


def placed(parts: list[tuple[np.ndarray, PackedTrajectories]], rows: int) -> PackedTrajectories:
    """Assemble `rows` transitions from parts, given the positions of each."""
    if len(parts) == 1 and len(parts[0][0]) == rows:
        return parts[0][1]
    make = np.empty if sum(len(place) for place, _ in parts) == rows else np.zeros
    whole = PackedTrajectories(*(make((rows, *column.shape[1:]), column.dtype) for column in parts[0][1]))
    for place, part in parts:
        for column, theirs in zip(whole, part, strict=True):
            column[place] = theirs
    return whole
