"""`parallel`: one jitted call per tick. All agents act and learn at once; the world is in the program.

The metrics come to the host after every tick, which is what `fused` saves. Worlds that live on the host are stepped
there, by threads of their own, while the device learns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.rungs.running import USUAL, Compiler, Metrics, timed

SAMPLED_TICKS = 20  # that the two parts of a tick are timed on


class ParallelRun:
    """One experiment, stepped from the host."""

    note = ""

    def __init__(self, config: Any, seed: int, device: Any, compiler: Compiler = USUAL):
        self.program = program = config.family.program_for(config, device.platform, (seed,))
        with jax.default_device(device):
            init = jax.jit(lambda seeds: (program.init_counters(), jax.vmap(program.init)(seeds)))
            self.counters, self.runs = init(jnp.asarray([seed], jnp.int32))
            begun = time.perf_counter()
            # Donated, so that memories and parameters are changed in place.
            self.step = compiler.program(program.tick, (0, 1), self.counters, self.runs)
            self.compile_seconds = time.perf_counter() - begun

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        rows = []
        for _ in range(ticks):
            self.counters, self.runs, metrics = self.step(self.counters, self.runs)
            rows.append(jax.device_get(metrics)._asdict())  # all at once: one wait, not one for each
        return {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick: sampling as a call of its own, the update as the rest of a tick."""
        rollout_only = jax.jit(self.program.rollout_only)
        sampling = timed(lambda: jax.block_until_ready(rollout_only(self.counters, self.runs)), SAMPLED_TICKS)
        whole = timed(lambda: self.advance(1), SAMPLED_TICKS)
        return {"sampling": sampling, "update": max(whole - sampling, 0.0)}

    def params(self) -> Any:
        """Parameters, leaves [1, …]."""
        return jax.tree.map(np.asarray, self.program.params(self.runs))

    def state(self) -> Any:
        """All that the run would go on from."""
        return {"counters": self.counters, "runs": self.program.carried(self.runs)}

    def take_state(self, state: Any) -> None:
        """Go on from there."""
        self.counters, self.runs = state["counters"], self.program.put_back(self.runs, state["runs"])


class OverlappedRun:
    """One experiment whose worlds are stepped on the host while the device learns."""

    note = ""

    def __init__(self, config: Any, seed: int, device: Any, compiler: Compiler = USUAL):
        self.device = device
        with jax.default_device(device):
            begun = time.perf_counter()
            self.loop = config.family.overlapped(config, seed, device.platform, compiler.function)
            self.compile_seconds = time.perf_counter() - begun

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        with jax.default_device(self.device):
            return {name: values[None] for name, values in self.loop.advance(ticks).items()}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick of playing alone and of learning alone, which happen at once in a run."""
        with jax.default_device(self.device):
            return self.loop.phases()

    def params(self) -> Any:
        """Parameters, leaves [1, …]."""
        return self.loop.params()

    def state(self) -> Any:
        """All that the run would go on from."""
        counters, runs = self.loop.to_program()
        return {"counters": counters, "runs": self.loop.program.carried(runs)}

    def take_state(self, state: Any) -> None:
        """Go on from there."""
        with jax.default_device(self.device):
            runs = self.loop.program.put_back(self.loop.run, state["runs"])
            self.loop.from_program(state["counters"], runs)


def start(
    config: Any, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL
) -> ParallelRun | OverlappedRun:
    """Begin one experiment."""
    (seed,) = seeds
    kind = ParallelRun if config.world.jittable else OverlappedRun
    return kind(config, seed, device or jax.devices()[0], compiler)
