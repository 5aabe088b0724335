"""A replay memory of single frames, one ring per env; stacked states are gathered when a batch is drawn.

Row t of an env holds a frame, the action taken there and its outcome. The end of an episode adds one more row with the
final frame. No action counts there, so a sample never starts at this *reset row*, but it can bootstrap from it. It is
recognised by the row after it, which is marked `is_first`. A lost life may be terminal while the episode goes on: then
the row after it is like any other. Rows that are both terminated and truncated belong to an agent whose episode ended
before those of other agents in the same world; samples do not start there either.

All envs step together, so one `Cursor`, separate from the data, is shared by all envs and seeds: writes stay slices,
and happen in place if the memory is donated or carried by a loop.

Shapes: N envs, L rows per env, F frames per state, n steps, B batch, R candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.types import Array
from xladder.errors import UsageError
from xladder.replay.batch import Batch

BITS = 23  # random bits of a uniform float32

CANDIDATES = 4
"""Candidates per sample. With episodes of T steps, all of them are reset rows once in (T + 1)⁴.

That is one sample in 16 where an episode is one step. Eight would lose one in 256 there, but make a tick of Catch 8 %
slower on a CPU, and other worlds gain nothing.
"""


@dataclass(frozen=True)
class Window:
    """The span of a sample, and the length of the ring."""

    stack: int  # F
    n_step: int  # n
    length: int  # L
    absences: bool = False  # whether rows may belong to an agent that waits for the others' episodes to end
    burn_in: int = 0  # rows of a sequence that only prepare the hidden state
    sequence: int = 1  # transitions of a sample, one after the other

    @property
    def span(self) -> int:
        """Rows that a sample needs after the one at which it starts."""
        return self.burn_in + self.sequence - 1 + self.n_step

    def __post_init__(self) -> None:
        if min(self.stack, self.n_step) < 1:
            raise UsageError(
                f"A sample of {self.stack} frames and {self.n_step} steps is not possible: each has to be at least 1."
            )
        if self.length < self.stack + self.span:
            raise UsageError(
                f"A memory of {self.length} rows per env cannot hold a sample of {self.stack} frames and "
                f"{self.span} steps: use fewer envs, or a memory of at least {self.stack + self.span} rows each."
            )


class Cursor(NamedTuple):
    """The write position, and the number of stored rows."""

    head: jax.Array  # int32 []
    size: jax.Array  # int32 []


class History(NamedTuple):
    """The rows of N envs; unwritten rows are zero. A single row per env has the same fields, without L."""

    frames: Array  # [N, L, *frame]
    actions: Array  # int [N, L], or [N, L, team], of the smallest type that holds them
    rewards: Array  # float32 [N, L]
    terminated: Array  # bool [N, L]: the next state has no value
    truncated: Array  # bool [N, L]: the episode was truncated after the action
    is_first: Array  # bool [N, L]: the frame begins an episode


class RecurrentHistory(NamedTuple):
    """The same for a network with memory: rows also hold its state."""

    frames: Array
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    is_first: Array
    hidden: Array  # float32 [N, L, H]: the state before the frame, 0 where an episode begins


Rows = History | RecurrentHistory


def rows_of(columns: Iterable[Any], hidden: Any = ()) -> Any:
    """Rows from the columns of a `History`, and hidden states if the network has any."""
    found = History(*columns)
    return found if isinstance(hidden, tuple) else RecurrentHistory(**found._asdict(), hidden=hidden)


class SampleIndices(NamedTuple):
    """Where B samples start."""

    env: Array  # int32 [B]
    slot: Array  # int32 [B]
    valid: Array  # float32 [B]: the weight of each sample, 0 for invalid ones


def action_dtype(actions: int) -> np.dtype:
    """The smallest integer type that holds this many actions."""
    return np.dtype(next((t for t in (np.int8, np.int16) if actions - 1 <= np.iinfo(t).max), np.int32))


def init(
    num_envs: int,
    length: int,
    shape: tuple[int, ...],
    dtype: Any,
    actions: int = 2,
    hidden: int = 0,
    choices: tuple[int, ...] = (),
) -> Any:
    """An empty memory for frames of this shape and dtype, and hidden states of `hidden` numbers, if any.

    What is chosen in one env has the shape `choices`: [] for a single agent, [team] for a team.
    """
    rows = (num_envs, length)
    plain = History(
        frames=jnp.zeros((*rows, *shape), dtype),
        actions=jnp.zeros((*rows, *choices), action_dtype(actions)),
        rewards=jnp.zeros(rows, jnp.float32),
        terminated=jnp.zeros(rows, bool),
        truncated=jnp.zeros(rows, bool),
        is_first=jnp.zeros(rows, bool),
    )
    return rows_of(plain, jnp.zeros((*rows, hidden), jnp.float32)) if hidden else plain


def num_bytes(
    num_envs: int,
    length: int,
    shape: tuple[int, ...],
    dtype: Any,
    actions: int = 2,
    hidden: int = 0,
    choices: tuple[int, ...] = (),
) -> int:
    """Bytes of the memory that `init` would return."""
    action, reward, flags = action_dtype(actions).itemsize * math.prod(choices), 4, 3
    return num_envs * length * (math.prod(shape) * jnp.dtype(dtype).itemsize + action + reward + flags + 4 * hidden)


def init_cursor() -> Cursor:
    """The cursor of an empty memory."""
    return Cursor(jnp.int32(0), jnp.int32(0))


def advance(cursor: Cursor, length: int) -> Cursor:
    """The cursor after one more row."""
    return Cursor((cursor.head + 1) % length, jnp.minimum(cursor.size + 1, length))


def add(cursor: Cursor, history: Any, rows: Any) -> Any:
    """Write one row per env, leaves [N, …], at the cursor; call `advance` afterwards.

    Leading axes, such as one of seeds, may be before N: a mapped write would be a scatter, which first reads what it
    overwrites.
    """
    rows = rows._replace(actions=rows.actions.astype(history.actions.dtype))
    axis = history.is_first.ndim - 1

    def write(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(old, jnp.expand_dims(new, axis), cursor.head, axis)

    return jax.tree.map(write, history, rows)


def eligible(window: Window, cursor: Cursor) -> tuple[jax.Array, jax.Array]:
    """int32 [], []: the slot of the earliest possible start, and the number of starts from there, including reset rows.

    A start needs the rows of its sample after it and the frames of its stack. A ring that is not full yet still has the
    beginning of its first episode, before which the stack is zero anyway.
    """
    broken = jnp.where(cursor.size == window.length, window.stack - 1, 0)  # stacks that reach into overwritten rows
    earliest = (cursor.head - cursor.size + broken) % window.length
    return earliest, jnp.maximum(cursor.size - broken - window.span, 0)


def sample_indices(
    window: Window, cursor: Cursor, history: Rows, uniforms: jax.Array, strata: int = 1
) -> SampleIndices:
    """Starts, uniform over envs and times, with replacement, from uniform numbers float32 [B, R, 2].

    Each is the first of R candidates that is not a reset row; if all are, it is invalid. With several strata, an equal
    part of the starts comes from each of that many groups of envs: every row is as likely as before, and a device that
    holds only some groups can sample its part alone.
    """
    earliest, count = eligible(window, cursor)
    envs_per_stratum = history.is_first.shape[0] // strata
    stratum = jnp.arange(uniforms.shape[0]) // (uniforms.shape[0] // strata)  # [B]
    within, after = _places(uniforms, envs_per_stratum, count)
    envs, slots = stratum[:, None] * envs_per_stratum + within, (earliest + after) % window.length  # [B, R]
    usable = ~history.is_first[envs, (slots + 1) % window.length] & (count > 0)
    if window.absences:
        usable &= ~(history.terminated[envs, slots] & history.truncated[envs, slots])
    chosen = jnp.argmax(usable, axis=1, keepdims=True)  # the first that is usable
    env, slot, valid = (jnp.take_along_axis(x, chosen, axis=1)[:, 0] for x in (envs, slots, usable))
    return SampleIndices(env, slot, valid.astype(jnp.float32))


def gather(window: Window, history: History, indices: SampleIndices, gamma: jax.Array) -> Batch:
    """The transitions that start at `indices`.

    They end with the episode, by termination or truncation, or after n steps. A truncated one bootstraps from the
    episode's last frame.
    """
    returns, discounts, steps = look_ahead(window, history, indices, gamma)
    now = indices.slot[:, None] + jnp.arange(1 - window.stack, 1)[None, :]  # [B, F]
    if window.n_step == 1:  # `steps` is 1, and both states are parts of F + 1 frames, read once
        slots = jnp.concatenate([now, indices.slot[:, None] + 1], axis=1) % window.length
        frames, is_first = history.frames[indices.env[:, None], slots], history.is_first[indices.env[:, None], slots]
        states = mask_before_reset(frames[:, :-1], is_first[:, :-1])
        next_states = mask_before_reset(frames[:, 1:], is_first[:, 1:])
    else:
        states = stacked(history, indices.env, now % window.length)
        next_states = stacked(history, indices.env, (now + steps[:, None]) % window.length)
    return Batch(states, history.actions[indices.env, indices.slot], returns, discounts, next_states, indices.valid)


def push(stack: jax.Array, frame: jax.Array, is_first: jax.Array) -> jax.Array:
    """The next frame stack [N, F, *frame]: the previous one with the new frames [N, *frame] appended.

    Where an episode begins, `is_first` bool [N], earlier frames are zero. `gather` builds the same state.
    """
    older = jnp.where(_beside(is_first, stack.ndim), 0, stack[:, 1:])
    return jnp.concatenate([older, frame[:, None]], axis=1)


def _places(uniforms: jax.Array, num_envs: int, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """int32 […] each: envs 0 … N − 1 and starts 0 … count − 1, uniform, from uniform numbers float32 […, 2].

    A float32 in [0, 1) has 23 random bits. Alone, these would choose some of a million starts 12 % more often than
    others, so the bits of the first number that do not choose the env refine the second, to 32 bits.
    """
    words = jnp.minimum((uniforms * 2.0**BITS).astype(jnp.uint32), 2**BITS - 1) << (32 - BITS)
    env, rest = _multiply(words[..., 0], jnp.uint32(num_envs))
    start, _ = _multiply(words[..., 1] | (rest >> BITS), count.astype(jnp.uint32))
    return env.astype(jnp.int32), start.astype(jnp.int32)


def _multiply(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """uint32 […] each: the high and the low word of a product, by halves, because JAX has no 64 bits by default."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + ((a_low * b_low) >> 16)
    other = a_low * b_high + (middle & 0xFFFF)
    return a_high * b_high + (middle >> 16) + (other >> 16), a * b


