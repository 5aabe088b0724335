"""A replay memory of objects, the final states of trajectories, and their rewards. A ring of fixed size.

Shapes: C slots, D numbers in an object, B objects.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Objects(NamedTuple):
    """The memory; slots that were never written are zero."""

    states: jax.Array  # int32 [C, D]
    log_rewards: jax.Array  # float32 [C]
    added: jax.Array  # int32 []: objects added so far; once full, C plus the next slot (C in a diverse memory)


def init(capacity: int, size: int) -> Objects:
    """An empty memory."""
    return Objects(jnp.zeros((capacity, size), jnp.int32), jnp.zeros(capacity, jnp.float32), jnp.int32(0))


def add(memory: Objects, states: jax.Array, log_rewards: jax.Array) -> Objects:
    """Add objects [B, D], overwriting the oldest. Of more than C only the last C are kept."""
    capacity, count = memory.log_rewards.size, log_rewards.size
    skip = max(count - capacity, 0)
    slots = (memory.added + jnp.arange(skip, count)) % capacity
    total = memory.added + count
    return Objects(
        memory.states.at[slots].set(states[skip:]),
        memory.log_rewards.at[slots].set(log_rewards[skip:]),
        # A plain count would overflow; only the next slot and whether the ring is full matter.
        jnp.where(total >= capacity, capacity + total % capacity, total),
    )


def add_diverse(memory: Objects, states: jax.Array, log_rewards: jax.Array) -> Objects:
    """Add those of the objects [B, D] that make the memory more diverse, one after another.

    A known object is not stored twice. Once the memory is full, an object takes the place of the nearest (the first of
    them; the distance is the sum of absolute differences) if its reward is not lower, and is dropped otherwise:
    crowding (De Jong 1975), which keeps what is far from everything else.
    """
    capacity = memory.log_rewards.size

    def put(memory: Objects, one: tuple[jax.Array, jax.Array]) -> tuple[Objects, None]:
        state, log_reward = one
        away = jnp.abs(memory.states - state[None, :]).sum(1)
        away = jnp.where(jnp.arange(capacity) < memory.added, away, jnp.iinfo(jnp.int32).max)
        nearest = jnp.argmin(away)
        room = (memory.added < capacity) & (away[nearest] > 0)
        slot = jnp.where(room, memory.added, nearest)
        kept = room | (log_reward >= memory.log_rewards[slot])
        return Objects(
            memory.states.at[slot].set(jnp.where(kept, state, memory.states[slot])),
            memory.log_rewards.at[slot].set(jnp.where(kept, log_reward, memory.log_rewards[slot])),
            memory.added + room,
        ), None

    return jax.lax.scan(put, memory, (states, log_rewards))[0]


def sample(memory: Objects, draws: jax.Array, prioritised: bool) -> jax.Array:
    """int32 [B, D]: sample an object for each uniform number [B], with replacement.

    Prioritised means in proportion to the reward.
    """
    size = jnp.minimum(memory.added, memory.log_rewards.size)
    there = jnp.arange(memory.log_rewards.size) < size
    if not prioritised:
        # A number just below one must not be rounded up to an empty slot.
        return memory.states[jnp.minimum((draws * size.astype(draws.dtype)).astype(jnp.int32), size - 1)]
    best = jnp.max(memory.log_rewards, where=there, initial=-jnp.inf)
    heights = jnp.cumsum(jnp.where(there, jnp.exp(memory.log_rewards - best), 0.0))
    slots = jnp.searchsorted(heights, draws * heights[-1], side="right")
    return memory.states[jnp.minimum(slots, size - 1)]
