"""Converts the observation of a world, any pytree of arrays, to one array of a fixed shape: a frame.

An image [height, width, channels] stays one. An integer from a fixed range would be better one-hot, but only the
world's author knows the range, so it stays a number. Everything else becomes a float32 vector: the leaves of the tree,
concatenated in the order of their names.

Shapes: D numbers in a vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.errors import UsageError

PICTURE_AXES = 3
LARGEST = 2**24  # numbers in one frame


@dataclass(frozen=True)
class Layout:
    """The layout of a frame, and how an observation is converted to it."""

    shape: tuple[int, ...]
    dtype: Any
    max_value: int = 1
    fields: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    """Name, shape and dtype of the leaves of a flattened tree."""

    def flatten(self, observation: Any) -> jax.Array:
        """Convert an observation to a frame [*shape]."""
        leaves = jax.tree.leaves(observation)
        if len(leaves) == 1 and jnp.ndim(leaves[0]) == 0 and self.shape != (1,):
            return jax.nn.one_hot(leaves[0], *self.shape, dtype=self.dtype)
        if len(leaves) == 1:
            return jnp.asarray(leaves[0]).reshape(self.shape).astype(self.dtype)
        return jnp.concatenate([jnp.ravel(leaf).astype(self.dtype) for leaf in leaves])


def layout_of(observation: Any, shown: str, whose: str = "its") -> Layout:
    """The layout of an observation, given the shapes and dtypes of its leaves.

    Args:
        observation: Shapes and dtypes.
        shown: The world's name.
        whose: "its", or the agent's: "hare's".
    """
    leaves = jax.tree_util.tree_leaves_with_path(observation)
    if not leaves:
        raise UsageError(f"`{shown}` returns nothing as {whose} observation when it is reset: it has no arrays.")
    for path, leaf in leaves:
        where = jax.tree_util.keystr(path, simple=True, separator=".")
        if not is_real(leaf.dtype) or 0 in leaf.shape:
            field = f"`{where}` of {whose} observation" if where else f"{whose} observation"
            raise UsageError(f"`{shown}` returns {describe(leaf)} as {field}, but networks need numbers.")
    size = sum(math.prod(leaf.shape) for _, leaf in leaves)
    if size > LARGEST:
        raise UsageError(f"`{shown}` returns {size:,} numbers as {whose} observation, but at most {LARGEST:,} fit.")
    if len(leaves) == 1 and len(leaves[0][1].shape) == PICTURE_AXES:
        picture = leaves[0][1]
        flags = np.dtype(picture.dtype).kind == "b"
        dtype = np.dtype(np.uint8) if flags or picture.dtype == np.uint8 else np.dtype(np.float32)
        return Layout(tuple(picture.shape), dtype, 255 if picture.dtype == np.uint8 else 1)
    fields = tuple(
        (jax.tree_util.keystr(path, simple=True, separator="."), tuple(leaf.shape), str(np.dtype(leaf.dtype)))
        for path, leaf in leaves
    )
    return Layout((size,), np.dtype(np.float32), fields=fields if len(leaves) > 1 else ())


def is_real(dtype: Any) -> bool:
    """Whether a dtype is one of real numbers or flags; random keys and complex numbers are not."""
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.bool_, jnp.integer, jnp.floating))


def describe(leaf: Any) -> str:
    """Format shape and dtype, such as `float32 [4, 2]`."""
    return f"{leaf.dtype} {list(leaf.shape)}" if hasattr(leaf, "shape") else type(leaf).__name__
