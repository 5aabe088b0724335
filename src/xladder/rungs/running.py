"""What every rung gives back when it is started: something that can be advanced by so many ticks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from xladder.core.compiling import compiled

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

    def phases(self) -> dict[str, float]:
        """Median seconds per tick and seed that go into "sampling" and "update"; may train on to find out."""

    def params(self) -> Any:
        """The agents' parameters as the JAX pytree, NumPy leaves [seeds, …]."""

    def state(self) -> Any:
        """All that the run would go on from; see `core.state`."""

    def take_state(self, state: Any) -> None:
        """Go on from there."""


class HostLoop(Protocol):
    """One experiment as a loop on the host; a workload's `_host` module has it."""

    config: Any
    learner: Any
    """Who learns; has `params()`."""
    seconds: dict[str, list[float]]
    """What each tick has put into "sampling" and "update"."""

    def advance(self) -> dict[str, Any]:
        """One tick; what it reports is an array or a number each."""


class HostRun:
    """A run of a host loop, one seed."""

    def __init__(
        self,
        loop: HostLoop,
        context: AbstractContextManager,
        note: str = "",
        compile_seconds: float = 0.0,
        threads: int | None = None,
    ):
        self.loop, self.context, self.note = loop, context, note
        self.compile_seconds, self.threads = compile_seconds, threads

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        with self.context:
            rows = [self.loop.advance() for _ in range(ticks)]
        return {name: np.stack([row[name] for row in rows])[None] for name in rows[0]}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick; the first ticks warm up."""
        return {name: float(np.median(seconds[len(seconds) // 4 :])) for name, seconds in self.loop.seconds.items()}

    def params(self) -> Any:
        """Parameters, leaves [1, …]."""
        return stack_seeds([self.loop.learner.params()])

    def state(self) -> Any:
        """All that the run would go on from."""
        return {"loop": self.loop}

    def take_state(self, state: Any) -> None:
        """Nothing is left to do: objects take their states themselves."""


def timed(call: Callable[[], Any], repeats: int = 7) -> float:
    """Median seconds of a call that waits for its device; the first one warms up."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[1:]))


class Compiler:
    """How a rung makes programs out of functions. To look into a run is to start it with another one."""

    def program(self, function: Callable[..., Any], donate: tuple[int, ...], *arguments: Any) -> Callable[..., Any]:
        """What a rung runs over and over, compiled ahead for arguments like these; the donated ones are overwritten."""
        import jax

        return jax.jit(function, donate_argnums=donate).lower(*arguments).compile()

    def function(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Any:
        """One function of a loop on the host."""
        return compiled(function, donate)


USUAL = Compiler()


def concatenate_seeds(trees: Sequence[Any]) -> Any:
    """Populations of the same shape, one after another along the seed axis."""
    import jax

    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def stack_seeds(trees: Sequence[Any]) -> Any:
    """Pytrees of the same shape, stacked along a new first axis."""
    import jax

    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
