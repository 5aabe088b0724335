"""Where the arrays of a run lie whose worlds are on the host: here, all on one device.

A rung with several devices or processes replaces it (`rungs/overlapped_mesh.py`). Then every process has some of the
envs, and every device has their part of the replay memory. What is sharded is described by *axes*: the env axis of an
array, or `SAME` for an array that all devices have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from xladder.core.data_parallel import SINGLE, DataParallel

SAME = -1


@dataclass(frozen=True)
class Placement:
    """One process with one device."""

    data_parallel: DataParallel = SINGLE

    @property
    def processes(self) -> int:
        """Number of processes that share the envs."""
        return 1

    def own_envs(self, num_envs: int) -> slice:
        """Which of the envs belong to this process."""
        return slice(0, num_envs)

    def spread(self, function: Callable[..., Any], given: tuple[Any, ...], made: Any) -> Callable[..., Any]:
        """Run a function of a program and arrays on every device, with that device's part of the arrays.

        Args:
            function: a pure function; its first argument is static.
            given: the axes of its other arguments.
            made: the axes of its result.
        """
        return function

    def by_env(self, array: np.ndarray, axis: int) -> Any:
        """Send arrays with an entry for each of this process's envs to the devices that have them."""
        return array

    def everywhere(self, array: np.ndarray) -> Any:
        """Copy an array to all devices."""
        return array

    def own(self, array: Any, axis: int) -> np.ndarray:
        """This process's part, by envs, of an array on the devices."""
        return np.asarray(array)

    def gather(self, array: np.ndarray, axis: int) -> np.ndarray:
        """All processes' parts of an array on the host, concatenated along an axis."""
        return array

    def whole(self, tree: Any) -> Any:
        """Arrays on the devices, complete on the host where they are sharded."""
        return tree

    def place(self, tree: Any, like: Any) -> Any:
        """The inverse of `whole`: arrays on the devices of others."""
        return tree


HERE = Placement()
