"""`fused`: a chunk of many ticks is one XLA program, for a whole population of seeds at once.

The host is touched once per chunk. How many ticks a chunk has is an argument of the program, so one compilation
serves every length and a run stops exactly where it was told to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.tick import Clock, Experiment, Program
from xladder.core.tick import Metrics as TickMetrics
from xladder.rungs.parallel import layout
from xladder.rungs.running import Metrics

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import Config

POPULATION = True
STARTING = "compiling"
LONGEST_CHUNK = 256


class FusedRun:
    """A population of experiments, advanced by chunks."""

    note = ""

    def __init__(self, config: Config, seeds: Sequence[int], device: Any):
        program = Program(config, **layout(device))
        self.learner = program.learner

        def init(seeds: jax.Array) -> tuple[Clock, Experiment]:
            return program.init_clock(), jax.vmap(program.init)(seeds)

        def chunk(clock: Clock, runs: Experiment, ticks: jax.Array) -> tuple[Clock, Experiment, TickMetrics]:
            shapes = jax.eval_shape(program.tick, clock, runs)[2]
            rows = jax.tree.map(lambda s: jnp.zeros((LONGEST_CHUNK, *s.shape), s.dtype), shapes)

            def body(i: jax.Array, carry: tuple) -> tuple:
                clock, runs, rows = carry
                clock, runs, row = program.tick(clock, runs)
                return clock, runs, jax.tree.map(lambda all, one: all.at[i].set(one), rows, row)

            return jax.lax.fori_loop(0, ticks, body, (clock, runs, rows))

        with jax.default_device(device):
            self.clock, self.runs = jax.jit(init)(jnp.asarray(seeds, jnp.int32))
            begun = time.perf_counter()
            lowered = jax.jit(chunk, donate_argnums=(0, 1)).lower(self.clock, self.runs, np.int32(0))
            self.chunk = lowered.compile()
            self.compile_seconds = time.perf_counter() - begun

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        parts = []
        for begin in range(0, ticks, LONGEST_CHUNK):
            count = min(LONGEST_CHUNK, ticks - begin)
            self.clock, self.runs, rows = self.chunk(self.clock, self.runs, np.int32(count))
            parts.append({k: np.moveaxis(np.asarray(v)[:count], 0, 1) for k, v in rows._asdict().items()})
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}

    def params(self) -> Any:
        """Parameters, leaves [S, N, …]."""
        return jax.tree.map(np.asarray, self.learner.narrow(self.runs.agents.params))


def start(config: Config, seeds: Sequence[int], device: Any = None) -> FusedRun:
    """Begin a population of experiments, one per seed."""
    return FusedRun(config, seeds, device or jax.devices()[0])
