"""The agents in JAX, one function call at a time; the caller decides how each is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.keys import Stream
from xladder.core.state import Stateful
from xladder.core.types import Compiled, Params
from xladder.families.multi_agent.program import Counters, Program, RolloutDraws, TrainState
from xladder.learners.iqn import Agent, IQNLearner
from xladder.replay import frames
from xladder.replay.frames_host import HostFrameRing

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config
    from xladder.families.multi_agent.host_loop import HostLoop


class Backend(Stateful):
    """N JAX agents, one call at a time."""

    STATE = ("agents",)

    def __init__(self, config: Config, seed: int, compiled: Compiled):
        self.config = config
        self.program = Program(config)
        self.learner = self.program.learner
        self.key = keys.root(seed)
        self._init = compiled(IQNLearner.init)
        self._draw_rollout, self._draw_learn = compiled(Program.draw_rollout), compiled(Program.draw_learn)
        self._greedy, self._update = compiled(_greedy), compiled(IQNLearner.update, donate=(1,))
        n = config.world.num_agents
        self.agents: list[Agent] = [
            self._init(self.learner, keys.address(self.key, 0, i, Stream.INIT)) for i in range(n)
        ]

    def draw(self, tick: int) -> RolloutDraws:
        """The random numbers of one epoch's rollout, from the keys that `fused` uses."""
        return jax.tree.map(np.asarray, self._draw_rollout(self.program, self.key, tick))

    def greedy(self, agent: int, codes: np.ndarray, taus: np.ndarray) -> int:
        """The greedy action in a state."""
        return int(self._greedy(self.learner, self.agents[agent].params, codes, taus))

    def learn(self, tick: int, agent: int, ring: HostFrameRing) -> float:
        """One update from a replay memory."""
        draws = self._draw_learn(self.program, self.key, tick, agent)
        starts = ring.sample_indices(np.asarray(draws.scores), self.config.learner.batch_size)
        batch = ring.gather(starts, self.config.learner.gamma)
        self.agents[agent], loss = self._update(self.learner, self.agents[agent], batch, draws)
        return float(loss)

    def sync(self) -> None:
        """Copy the online networks into the target networks."""
        self.agents = [agent._replace(target=jax.tree.map(jnp.copy, agent.params)) for agent in self.agents]

    def warm_up(self) -> None:
        """Compile every function, using a throwaway agent and memory."""
        c = self.config.learner
        agent = self._init(self.learner, self.key)
        draws = self._draw_learn(self.program, self.key, 0, 0)
        ring = HostFrameRing(c.memory, self.learner.cells, c.n_frames, c.n_step)
        batch = ring.gather(np.arange(c.batch_size), c.gamma)
        self.greedy(0, batch.states[0], self.draw(0).acts.taus[0, 0])
        jax.block_until_ready(self._update(self.learner, agent, batch, draws))

    def give(self, agent: int) -> Params:
        """The parameters of one agent."""
        return self.agents[agent].params

    def take(self, agent: int, params: Params) -> None:
        """Load these parameters into the online and the target network."""
        copies = [jax.tree.map(jnp.array, params) for _ in range(2)]
        self.agents[agent] = self.agents[agent]._replace(params=copies[0], target=copies[1])

    def params(self) -> Params:
        """Parameters, leaves [N, …]."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(agent.params for agent in self.agents))


def _greedy(learner: IQNLearner, params: Params, codes: jax.Array, taus: jax.Array) -> jax.Array:
    return learner.greedy(params, codes, learner.embed(params, taus))


def to_program(loop: HostLoop) -> tuple[Counters, TrainState]:
    """The state of a host loop in the layout of `fused`, leaves [1, …]."""
    backend, rings = _backend(loop), loop.rings
    epsilon = jnp.float32(loop.epsilon)
    agents = [agent._replace(epsilon=epsilon) for agent in backend.agents]
    contents = [frames.FrameRing(*(getattr(ring, name) for name in frames.FrameRing._fields)) for ring in rings]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves)[None], *agents)
    memories = jax.tree.map(lambda *leaves: np.stack(leaves)[None], *contents)
    cursor = frames.Cursor(jnp.int32(rings[0].index), jnp.int32(rings[0].size))
    return Counters(jnp.int32(loop.tick), cursor), TrainState(backend.key[None], stacked, memories)


def from_program(loop: HostLoop, counters: Counters, runs: TrainState) -> None:
    """The inverse of `to_program`: load a program's state."""
    backend, one = _backend(loop), jax.tree.map(lambda x: x[0], runs)
    n = len(backend.agents)
    backend.agents = [jax.tree.map(lambda x, i=i: jnp.array(x[i]), one.agents) for i in range(n)]
    loop.tick, loop.epsilon = int(counters.tick), np.float32(one.agents.epsilon[0])
    for i, ring in enumerate(loop.rings):
        for name in frames.FrameRing._fields:
            setattr(ring, name, np.array(getattr(one.rings, name)[i]))
        ring.index, ring.size = int(counters.cursor.head), int(counters.cursor.size)


def _backend(loop: HostLoop) -> Backend:
    assert isinstance(loop.learner, Backend)
    return loop.learner
