"""A row of metrics as one array of words, so that one kernel writes it, instead of one for each metric."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def width(row: Any) -> int:
    """How many words a row with these leaves has, of 32 bits each."""
    return sum(leaf.size for leaf in jax.tree.leaves(row))


def pack(row: Any) -> jax.Array:
    """int32 [W]: the bits of all leaves of a row, one after another."""
    return jnp.concatenate([jax.lax.bitcast_convert_type(leaf, jnp.int32).ravel() for leaf in jax.tree.leaves(row)])


def unpack(rows: jax.Array, like: Any) -> Any:
    """The inverse for T rows, int32 [T, W]: leaves [T, …], with the shapes and types of `like`."""
    leaves, structure = jax.tree.flatten(like)
    parts, begin = [], 0
    for leaf in leaves:
        part = rows[:, begin : begin + leaf.size].reshape(rows.shape[0], *leaf.shape)
        parts.append(jax.lax.bitcast_convert_type(part, leaf.dtype))
        begin += leaf.size
    return jax.tree.unflatten(structure, parts)
