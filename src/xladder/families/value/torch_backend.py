"""The value learner in PyTorch; what it draws comes from NumPy's and PyTorch's generators."""

from __future__ import annotations

from typing import Any

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
    """One PyTorch agent and the copies of its world."""

    STATE = ("rng", "agent")

    def __init__(self, config: Any, seed: int, device: str):
        self.config, self.program = config, Program(config)
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.agent = make_learner(config, device)
        self._seed, self._worlds = seed, None

    @property
    def worlds(self) -> Any:
        """The copies of the world, opened when they are first asked for."""
        if self._worlds is None:
            world = self.config.world
            self._worlds = world.on_host(world.num_envs, self._seed, compiled)
        return self._worlds

    def draw(self, step: int) -> ActDraws:
        """The draws for one choice of action."""
        n, learner = self.config.world.num_envs, self.program.learner
        fractions = self.config.learner.act_quantiles if learner.fractions else 0
        return ActDraws(
            explore=self.rng.random(n, dtype=np.float32),
            action=self.rng.integers(0, self.program.view.actions, n, dtype=np.int32),
            taus=self.rng.random((n, fractions), dtype=np.float32),
            noise=self.rng.standard_normal((n, learner.noise_size), dtype=np.float32),
        )

    def greedy(self, stack: np.ndarray, draws: ActDraws) -> np.ndarray:
        """The best actions in states."""
        noise = draws.noise if draws.noise.shape[1] else None
        return self.agent.values(stack, draws.taus, noise).argmax(1)

    def draw_picks(self, update: int) -> np.ndarray:
        """What says where the samples of an update start."""
        c = self.config.learner
        shape = (c.batch_size, 2) if c.prioritised else (c.batch_size, CANDIDATES, 2)
        return self.rng.random(shape, dtype=np.float32)

    def learn(self, update: int, agent: int, batch: Batch) -> tuple[float, np.ndarray]:
        """One update."""
        return self.agent.update(batch)

    def sync(self) -> None:
        """The hard update of the target network."""
        self.agent.sync()

    def give(self, agent: int) -> Params:
        """The parameters of the agent as the JAX pytree."""
        return bridge.to_jax("value", self.agent.net.state_dict())

    def take(self, agent: int, params: Params) -> None:
        """Go on with these parameters."""
        self.agent.net.load_state_dict(bridge.to_torch("value", params))

    def params(self) -> Params:
        """Parameters as the JAX pytree."""
        return self.give(0)

    def rehearse(self) -> None:
        """An update and some actions on made-up data: what the number of threads is chosen by."""
        memory = HostMemory(self.program).history
        batch = memory.cut(memory.choose(np.zeros((self.config.learner.batch_size, 1, 2), np.float32)), 0.0)
        n, stack = self.config.world.num_envs, self.config.world.stack
        self.agent.update(batch)
        for _ in range(self.config.steps_per_tick):
            self.greedy(np.zeros((n, stack, *self.program.view.shape), self.program.view.dtype), self.draw(0))


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
