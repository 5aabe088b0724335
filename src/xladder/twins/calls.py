"""The inputs of twins: arrays of any library, converted to the same numbers for both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from xladder.errors import UsageError


class Call(NamedTuple):
    """The arguments of one call of a module."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        words = [describe(arg) for arg in self.args]
        return ", ".join([*words, *(f"{name}={describe(value)}" for name, value in self.kwargs.items())])


def as_call(inputs: Any) -> Call:
    """Make a call: a tuple is positional arguments, a dict keyword arguments, anything else the only argument."""
    if isinstance(inputs, Mapping):
        return Call((), {name: arrays(value) for name, value in inputs.items()})
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        return Call(tuple(arrays(value) for value in inputs), {})
    if isinstance(inputs, list) and any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(inputs)):
        return Call(tuple(arrays(value) for value in inputs), {})
    return Call((arrays(inputs),), {})


def arrays(tree: Any) -> Any:
    """A pytree with NumPy leaves: float32, int32, or smaller if they were."""
    if isinstance(tree, list) and not any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(tree)):
        return array(tree)  # nested lists of numbers
    return jax.tree.map(array, tree)


def array(values: Any) -> np.ndarray:
    """Convert an array of any library to NumPy, in the dtype that JAX computes with."""
    if hasattr(values, "detach"):  # PyTorch's
        values = values.detach().cpu()
        values = values.float().numpy() if "bfloat16" in str(values.dtype) else values.numpy()
    try:
        found = np.asarray(values)
    except Exception:
        found = np.asarray(None)
    if found.dtype.kind not in "fiub":
        raise UsageError(f"An input is a {type(values).__name__}, but it has to be an array of numbers.")
    if found.dtype == np.float64:
        return found.astype(np.float32)
    if found.dtype in (np.int64, np.uint64, np.uint32):
        if found.size and (found.max() > np.iinfo(np.int32).max or found.min() < np.iinfo(np.int32).min):
            raise UsageError("An input has integers beyond 32 bits, but JAX computes with 32.")
        return found.astype(np.int32)
    return found


def describe(tree: Any) -> str:
    """Format shapes and dtypes of a tree, such as `float32 [8, 4]`."""
    leaves = [
        f"{np.asarray(leaf).dtype} {list(np.shape(leaf))}" if hasattr(leaf, "shape") else repr(leaf)[:40]
        for leaf in jax.tree.leaves(tree)
    ]
    return leaves[0] if len(leaves) == 1 else f"({', '.join(leaves)})"


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text[:300] if text.endswith((".", "!", "?")) else f"{text[:300]}."
