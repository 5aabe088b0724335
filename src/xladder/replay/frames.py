"""A ring buffer of single frames; stacked states are gathered when a batch is drawn. Pure JAX, one agent.

It reproduces sorrel's memory with its quirks: an epoch begins by skipping `n_frames − 1` slots without clearing them,
and a window may reach across such a gap, across an epoch's end or across the write head. With n-step returns (n > 1,
not in the original), windows whose rewards would cross one of these are marked invalid instead.

The write position does not depend on the data, so `Cursor` is separate from `FrameRing` and shared by all agents and
seeds: their writes stay slices instead of becoming scatters.

Shapes: C capacity, F frames per state, V numbers per frame, B batch, T new frames.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xladder.replay.batch import Batch


class Cursor(NamedTuple):
    """The write position, and the number of stored frames."""

    head: jax.Array  # int32 []
    size: jax.Array  # int32 []


class FrameRing(NamedTuple):
    """The frames of one agent."""

    frames: jax.Array  # int8 [C, V]
    actions: jax.Array  # int8 [C]
    rewards: jax.Array  # float32 [C]
    dones: jax.Array  # bool [C]
    breaks: jax.Array  # bool [C]: this frame does not follow the one before it


def init(capacity: int, cells: int) -> FrameRing:
    """An empty ring."""
    return FrameRing(
        frames=jnp.zeros((capacity, cells), jnp.int8),
        actions=jnp.zeros((capacity,), jnp.int8),
        rewards=jnp.zeros((capacity,), jnp.float32),
        dones=jnp.zeros((capacity,), bool),
        breaks=jnp.zeros((capacity,), bool),
    )


def init_cursor() -> Cursor:
    """The cursor of an empty ring."""
    return Cursor(jnp.int32(0), jnp.int32(0))


def mark_break(cursor: Cursor, ring: FrameRing) -> FrameRing:
    """Mark the slot where one epoch ends and the next begins; call before `skip`."""
    return ring._replace(breaks=ring.breaks.at[cursor.head].set(True))


def skip(cursor: Cursor, capacity: int, n_frames: int) -> Cursor:
    """The cursor at an epoch's start: `n_frames − 1` slots further on, of which one counts as stored."""
    return Cursor((cursor.head + n_frames - 1) % capacity, jnp.minimum(cursor.size + 1, capacity))


def recent(cursor: Cursor, ring: FrameRing, n_frames: int) -> jax.Array:
    """int8 [F − 1, V]: the frames before the cursor, oldest first."""
    slots = (cursor.head + jnp.arange(1 - n_frames, 0)) % ring.dones.size
    return ring.frames[slots]


def add(cursor: Cursor, ring: FrameRing, new: FrameRing) -> FrameRing:
    """Write T consecutive frames, `new` with leaves [T, …]; at most the last C of them are kept."""
    capacity, count = ring.dones.size, new.dones.size
    kept = min(count, capacity)
    slots = (cursor.head + jnp.arange(count - kept, count)) % capacity
    return jax.tree.map(lambda old, rows: old.at[slots].set(rows[count - kept :]), ring, new)


def advance(cursor: Cursor, capacity: int, count: int) -> Cursor:
    """The cursor after `count` frames."""
    return Cursor((cursor.head + count) % capacity, jnp.minimum(cursor.size + count, capacity))


def can_sample(cursor: Cursor, batch_size: int, n_frames: int, n_step: int) -> jax.Array:
    """bool []: whether a batch can be drawn without replacement."""
    return cursor.size >= batch_size + n_frames + n_step


def sample_indices(cursor: Cursor, scores: jax.Array, batch_size: int, n_frames: int, n_step: int) -> jax.Array:
    """int32 [B]: window starts, sampled without replacement by random scores of all slots, float32 [C]."""
    limit = jnp.maximum(1, cursor.size - n_frames - n_step)
    allowed = jnp.arange(scores.size) < limit
    return jax.lax.top_k(jnp.where(allowed, scores, -1.0), batch_size)[1]


def gather(cursor: Cursor, ring: FrameRing, starts: jax.Array, gamma: jax.Array, n_frames: int, n_step: int) -> Batch:
    """The transitions whose state windows begin at `starts`, int32 [B]."""
    slots = starts[:, None] + jnp.arange(n_frames + n_step)[None, :]  # [B, F + n]
    slots = slots % ring.dones.size
    frames = ring.frames[slots]
    dones = ring.dones[slots]
    last = n_frames - 1  # the step whose action is learned from
    returns = jnp.zeros(starts.shape, jnp.float32)
    discounts = jnp.ones(starts.shape, jnp.float32)
    for step in range(last, last + n_step):
        returns = returns + discounts * ring.rewards[slots[:, step]]
        discounts = discounts * jnp.where(dones[:, step], 0.0, gamma)
    valid = ~jnp.any(dones[:, :last], axis=1)
    if n_step > 1:
        after = slots[:, last + 1 :]
        valid &= ~jnp.any(ring.breaks[after] | (after == cursor.head), axis=1)
    return Batch(
        states=frames[:, :n_frames],
        actions=ring.actions[slots[:, last]],
        returns=returns,
        discounts=discounts,
        next_states=frames[:, n_step:],
        valid=valid.astype(jnp.float32),
    )
