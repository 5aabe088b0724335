"""`parallel`: one jitted call per tick, with all agents in parallel and the environment in the program.

Metrics come to the host after every tick, which `fused` avoids. Environments that run on the host are stepped there, in
threads, while the device learns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.compiling import options_for
from xladder.core.placement import HERE, Placement
from xladder.protocols import Config
from xladder.rungs.program_run import ProgramRun
from xladder.rungs.running import USUAL, Compiler, Metrics, placed_like, the_rest, timed

SAMPLED_TICKS = 20  # ticks to time the two phases on


class ParallelRun(ProgramRun):
    """A run with one jitted call per tick, one seed."""

    def __init__(self, config: Config, seed: int, device: Any, compiler: Compiler = USUAL):
        self.program = program = config.family.program_for(config, device.platform, (seed,))
        with jax.default_device(device):
            init = jax.jit(
                lambda seeds: (program.init_counters(), jax.vmap(program.init)(seeds)),
                compiler_options=options_for(device.platform),
            )
            self.counters, self.runs = init(jnp.asarray([seed], jnp.int32))
            begun = time.perf_counter()
            # Donated, so that replay memory and parameters are updated in place.
            self.step = compiler.program(program.tick, (0, 1), self.counters, self.runs)
            self.compile_seconds = time.perf_counter() - begun

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks."""
        rows = []
        for _ in range(ticks):
            self.counters, self.runs, metrics = self.step(self.counters, self.runs)
            rows.append(jax.device_get(metrics)._asdict())  # one transfer for all metrics
        return {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick: sampling is timed as its own call, the update is the rest of a tick."""
        rollout_only = jax.jit(self.program.rollout_only)
        sampling = timed(lambda: jax.block_until_ready(rollout_only(self.counters, self.runs)), SAMPLED_TICKS)
        whole = timed(lambda: self.advance(1), SAMPLED_TICKS)
        return {"sampling": sampling, "update": the_rest(whole, sampling)}


class OverlappedRun:
    """A run whose envs are stepped on the host while the device learns, one seed."""

    note = ""

    def __init__(self, config: Config, seed: int, device: Any, compiler: Compiler = USUAL, placement: Placement = HERE):
        self.device = device
        with jax.default_device(device):
            begun = time.perf_counter()
            self.loop = config.family.overlapped(config, seed, device.platform, compiler.function, placement)
            self.compile_seconds = time.perf_counter() - begun

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks."""
        with jax.default_device(self.device):
            return {name: values[None] for name, values in self.loop.advance(ticks).items()}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick of acting and of learning, each timed alone; in a run they overlap."""
        with jax.default_device(self.device):
            return self.loop.phases()

    def params(self) -> Any:
        """Parameters, leaves [1, …]."""
        return self.loop.params()

    def take_params(self, params: Any) -> None:
        """Start from these parameters, leaves [1, …], instead of fresh ones."""
        with jax.default_device(self.device):
            counters, runs = self.loop.to_program()
            self.loop.from_program(counters, placed_like(self.loop.program.with_params(runs, params), runs))

    def state(self) -> Any:
        """The state to resume from."""
        counters, runs = self.loop.to_program()
        return {"counters": counters, "runs": self.loop.program.carried(runs)}

    def take_state(self, state: Any) -> None:
        """Restore a state."""
        with jax.default_device(self.device):
            runs = self.loop.program.put_back(self.loop.to_program()[1], state["runs"])
            self.loop.from_program(state["counters"], runs)

    def close(self) -> None:
        """Close the envs."""
        self.loop.close()


def start(
    config: Config, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL
) -> ParallelRun | OverlappedRun:
    """Start a run of one seed."""
    (seed,) = seeds
    kind = ParallelRun if config.world.jittable else OverlappedRun
    return kind(config, seed, device or jax.devices()[0], compiler)
