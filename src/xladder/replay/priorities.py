"""Priorities of the rows of a `History`, for prioritised replay (Schaul et al. 2016).

Rows at which no sample can start have priority zero and are never drawn: unwritten rows, rows whose frame stacks are
partly overwritten, the newest rows (their sample is not complete yet) and reset rows.

Rows are kept in blocks of about √(N·L), with the sum of each. Sampling searches the sums for a block, then the block
for a row. After any change the sums of the touched blocks are recomputed from their rows, so they never drift. A block
covers some time steps of all envs, since these are written together.

Shapes: N envs, L rows per env, G blocks of T times each, B batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xladder.core.types import Array
from xladder.replay.history import Cursor, History, SampleIndices, Window


class Priorities(NamedTuple):
    """Priorities, already raised to the power of alpha. The row in slot s is at [s // T, s % T]; G·T may exceed L."""

    blocks: Array  # float32 [G, T, N]
    sums: Array  # float32 [G]
    largest: Array  # float32 []: the largest so far, given to new rows so that each is sampled soon


def init(num_envs: int, length: int) -> Priorities:
    """Priorities of an empty memory: all zero."""
    times = times_per_block(num_envs, length)
    blocks = jnp.zeros((math.ceil(length / times), times, num_envs), jnp.float32)
    return Priorities(blocks, jnp.zeros(blocks.shape[0], jnp.float32), jnp.float32(1))


def times_per_block(num_envs: int, length: int) -> int:
    """T, chosen so that there are about as many blocks as rows per block."""
    return max(1, round(math.sqrt(length / num_envs)))


def admit(window: Window, cursor: Cursor, priorities: Priorities, history: History) -> Priorities:
    """The priorities after a row was added at the cursor, which is not advanced yet.

    `history` contains the new row.
    """
    times = priorities.blocks.shape[1]
    size = jnp.minimum(cursor.size + 1, window.length)
    # The row that now has its whole sample after it, then the new row, and the rows whose stacks it breaks, if any.
    slots = (cursor.head + jnp.array([-window.span, *range(window.stack)])) % window.length  # [F + 1], all distinct
    is_reset = _column(history.is_first, (slots[0] + 1) % window.length)  # [N]
    if window.absences:
        is_reset |= _column(history.terminated, slots[0]) & _column(history.truncated, slots[0])
    new = jnp.where((size > window.span) & ~is_reset, priorities.largest, 0.0)
    broken = jnp.where(size < window.length, priorities.blocks[slots[1:] // times, slots[1:] % times], 0.0)  # [F, N]
    values = jnp.concatenate([new[None], broken.at[0].set(0.0)])
    blocks = priorities.blocks.at[slots // times, slots % times].set(values)
    return priorities._replace(blocks=blocks, sums=_sum_anew(blocks, priorities.sums, slots // times))


def sample_indices(priorities: Priorities, uniforms: jax.Array, beta: jax.Array) -> SampleIndices:
    """Starts in proportion to their priorities, with replacement, from uniform numbers float32 [B, 2].

    The first number finds the block and may be `stratified`; the second finds the row in it. `valid` is the importance
    weight (1 / (C·P))^β of each, C the number of starts and P its probability, divided by the batch's largest. All are
    zero if there is no start.
    """
    _, times, num_envs = priorities.blocks.shape
    block = jax.vmap(_find, in_axes=(None, 0))(priorities.sums, uniforms[:, 0])  # [B]
    rows = priorities.blocks[block].reshape(-1, times * num_envs)  # [B, T·N]
    row = jax.vmap(_find)(rows, uniforms[:, 1])
    priority = jnp.take_along_axis(rows, row[:, None], axis=1)[:, 0]
    # C and the sum of all priorities are the same for the whole batch and cancel.
    weight = (jnp.min(priority) / jnp.where(priority > 0, priority, 1.0)) ** beta
    weight = jnp.where(priority > 0, weight, 0.0)
    return SampleIndices(env=row % num_envs, slot=block * times + row // num_envs, valid=weight)


def stratified(uniforms: jax.Array) -> jax.Array:
    """Stratify uniform numbers float32 [B]: the i-th falls into the i-th of B equal intervals."""
    return (jnp.arange(uniforms.size, dtype=uniforms.dtype) + uniforms) / uniforms.size


def from_errors(errors: jax.Array, alpha: jax.Array, offset: float = 1e-6) -> jax.Array:
    """(|δ| + offset)^α; the offset keeps perfectly predicted rows from never being sampled again."""
    return (jnp.abs(errors) + offset) ** alpha


def assign(priorities: Priorities, indices: SampleIndices, values: jax.Array) -> Priorities:
    """Set new priorities, positive float32 [B], of sampled rows; for duplicates the larger one counts.

    A row that is no longer a possible start stays at zero.
    """
    times = priorities.blocks.shape[1]
    place = indices.slot // times, indices.slot % times, indices.env
    values = jnp.where(priorities.blocks[place] > 0, values, 0.0)
    # XLA writes duplicates in no defined order, so they get the same value. Then one write is enough; with two, the
    # values read here would have to outlive the first, and XLA would copy all blocks.
    row = indices.slot * priorities.blocks.shape[2] + indices.env
    values = jnp.max(jnp.where(row[:, None] == row[None, :], values[None, :], 0.0), axis=1)  # [B, B] -> [B]
    blocks = priorities.blocks.at[place].set(values)
    largest = jnp.maximum(priorities.largest, jnp.max(values))
    return Priorities(blocks, _sum_anew(blocks, priorities.sums, place[0]), largest)


def _column(rows: jax.Array, slot: jax.Array) -> jax.Array:
    """[N]: one time step of [N, L]."""
    return jax.lax.dynamic_index_in_dim(rows, slot, axis=1, keepdims=False)


def _sum_anew(blocks: jax.Array, sums: jax.Array, touched: jax.Array) -> jax.Array:
    """float32 [G]: the sums, with those of the blocks `touched` (duplicates allowed) recomputed from their rows."""
    return sums.at[touched].set(jnp.sum(blocks[touched], axis=(1, 2)))


def _find(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """int32 []: an index, sampled in proportion to its weight.

    XLA does not add running sums from left to right, so they may change by rounding where the weight is zero: positive
    weights have to be required explicitly.
    """
    heights = jnp.cumsum(weights)
    positive = weights > 0
    place = jnp.arange(weights.size)
    last = jnp.max(jnp.where(positive, place, 0))  # if rounding leaves no running sum above
    return jnp.argmax(positive & (heights > uniform * heights[-1]) | (place == last)).astype(jnp.int32)
