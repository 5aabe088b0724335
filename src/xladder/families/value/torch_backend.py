"""The value learner in PyTorch; what it draws comes from NumPy's and PyTorch's generators."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import torch

from xladder import bridge
from xladder.core.compiling import compiled
from xladder.core.types import Params
from xladder.families.value.acting import ActDraws
from xladder.families.value.host_loop import HostMemory
from xladder.families.value.program import Program
from xladder.learners.state_torch import TorchVerbs
from xladder.learners.value_torch import TorchLearner
from xladder.nets import torsos_torch
from xladder.replay.batch import Batch
from xladder.replay.history import CANDIDATES


class Verbs(TorchVerbs):
    """PyTorch agents and the copies of their world."""

    STATE = ("rng", "agents")

    def __init__(self, config: Any, seed: int, device: str):
        self.config, self.program = config, Program(config)
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.agents = [make_learner(config, device) for _ in range(self.program.num_agents)]
        self._seed, self._worlds = seed, None

    @property
    def worlds(self) -> Any:
        """The copies of the world, opened when they are first asked for."""
        if self._worlds is None:
            world = self.config.world
            self._worlds = world.on_host(world.num_envs, self._seed, compiled)
        return self._worlds

    def draw(self, step: int, agent: int) -> ActDraws:
        """The draws for one choice of action."""
        n, learner, view = self.config.world.rows, self.program.learner, self.program.view
        fractions = self.config.learner.act_quantiles if learner.fractions else 0
        explore, random = self.rng.random(n, dtype=np.float32), partial(self.rng.random, n, dtype=np.float32)
        return ActDraws(
            explore=explore,
            action=random() if view.masked else self.rng.integers(0, view.actions, n, dtype=np.int32),
            taus=self.rng.random((n, fractions), dtype=np.float32),
            noise=self.rng.standard_normal((n, learner.noise_size), dtype=np.float32),
        )

    def greedy(self, agent: int, stack: np.ndarray, draws: ActDraws) -> np.ndarray:
        """The best actions in states."""
        noise = draws.noise if draws.noise.shape[1] else None
        return self.agents[agent].values(stack, draws.taus, noise).argmax(1)

    def draw_picks(self, update: int, agent: int) -> np.ndarray:
        """What says where the samples of an update start."""
        c = self.config.learner
        shape = (c.batch_size, 2) if c.prioritised else (c.batch_size, CANDIDATES, 2)
        return self.rng.random(shape, dtype=np.float32)

    def learn(self, update: int, agent: int, batch: Batch) -> tuple[float, np.ndarray]:
        """One update."""
        return self.agents[agent].update(batch)

    def sync(self) -> None:
        """The hard update of the target networks."""
        for agent in self.agents:
            agent.sync()

    def give(self, agent: int) -> Params:
        """The parameters of one agent as the JAX pytree."""
        return bridge.to_jax("value", self.agents[agent].net.state_dict())

    def take(self, agent: int, params: Params) -> None:
        """Go on with these parameters."""
        self.agents[agent].net.load_state_dict(bridge.to_torch("value", params))

    def params(self) -> Params:
        """Parameters as the JAX pytree; of several agents, leaves [A, …]."""
        if not self.program.view.agents:
            return self.give(0)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(self.give(i) for i in range(len(self.agents))))

    def rehearse(self) -> None:
        """An update and some actions on made-up data: what the number of threads is chosen by."""
        memory = HostMemory(self.program).history
        batch = memory.cut(memory.choose(np.zeros((self.config.learner.batch_size, 1, 2), np.float32)), 0.0)
        n, stack = self.config.world.rows, self.config.world.stack
        self.agents[0].update(batch)
        for _ in range(self.config.steps_per_tick):
            self.greedy(0, np.zeros((n, stack, *self.program.view.shape), self.program.view.dtype), self.draw(0, 0))


def make_learner(config: Any, device: str = "cpu") -> TorchLearner:
    """The twin of the learner that the settings describe."""
    program = Program(config)
    c, view, stack = config.learner, program.view, config.world.stack
    torso: torch.nn.Module
    if c.torso == "nature":
        torso = torsos_torch.NatureCnn(stack)
    elif c.torso == "minatar":
        torso = torsos_torch.MinAtarCnn(view.shape[-1], stack, brightest=view.brightest)
    else:
        torso = torsos_torch.Mlp(stack * int(np.prod(view.shape)), c.hidden, brightest=view.brightest)
    return TorchLearner(program.learner, torso, c.lr, device)