def look_ahead(
    window: Window, history: Rows, indices: SampleIndices, gamma: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """float32 [B], float32 [B], int32 [B]: Σ γᵏ r over the m ≤ n steps left in the episode; γᵐ or 0; and m."""
    returns = jnp.zeros(indices.slot.shape, jnp.float32)
    discounts = jnp.ones(indices.slot.shape, jnp.float32)
    steps = jnp.zeros(indices.slot.shape, jnp.int32)
    goes_on = jnp.ones(indices.slot.shape, bool)
    for step in range(window.n_step):
        row = indices.env, (indices.slot + step) % window.length
        terminated = history.terminated[row]
        returns = returns + discounts * jnp.where(goes_on, history.rewards[row], 0.0)
        discounts = discounts * jnp.where(goes_on, jnp.where(terminated, 0.0, gamma), 1.0)
        steps = steps + goes_on.astype(jnp.int32)
        # An episode that was lost with its worker has no end row: the next one begins at once.
        lost = history.is_first[indices.env, (indices.slot + step + 2) % window.length]
        goes_on = goes_on & ~terminated & ~history.truncated[row] & ~lost
    return returns, discounts, steps


def stacked(history: Rows, env: jax.Array, slots: jax.Array) -> jax.Array:
    """[B, F, *frame]: the frames at `slots` [B, F]; those of earlier episodes are zero."""
    return mask_before_reset(history.frames[env[:, None], slots], history.is_first[env[:, None], slots])


def mask_before_reset(frames: jax.Array, is_first: jax.Array) -> jax.Array:
    """Frames [B, F, *frame], with those before the latest `is_first` set to zero."""
    games_after = jax.lax.cumsum(is_first.astype(jnp.int32), axis=1, reverse=True) - is_first.astype(
        jnp.int32
    )  # [B, F]
    return jnp.where(_beside(games_after > 0, frames.ndim), 0, frames)


def _beside(flags: jax.Array, rank: int) -> jax.Array:
    """Flags with trailing axes of length one, to broadcast against an array of that rank."""
    return flags.reshape(flags.shape + (1,) * (rank - flags.ndim))
