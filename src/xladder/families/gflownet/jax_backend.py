"""A GFlowNet's backend in JAX, one function call at a time; the caller decides how each is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.keys import Stream
from xladder.core.state import Stateful
from xladder.core.types import Compiled, Params
from xladder.families.gflownet.program import Counters, Draws, Program, TrainState
from xladder.learners.gflownet import Explore, GFlowNetLearner, Learned, Trajectories
from xladder.replay import objects

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig
    from xladder.families.gflownet.host_loop import HostLoop


class Backend(Stateful):
    """One GFlowNet in JAX."""

    STATE = ("agent",)

    def __init__(self, config: GFlowNetConfig, seed: int, compiled: Compiled):
        self.config, self.program = config, Program(config)
        self.learner = self.program.learner
        self.key = keys.root(seed)
        self._draw = compiled(Program.draw)
        self._forward = compiled(GFlowNetLearner.forward_policy)
        self._backward = compiled(GFlowNetLearner.backward_policy)
        self._learn = compiled(Program.learn_one, donate=(1,))
        self._init = compiled(GFlowNetLearner.init)
        self.agent = self._init(self.learner, keys.address(self.key, 0, 0, Stream.INIT))

    def draw(self, tick: int) -> Draws:
        """The random numbers of an iteration, from the keys that `fused` uses."""
        return jax.tree.map(np.asarray, self._draw(self.program, self.key, np.int32(tick)))

    def forward_policy(self, states: np.ndarray, explore: Explore, condition: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A]: the probability with which sampling takes each action."""
        return np.asarray(self._forward(self.learner, self.agent.params, states.astype(np.int32), explore, condition))

    def backward_policy(self, states: np.ndarray, condition: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A − 1]: the probability with which each action is undone."""
        return np.asarray(self._backward(self.learner, self.agent.params, states.astype(np.int32), condition))

    def learn(self, tick: int, agent: int, batch: Trajectories) -> Learned:
        """One update from a batch."""
        self.agent, learned = self._learn(self.program, self.agent, batch)
        return Learned(*(float(value) for value in learned))

    def give(self, agent: int) -> Params:
        """The parameters."""
        return self.agent.params

    def sync(self) -> None:
        """Nothing to do: there is no target network."""

    def take(self, agent: int, params: Params) -> None:
        """Load these parameters."""
        self.agent = self.agent._replace(params=jax.tree.map(jnp.array, params))

    def warm_up(self) -> None:
        """Compile every function, using a throwaway learner."""
        kept = self.agent
        self.agent = self._init(self.learner, self.key)
        b, old, steps = self.config.learner.batch_size, self.config.remembered, self.config.world.steps
        first = np.asarray(self.learner.world.initial())
        self.draw(0)
        low = (
            np.repeat(np.array(self.config.conditions[:1], np.float32), b, axis=0) if self.config.conditional else None
        )
        given = None if low is None else low[: b - old]
        self.forward_policy(np.tile(first, (b - old, 1)), Explore(np.float32(0), np.float32(1)), given)
        for count in {old, b - old if self.config.learner.local_search else 0} - {0}:
            self.backward_policy(np.tile(first, (count, 1)), None if low is None else low[:count])
        stopped = np.full((steps, b), self.learner.stop, np.int32), np.ones(b, np.int32)
        self.learn(0, 0, Trajectories(np.tile(first, (steps, b, 1)), *stopped, low))
        self.agent = kept

    def params(self) -> Params:
        """The parameters."""
        return self.agent.params


def to_program(loop: HostLoop) -> tuple[Counters, TrainState]:
    """The state of a host loop in the layout of `fused`, leaves [1, …]."""
    backend, replay = _backend(loop), loop.memory
    memory = None
    if replay is not None:
        full = replay.size == len(replay.log_rewards)
        added = replay.size + replay.index if full else replay.size
        memory = objects.Objects(jnp.int32(replay.states), jnp.asarray(replay.log_rewards), jnp.int32(added))
    found = None if loop.found is None else jnp.asarray(loop.found)
    alone = jax.tree.map(lambda x: x[None], (backend.agent, memory, found))
    return Counters(jnp.int32(loop.tick)), TrainState(backend.key[None], *alone)


def from_program(loop: HostLoop, counters: Counters, runs: TrainState) -> None:
    """The inverse of `to_program`: load a program's state."""
    backend, replay = _backend(loop), loop.memory
    loop.tick = int(counters.tick)
    loop.found = None if runs.found is None else np.array(runs.found[0])
    backend.agent = jax.tree.map(lambda x: jnp.array(x[0]), runs.agent)
    if replay is not None:
        assert runs.memory is not None
        capacity, added = len(replay.log_rewards), int(runs.memory.added[0])
        replay.states = np.array(runs.memory.states[0], np.int64)
        replay.log_rewards = np.array(runs.memory.log_rewards[0])
        replay.index, replay.size = added % capacity, min(added, capacity)


def _backend(loop: HostLoop) -> Backend:
    assert isinstance(loop.learner, Backend)
    return loop.learner
