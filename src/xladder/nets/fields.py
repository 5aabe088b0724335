"""Flat frames as named parts, for torsos with `by_key = True`.

A world whose observations are a tree of arrays returns flat frames, and `fields` of its `EnvSpec` says how they split:
name, shape and dtype of every part, in order. Shapes: F frames, D numbers per frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax

Fields = tuple[tuple[str, tuple[int, ...], Any], ...]
"""Name, shape and dtype of every part of a frame."""


@jax.tree_util.register_pytree_with_keys_class
class Parts(dict[str, Any]):
    """The parts of states by name, […, F, *shape], in the order of a frame.

    They know the shape that each has in one frame: without it, nobody could tell how many axes come before.
    """

    def __init__(self, parts: Mapping[str, Any], shapes: Iterable[tuple[int, ...]]):
        super().__init__(parts)
        self.shapes = dict(zip(parts, shapes, strict=True))

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Leaves with their names, and what is constant."""
        return [(jax.tree_util.DictKey(name), part) for name, part in self.items()], tuple(self.shapes.items())

    @classmethod
    def tree_unflatten(cls, constant: tuple[tuple[str, tuple[int, ...]], ...], leaves: Iterable[Any]) -> Parts:
        """The inverse."""
        names, shapes = zip(*constant, strict=True)
        return cls(dict(zip(names, leaves, strict=True)), shapes)


def unflatten(states: jax.Array, fields: Fields) -> Parts:
    """Name → […, F, *shape] from flat states […, F, D]."""
    parts, start = {}, 0
    for name, shape, dtype in fields:
        end = start + math.prod(shape)
        parts[name] = states[..., start:end].reshape(*states.shape[:-1], *shape).astype(dtype)
        start = end
    return Parts(parts, [shape for _, shape, _ in fields])
