"""`sequential`: JAX one call at a time. The world is on the host; `jit` sits round each verb; nothing is mapped.

What a first port from PyTorch gives. Draws have the same addresses as on the rungs above, so all see the same
streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.keys import Stream
from xladder.core.tick import PlayDraws, Program
from xladder.core.tick_host import HostExperiment
from xladder.learners.iqn import Agent, IQNLearner
from xladder.replay.frames import Batch
from xladder.replay.frames_host import HostRing
from xladder.rungs.running import HostRun

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import Config

POPULATION = False
STARTING = "compiling"


class JaxVerbs:
    """N JAX agents, each called by itself."""

    def __init__(self, config: Config, seed: int):
        self.config = config
        self.program = Program(config)
        self.learner = self.program.learner
        self.key = keys.root(seed)
        n = config.world.num_agents
        self.agents: list[Agent] = [_init(self.learner, keys.address(self.key, 0, i, Stream.INIT)) for i in range(n)]

    def draw(self, tick: int) -> PlayDraws:
        """The draws of an epoch's play, from the keys that `fused` uses."""
        return jax.tree.map(np.asarray, _draw_play(self.program, self.key, tick))

    def greedy(self, agent: int, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in a state."""
        return int(_greedy(self.learner, self.agents[agent].params, codes, taus))

    def learn(self, tick: int, agent: int, ring: HostRing) -> float:
        """One update from a memory."""
        draws = _draw_study(self.program, self.key, tick, agent)
        starts = ring.choose(np.asarray(draws.scores), self.config.learner.batch_size)
        batch = Batch(*ring.cut(starts, self.config.learner.gamma))
        self.agents[agent], loss = _update(self.learner, self.agents[agent], batch, draws)
        return float(loss)

    def sync(self) -> None:
        """The hard update of every target network."""
        self.agents = [agent._replace(target=jax.tree.map(jnp.copy, agent.params)) for agent in self.agents]

    def warm_up(self) -> None:
        """Compile every verb, on an agent and a memory that are thrown away."""
        c = self.config.learner
        agent = _init(self.learner, self.key)
        draws = _draw_study(self.program, self.key, 0, 0)
        ring = HostRing(c.memory, self.learner.cells, c.n_frames, c.n_step)
        batch = ring.cut(np.arange(c.batch_size), c.gamma)
        self.greedy(0, batch.states[0], self.draw(0).acts.taus[0, 0])
        jax.block_until_ready(_update(self.learner, agent, Batch(*batch), draws))

    def params(self) -> Any:
        """Parameters, leaves [N, …]."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(agent.params for agent in self.agents))


_init = jax.jit(IQNLearner.init, static_argnums=0)
_draw_play = jax.jit(Program.draw_play, static_argnums=0)
_draw_study = jax.jit(Program.draw_study, static_argnums=0)
_update = jax.jit(IQNLearner.update, static_argnums=0, donate_argnums=1)


@partial(jax.jit, static_argnums=0)
def _greedy(learner: IQNLearner, params: Any, codes: jax.Array, taus: jax.Array) -> jax.Array:
    return learner.greedy(params, codes, learner.embed(params, taus))


def start(config: Config, seeds: Sequence[int], device: Any = None) -> HostRun:
    """Begin one experiment."""
    with jax.default_device(device):
        begun = time.perf_counter()
        verbs = JaxVerbs(config, *seeds)
        verbs.warm_up()
        seconds = time.perf_counter() - begun
    return HostRun(HostExperiment(config, verbs), jax.default_device(device), compile_seconds=seconds)
