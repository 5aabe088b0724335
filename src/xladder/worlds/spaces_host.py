"""Observations of Gymnasium's and PettingZoo's worlds that are dicts or tuples: their parts, laid flat in one vector.

The parts come in the order of their names, as in `observations.py`. Shapes: N envs, D numbers in a vector.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """An array in an observation."""

    path: tuple[Any, ...]
    """The keys that lead to it; none if it is the whole observation."""
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def name(self) -> str:
        """Its keys with dots between them."""
        return ".".join(map(str, self.path))


def parts_of(space: Any) -> tuple[Part, ...] | None:
    """The arrays that observations of a Gymnasium space consist of; None if they are something else."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        inside: list[tuple[Any, Any]] = (
            sorted(space.items(), key=_key) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))
        )
        found: list[Part] = []
        for key, part_space in inside:
            parts = parts_of(part_space)
            if parts is None:
                return None
            found += [part._replace(path=(key, *part.path)) for part in parts]
        return tuple(found) or None
    numbers = isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete)
    if not numbers or space.shape is None or np.dtype(space.dtype).kind not in "biuf" or 0 in space.shape:
        return None
    return (Part((), tuple(space.shape), np.dtype(space.dtype)),)


def _key(item: tuple[Any, Any]) -> str:
    return str(item[0])


def as_fields(parts: tuple[Part, ...]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """Name, shape and dtype of the parts of a tree, as in `EnvSpec.fields`; nothing for a single array."""
    tree = any(part.path for part in parts)
    return tuple((part.name, part.shape, str(part.dtype)) for part in parts) if tree else ()


def lay_flat(parts: tuple[Part, ...], observation: Any, num_envs: int) -> np.ndarray:
    """float32 [N, D] from an observation of N envs, whose arrays are [N, …]."""
    return np.concatenate(
        [np.asarray(_at(observation, part.path), np.float32).reshape(num_envs, part.size) for part in parts], axis=1
    )


def _at(observation: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        observation = observation[key]
    return observation
