"""`parallel`: one jitted call per tick. All agents act and learn at once; the world is in the program.

The metrics come to the host after every tick, which is what `fused` saves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.tick import Program
from xladder.rungs.running import Metrics

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import Config

POPULATION = False
STARTING = "compiling"


def layout(device: Any) -> dict[str, Any]:
    """How a program is laid out for a device.

    On a CPU the agents of all seeds learn one after another, inside the program: a batched product keeps the cores no
    busier than a plain one and pushes everything out of the cache. On a GPU all at once, with matrices whose rows are
    multiples of its tensor cores', and several turns between two steps of the loop over turns, because there the loop
    itself is what takes time.
    """
    if device.platform == "cpu":
        return {"mapped": False}
    return {"mapped": True, "align": 32, "unroll": 5}


class ParallelRun:
    """One experiment, stepped from the host."""

    note = ""

    def __init__(self, config: Config, seed: int, device: Any):
        program = Program(config, **layout(device))
        self.learner = program.learner
        with jax.default_device(device):
            init = jax.jit(lambda seeds: (program.init_clock(), jax.vmap(program.init)(seeds)))
            self.clock, self.runs = init(jnp.asarray([seed], jnp.int32))
            begun = time.perf_counter()
            # Donated, so that memories and parameters are changed in place.
            step = jax.jit(program.tick, donate_argnums=(0, 1)).lower(self.clock, self.runs)
            self.step = step.compile()
            self.compile_seconds = time.perf_counter() - begun

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        rows = []
        for _ in range(ticks):
            self.clock, self.runs, metrics = self.step(self.clock, self.runs)
            rows.append(jax.tree.map(np.asarray, metrics)._asdict())
        return {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}

    def params(self) -> Any:
        """Parameters, leaves [1, N, …]."""
        return jax.tree.map(np.asarray, self.learner.narrow(self.runs.agents.params))


def start(config: Config, seeds: Sequence[int], device: Any = None) -> ParallelRun:
    """Begin one experiment."""
    (seed,) = seeds
    return ParallelRun(config, seed, device or jax.devices()[0])
