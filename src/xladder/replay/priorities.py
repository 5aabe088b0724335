"""How likely each row of a `History` is to be replayed: in proportion to its priority (Schaul et al. 2016).

Rows that are no start have priority zero and are never chosen: what is not written, what is about to be overwritten
(its stack is broken), the newest rows (what comes of them is not known yet) and reset rows.

Rows are kept in blocks of about √(N·L), with the sum of each. A choice looks through the sums for a block, then
through the block. Whatever changes, the sums of the blocks it touches are taken anew from their rows, so they never
drift. A block is some times of all envs, since these are written together.

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
    largest: Array  # float32 []: the largest so far, which new rows get, so that each is soon seen


def init(num_envs: int, length: int) -> Priorities:
    """No row can be chosen yet."""
    times = times_per_block(num_envs, length)
    blocks = jnp.zeros((math.ceil(length / times), times, num_envs), jnp.float32)
    return Priorities(blocks, jnp.zeros(blocks.shape[0], jnp.float32), jnp.float32(1))


def times_per_block(num_envs: int, length: int) -> int:
    """T, such that there are about as many blocks as rows in each."""
    return max(1, round(math.sqrt(length / num_envs)))


def admit(window: Window, cursor: Cursor, priorities: Priorities, history: History) -> Priorities:
    """The priorities after a row was added where the cursor points, which is not advanced yet.

    `history` has the row just added.
    """
    times = priorities.blocks.shape[1]
    size = jnp.minimum(cursor.size + 1, window.length)
    # What is known now: n rows follow it. Then the row just written, and those whose stacks it breaks, if it does.
    slots = (cursor.head + jnp.array([-window.n_step, *range(window.stack)])) % window.length  # [F + 1], all distinct
    is_reset = _column(history.is_first, (slots[0] + 1) % window.length)  # [N]
    if window.absences:
        is_reset |= _column(history.terminated, slots[0]) & _column(history.truncated, slots[0])
    new = jnp.where((size > window.n_step) & ~is_reset, priorities.largest, 0.0)
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
    """Uniform numbers float32 [B], made to fall into one of B equal parts each, in order."""
    return (jnp.arange(uniforms.size, dtype=uniforms.dtype) + uniforms) / uniforms.size


def from_errors(errors: jax.Array, alpha: jax.Array, offset: float = 1e-6) -> jax.Array:
    """(|δ| + offset)^α; the offset keeps a row that is predicted perfectly from never being seen again."""
    return (jnp.abs(errors) + offset) ** alpha


def assign(priorities: Priorities, indices: SampleIndices, values: jax.Array) -> Priorities:
    """New priorities, positive float32 [B], for rows that were chosen; of a row chosen twice the larger counts.

    A row that has ceased to be a start meanwhile stays at zero.
    """
    times = priorities.blocks.shape[1]
    place = indices.slot // times, indices.slot % times, indices.env
    values = jnp.where(priorities.blocks[place] > 0, values, 0.0)
    # The order in which XLA writes duplicates is open, so they are given the same value. One write is enough then; with
    # two, what is read here would have to outlive the first, and XLA would copy all blocks.
    row = indices.slot * priorities.blocks.shape[2] + indices.env
    values = jnp.max(jnp.where(row[:, None] == row[None, :], values[None, :], 0.0), axis=1)  # [B, B] -> [B]
    blocks = priorities.blocks.at[place].set(values)
    largest = jnp.maximum(priorities.largest, jnp.max(values))
    return Priorities(blocks, _sum_anew(blocks, priorities.sums, place[0]), largest)


def _column(rows: jax.Array, slot: jax.Array) -> jax.Array:
    """[N]: one time of [N, L]."""
    return jax.lax.dynamic_index_in_dim(rows, slot, axis=1, keepdims=False)


def _sum_anew(blocks: jax.Array, sums: jax.Array, touched: jax.Array) -> jax.Array:
    """float32 [G]: the sums, those of the blocks `touched` (perhaps more than once) taken from their rows."""
    return sums.at[touched].set(jnp.sum(blocks[touched], axis=(1, 2)))


def _find(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """int32 []: a place, in proportion to its weight.

    Running sums are not added up from left to right and may differ by rounding where the weight is zero, so that a
    weight is positive has to be asked for.
    """
    heights = jnp.cumsum(weights)
    positive = weights > 0
    place = jnp.arange(weights.size)
    last = jnp.max(jnp.where(positive, place, 0))  # where rounding leaves nothing above
    return jnp.argmax(positive & (heights > uniform * heights[-1]) | (place == last)).astype(jnp.int32)
