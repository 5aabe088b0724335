"""The interface of a started run, which is the same on every rung, and the compiler that rungs use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from xladder.core.compiling import compiled, options_for
from xladder.protocols import HostLoop

# The metrics of some ticks: arrays [seeds, ticks, …]
Metrics = dict[str, np.ndarray]


class Running(Protocol):
    """A run in progress on some rung, for one seed or a population of them."""

    note: str
    """How it runs, if the user should know; may be empty."""
    compile_seconds: float
    """Seconds of compilation before the run could start, where measured."""

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks; device work is finished when this returns."""

    def phases(self) -> dict[str, float]:
        """Median seconds per tick and seed of "sampling" and "update"; may train further to measure them."""

    def params(self) -> Any:
        """The agents' parameters as the JAX pytree, NumPy leaves [seeds, …]."""

    def take_params(self, params: Any) -> None:
        """Start from these parameters, leaves [seeds, …], instead of fresh ones. Not on `actors`."""

    def state(self) -> Any:
        """The state to resume from; see `core.state`."""

    def take_state(self, state: Any) -> None:
        """Restore a state."""

    def close(self) -> None:
        """Release envs, threads and processes; the run cannot be advanced afterwards."""


class HostRun:
    """A run of a host loop, one seed.

    Args:
        loop: the loop.
        context: entered around every call of the loop.
        note: a message for the user.
        compile_seconds: how long compiling took.
        threads: number of PyTorch's threads.
    """

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
        """Train for exactly this many ticks."""
        with self.context:
            rows = [self.loop.advance() for _ in range(ticks)]
        return {name: np.stack([row[name] for row in rows])[None] for name in rows[0]}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick, without the first quarter, which warms up."""
        return {name: float(np.median(seconds[len(seconds) // 4 :])) for name, seconds in self.loop.seconds.items()}

    def params(self) -> Any:
        """Parameters, leaves [1, …]."""
        return stack_seeds([self.loop.learner.params()])

    def take_params(self, params: Any) -> None:
        """Start from these parameters, leaves [1, …], or [1, agents, …]."""
        import jax

        config, learner = self.loop.config, self.loop.learner
        with self.context:
            for agent in range(config.num_learners):
                place = (0, agent) if config.agent_axis else 0
                learner.take(agent, jax.tree.map(lambda leaf, place=place: np.array(leaf[place]), params))
            learner.sync()

    def state(self) -> Any:
        """The state to resume from."""
        return {"loop": self.loop}

    def take_state(self, state: Any) -> None:
        """Nothing to do: the loop has restored its own state."""

    def close(self) -> None:
        """Close the envs."""
        self.loop.close()


def the_rest(whole: float, part: float) -> float:
    """Seconds that are left of a whole tick; nan if the part, timed alone, took longer than the whole."""
    return whole - part if whole > part else float("nan")


def placed_like(changed: Any, runs: Any) -> Any:
    """A population whose arrays lie on the same devices as those of another."""
    import jax

    def put(new: Any, old: Any) -> Any:
        if new is old or not isinstance(old, jax.Array):
            return new
        return jax.device_put(np.asarray(new, old.dtype), old.sharding)

    return jax.tree.map(put, changed, runs)


def timed(call: Callable[[], Any], repeats: int = 7) -> float:
    """Median seconds of a blocking call, after one call to warm up."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[1:]))


class Compiler:
    """Compiles a rung's functions. A run is inspected by starting it with another compiler."""

    def program(self, function: Callable[..., Any], donate: tuple[int, ...], *arguments: Any) -> Callable[..., Any]:
        """Compile what a rung runs repeatedly, ahead of time for these arguments; the donated ones are overwritten."""
        import jax

        jitted = jax.jit(function, donate_argnums=donate, compiler_options=options_for(platform_of(arguments)))
        return jitted.lower(*arguments).compile()

    def function(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Any:
        """Compile one function of a host loop."""
        return compiled(function, donate)


USUAL = Compiler()


def platform_of(arguments: Any) -> str:
    """The kind of device that arrays are on, or will be."""
    import jax

    placed = (
        leaf.sharding for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
    )
    found = next((device.platform for sharding in placed if sharding for device in sharding.device_set), None)
    return found or jax.default_backend()


def concatenate_seeds(trees: Sequence[Any]) -> Any:
    """Concatenate populations along the seed axis."""
    import jax

    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def stack_seeds(trees: Sequence[Any]) -> Any:
    """Stack pytrees along a new first axis."""
    import jax

    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
