"""Arrays that are sharded over the devices of several processes: copied whole to every host, and back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PIECE_BYTES = 256 * 2**20  # size above which an array is gathered in pieces


def whole(leaf: jax.Array, mesh: Mesh) -> np.ndarray:
    """One array on the host, PRNG keys as their data; a large one in pieces, as a device may not have room for it."""
    gather = jax.jit(_bare, out_shardings=NamedSharding(mesh, PartitionSpec()), static_argnums=(2, 3))
    axis, size = pieces(leaf)
    if axis is None:
        return np.asarray(gather(leaf, 0, 0, None))
    found = np.empty(leaf.shape, leaf.dtype)
    for start in range(0, leaf.shape[axis], size):
        start = min(start, leaf.shape[axis] - size)
        where = (slice(None),) * axis + (slice(start, start + size),)
        found[where] = np.asarray(gather(leaf, everywhere(np.int32(start), mesh), axis, size))
    return found


def pieces(leaf: Any) -> tuple[int | None, int]:
    """The unsharded axis along which to gather an array, and the length of a piece; None if the array is small."""
    free = [axis for axis in range(len(leaf.sharding.spec), leaf.ndim) if leaf.shape[axis] > 1]
    if leaf.nbytes <= PIECE_BYTES or not free:
        return None, 0
    length = leaf.shape[free[0]]
    return free[0], max(1, length * PIECE_BYTES // leaf.nbytes)


def _bare(leaf: jax.Array, start: jax.Array, axis: int, size: int | None) -> jax.Array:
    """An array or a slice of it; PRNG keys as their data."""
    if size is not None:
        return jax.lax.dynamic_slice_in_dim(leaf, start, size, axis)
    return jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def put(leaf: Any, like: jax.Array) -> jax.Array:
    """The inverse of `whole`: an array that all processes have, on the devices of another; each takes its part."""
    leaf = np.asarray(leaf)
    placed = jax.make_array_from_callback(leaf.shape, like.sharding, lambda index: leaf[index])
    if not jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
        return placed
    return jax.jit(jax.random.wrap_key_data, out_shardings=like.sharding)(placed)


def everywhere(value: Any, mesh: Mesh) -> jax.Array:
    """Copy an array, which has to be equal on all hosts, to all devices."""
    array = np.asarray(value)
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, PartitionSpec()), lambda index: array[index])
