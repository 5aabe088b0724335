"""The learner of the `actors` rung: it learns from transitions sampled by the shards.

All updates of a tick are one call on the device. The random numbers of an update are the same as on every other rung.

Shapes: K updates per tick, B batch, R candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.state import Stateful
from xladder.core.types import Compiled, Params
from xladder.families.value.config import ValueConfig
from xladder.families.value.program import Program, Samples
from xladder.learners.value import Agent
from xladder.replay.packed import PackedTrajectories, batch_of, nothing
from xladder.replay.priorities_host import stratified

OnCpu = Callable[..., Any]
"""Calls a function on the CPU that drives the device."""
ToDevice = Callable[[PackedTrajectories], PackedTrajectories]
"""Starts copying transitions to the learner's device, without waiting."""


class Learner(Stateful):
    """One agent and its updates.

    Args:
        config: the configuration of the run.
        seed: its seed.
        platform: the platform of the learner's device.
        compiled: compiles a function.
        on_cpu: calls a function on the CPU.
        to_device: copies a batch to the device.
    """

    STATE = ("agent",)

    def __init__(
        self, config: ValueConfig, seed: int, platform: str, compiled: Compiled, on_cpu: OnCpu, to_device: ToDevice
    ):
        self.config, self.program, self.key = config, Program.for_device(config, platform), keys.root(seed)
        self.on_cpu, self.to_device = on_cpu, to_device
        self.draws_from = on_cpu(keys.root, seed)
        self._draw = compiled(_draw)
        self.agent = compiled(_begin)(self.program, self.key)
        spec, window = self.program.spec, self.program.window
        packed = nothing(window, spec.shape, spec.dtype, self.rows_per_tick)
        self._learn = compiled(_learn, donate=(2,)).lower(self.program, np.int32(0), self.agent, self.key, packed)
        self._learn = self._learn.compile()

    @property
    def rows_per_tick(self) -> int:
        """Transitions sampled per tick."""
        return int(self.config.updates_per_tick * self.config.learner.batch_size)

    def draw(self, tick: int, ticks: int = 1) -> np.ndarray:
        """Random numbers that select the samples of some ticks: float32 [K·B, R, 2], or [K·B, 2] with priorities."""
        updates = np.arange(tick * self.config.updates_per_tick, (tick + ticks) * self.config.updates_per_tick)
        # On the CPU, which gives the same numbers: on a GPU they would queue behind the running updates.
        drawn = np.array(self.on_cpu(self._draw, self.program, updates.astype(np.int32), self.draws_from))
        if self.config.learner.prioritised:
            for uniforms in drawn:
                uniforms[:, 0] = stratified(uniforms[:, 0])
        return drawn.reshape(-1, *drawn.shape[2:])

    def learn(self, tick: int, packed: PackedTrajectories) -> tuple[jax.Array, jax.Array]:
        """Run the updates of a tick, without waiting for them.

        Args:
            tick: number of the tick.
            packed: its transitions, leaves [K·B, …].

        Returns:
            The mean loss [] and the TD errors [K·B].
        """
        self.agent, loss, errors = self._learn(np.int32(tick), self.agent, self.key, packed)
        return loss, errors

    def params(self) -> Params:
        """The current parameters, copied to the host: the next update overwrites those on the device."""
        return jax.tree.map(lambda x: np.array(x[0]), jax.device_get(self.agent.params))


def _begin(program: Program, key: jax.Array) -> Agent:
    return jax.tree.map(lambda x: x[None], program.init_agent(key))


def _draw(program: Program, updates: jax.Array, key: jax.Array) -> jax.Array:
    return jax.vmap(lambda update: program.draw_learn(key, update).indices)(updates)


def _learn(
    program: Program, tick: jax.Array, agents: Agent, key: jax.Array, packed: PackedTrajectories
) -> tuple[Agent, jax.Array, jax.Array]:
    updates, size = program.config.updates_per_tick, program.config.learner.batch_size
    numbers = tick * updates + jnp.arange(updates)
    draws = jax.vmap(lambda number: program.draw_learn(key, number).learner)(numbers)
    batch = batch_of(packed, program.window.stack)
    batches = jax.tree.map(lambda x: x.reshape(updates, 1, size, *x.shape[1:]), batch)
    samples = Samples((), batches, jax.tree.map(lambda x: x[:, None], draws))  # type: ignore[arg-type]
    agents, losses, errors = program.improve(tick, agents, samples)
    return agents, losses.mean(), errors.reshape(-1)
