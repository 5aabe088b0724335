"""The steps of a batch of trajectories, packed into rows without padding, and values per row spread out again.

Shapes: B trajectories, T steps of the longest, D numbers in a state, R rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from xladder.learners.gflownet import Trajectories


class PackedSteps(NamedTuple):
    """The steps of a batch, concatenated without padding."""

    states: jax.Array  # int32 [R, D]
    actions: jax.Array  # int32 [R]: taken there
    previous_action: jax.Array  # int32 [R]: the action before it; arbitrary in a first step
    place: tuple[jax.Array, jax.Array]  # int32 [R], twice: trajectory and step; the step is T in padding rows
    row_of: jax.Array  # int32 [B, T]: the inverse; an arbitrary row for padding
    condition: jax.Array | None  # float32 [R] or [R, K]: of its trajectory, if there is one


def pack(batch: Trajectories, bucket: int) -> PackedSteps:
    """Pack the steps of a batch into `bucket` rows. If there are fewer, the last one is repeated."""
    steps = batch.actions.shape[0]
    ends = jnp.cumsum(batch.length)
    real = jnp.arange(bucket) < ends[-1]
    row = jnp.minimum(jnp.arange(bucket), ends[-1] - 1)
    trajectory = (row[:, None] >= ends[None, :]).sum(1)
    step = row - (ends - batch.length)[trajectory]
    row_of = jnp.minimum((ends - batch.length)[:, None] + jnp.arange(steps)[None, :], bucket - 1)
    before = batch.actions[jnp.maximum(step - 1, 0), trajectory]
    return PackedSteps(
        batch.states[step, trajectory],
        batch.actions[step, trajectory],
        before,
        (trajectory, jnp.where(real, step, steps)),
        row_of,
        None if batch.condition is None else jnp.asarray(batch.condition)[trajectory],
    )


@jax.custom_vjp
def unpack(rows: PackedSteps, values: jax.Array) -> jax.Array:
    """float32 [B, T] from one value per row, float32 [R]; arbitrary beyond a trajectory's length.

    Each step has one row, so the gradient is a gather, too, instead of a scatter-add.
    """
    return values[rows.row_of]


def _unpack_forward(rows: PackedSteps, values: jax.Array) -> tuple[jax.Array, Any]:
    return unpack(rows, values), rows.place


def _unpack_backward(place: Any, gradient: jax.Array) -> tuple[None, jax.Array]:
    trajectory, step = place
    steps = gradient.shape[1]
    return None, jnp.where(step < steps, gradient[trajectory, jnp.minimum(step, steps - 1)], 0.0)


unpack.defvjp(_unpack_forward, _unpack_backward)
