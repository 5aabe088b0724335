"""Flat frames as named parts, for torsos with `by_key = True`.

A world whose observations are a tree of arrays returns flat frames, and `fields` of its `EnvSpec` says how they split:
name, shape and dtype of every part, in order. Shapes: F frames, D numbers per frame.
"""

from __future__ import annotations

import math
from typing import Any

import jax

Fields = tuple[tuple[str, tuple[int, ...], Any], ...]
"""Name, shape and dtype of every part of a frame."""


def unflatten(states: jax.Array, fields: Fields) -> dict[str, jax.Array]:
    """Name → […, F, *shape] from flat states […, F, D]."""
    parts, start = {}, 0
    for name, shape, dtype in fields:
        end = start + math.prod(shape)
        parts[name] = states[..., start:end].reshape(*states.shape[:-1], *shape).astype(dtype)
        start = end
    return parts
