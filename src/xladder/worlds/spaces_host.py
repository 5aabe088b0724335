"""Observations of Gymnasium's and PettingZoo's worlds: their parts, laid flat in one vector.

The parts of dicts and tuples come in the order of their names, as in `observations.py`. A number out of a fixed range
(`Discrete`, `MultiDiscrete`) becomes one-hot, unless the range is very large.

Shapes: N envs, D numbers in a vector, K numbers out of a range.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

MOST_CATEGORIES = 4096
"""The largest range that becomes one-hot; a number out of a larger one stays a number."""

UNBOUNDED = 1e6
"""Bounds beyond this are no scale of what is seen: many worlds have the largest float there."""


class Part(NamedTuple):
    """An array in an observation."""

    path: tuple[Any, ...]
    """The keys that lead to it; none if it is the whole observation."""
    shape: tuple[int, ...]
    """Of what the network sees."""
    dtype: np.dtype
    ranges: tuple[tuple[int, int], ...] = ()
    """The first value and the number of values of each number that becomes one-hot; empty for other arrays."""

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
    ranges = _ranges(space) if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else ()
    if ranges:
        return (Part((), (sum(count for _, count in ranges),), np.dtype(np.float32), ranges),)
    return (Part((), tuple(space.shape), np.dtype(space.dtype)),)


def bounds_of(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """float32 [D] each: centre and half the width of the bounds of every number of a vector; 0 and 1 without bounds."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        inside = [part for _, part in sorted(space.items(), key=_key)] if isinstance(space, spaces.Dict) else space
        centres, halves = zip(*map(bounds_of, inside), strict=True)
        return np.concatenate(centres), np.concatenate(halves)
    size = sum(part.size for part in parts_of(space) or ())
    centre, half = np.zeros(size, np.float32), np.ones(size, np.float32)
    if isinstance(space, spaces.Box):
        low, high = (np.ravel(bound).astype(np.float64) for bound in (space.low, space.high))
        bounded = (np.maximum(np.abs(low), np.abs(high)) < UNBOUNDED) & (high > low)
        low, high = low[bounded], high[bounded]
        centre[bounded], half[bounded] = (low + high) / 2, (high - low) / 2
    return centre, half


def _ranges(space: Any) -> tuple[tuple[int, int], ...]:
    """The first value and the number of values of every number in a space; nothing if they are too many."""
    counts = space.nvec if hasattr(space, "nvec") else space.n
    starts = np.broadcast_to(space.start, np.shape(counts))
    found = tuple((int(start), int(count)) for start, count in zip(np.ravel(starts), np.ravel(counts), strict=True))
    return found if sum(count for _, count in found) <= MOST_CATEGORIES else ()


def _key(item: tuple[Any, Any]) -> str:
    return str(item[0])


def as_fields(parts: tuple[Part, ...]) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """Name, shape and dtype of the parts of a tree, as in `EnvSpec.fields`; nothing for a single array."""
    tree = any(part.path for part in parts)
    return tuple((part.name, part.shape, str(part.dtype)) for part in parts) if tree else ()


def lay_flat(parts: tuple[Part, ...], observation: Any, num_envs: int) -> np.ndarray:
    """float32 [N, D] from an observation of N envs, whose arrays are [N, …]."""
    return np.concatenate([_flat(part, _at(observation, part.path), num_envs) for part in parts], axis=1)


def _flat(part: Part, values: Any, num_envs: int) -> np.ndarray:
    """float32 [N, size] from the arrays of one part; a `ValueError` if they are not in its space."""
    if not part.ranges:
        return np.asarray(values, np.float32).reshape(num_envs, part.size)
    numbers = np.asarray(values).reshape(num_envs, len(part.ranges)).astype(np.int64)  # [N, K]
    starts, counts = np.array(part.ranges).T
    places = numbers - starts
    if ((places < 0) | (places >= counts)).any():
        number, which = np.argwhere((places < 0) | (places >= counts))[0]
        start, count = part.ranges[which]
        raise ValueError(f"{numbers[number, which]} is not one of {start} … {start + count - 1}")
    flat = np.zeros((num_envs, part.size), np.float32)
    flat[np.arange(num_envs)[:, None], places + np.cumsum(counts) - counts] = 1.0
    return flat


def _at(observation: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        observation = observation[key]
    return observation
