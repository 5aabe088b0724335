"""What every rung gives back when it is started: something that can be advanced by so many ticks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from xladder.core.tick_host import HostExperiment

# What a tick reports, stacked: arrays [seeds, ticks, …]
Metrics = dict[str, np.ndarray]


class Running(Protocol):
    """A run in progress on some rung, for one seed or a population of them."""

    note: str
    """Something the user should know about how it runs, or nothing."""
    compile_seconds: float
    """How long it compiled before it could run, where that is known apart."""

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks; device work is finished when this returns."""

    def params(self) -> Any:
        """The agents' parameters as the JAX pytree, NumPy leaves [seeds, agents, …]."""


class HostRun:
    """A run of a host loop, one seed."""

    def __init__(
        self,
        experiment: HostExperiment,
        context: AbstractContextManager,
        note: str = "",
        compile_seconds: float = 0.0,
    ):
        self.experiment, self.context, self.note = experiment, context, note
        self.compile_seconds = compile_seconds

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        with self.context:
            rows = [self.experiment.advance() for _ in range(ticks)]
        return {name: np.stack([row[name] for row in rows])[None] for name in rows[0]}

    def params(self) -> Any:
        """Parameters, leaves [1, N, …]."""
        return stack_seeds([self.experiment.verbs.params()])


def concatenate_seeds(trees: Sequence[Any]) -> Any:
    """Populations of the same shape, one after another along the seed axis."""
    import jax

    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def stack_seeds(trees: Sequence[Any]) -> Any:
    """Pytrees of the same shape, stacked along a new first axis."""
    import jax

    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
