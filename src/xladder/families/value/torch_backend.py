"""The value learner in PyTorch; what it draws comes from NumPy's and PyTorch's generators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from xladder.core.types import Params
from xladder.families.value import own_torsos
from xladder.families.value.acting import ActDraws
from xladder.families.value.host_loop import HostMemory
from xladder.families.value.program import Program
from xladder.families.value.torsos import is_own
from xladder.learners.state_torch import TorchVerbs
from xladder.learners.value_torch import TorchLearner
from xladder.losses.heads_torch import make_head
from xladder.nets import torsos_torch
from xladder.nets.fields_torch import unflatten
from xladder.nets.value_torch import Head, ValueNet
from xladder.replay.batch import Batch
from xladder.replay.history import CANDIDATES
from xladder.rungs.running import compiled
from xladder.worlds.copies import View


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
        n = self.config.world.num_envs
        fractions = self.config.learner.act_quantiles if self.agent.head.fractions else 0
        return ActDraws(
            explore=self.rng.random(n, dtype=np.float32),
            action=self.rng.integers(0, self.program.view.actions, n, dtype=np.int32),
            taus=self.rng.random((n, fractions), dtype=np.float32),
            noise=self.rng.standard_normal((n, self.agent.net.head.noise_size), dtype=np.float32),
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
        return self.agent.to_jax(self.agent.net.state_dict())

    def take(self, agent: int, params: Params) -> None:
        """Go on with these parameters."""
        self.agent.load(params)

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
    """The PyTorch learner that the settings describe, made from them and from what the world shows alone."""
    c, view, stack = config.learner, config.world.view(), config.world.stack
    torso, own = own_torsos.make_twin(c.torso, view, stack) if is_own(c.torso) else make_torso(c, view, stack), None
    net = make_net(c, torso, view, stack)
    if is_own(c.torso):
        own = own_torsos.torso_names(c.torso, view, stack)
    return TorchLearner(c, net, device, view.masked, own)


def make_torso(config: Any, view: View, stack: int) -> torch.nn.Module:
    """One of the built-in torsos."""
    if config.torso == "nature":
        return torsos_torch.NatureCnn(stack)
    if config.torso == "minatar":
        return torsos_torch.MinAtarCnn(view.seen[-1], stack, brightest=view.brightest)
    return torsos_torch.Mlp(stack * int(np.prod(view.seen)), config.hidden, brightest=view.brightest)


def make_net(config: Any, torso: torch.nn.Module, view: View, stack: int) -> ValueNet:
    """The network round a torso; how many features that has is found out by calling it."""
    fields = view.fields if is_own(config.torso) and own_torsos.is_by_key(config.torso) else ()
    state = torch.from_numpy(np.zeros((1, stack, *view.seen), view.dtype))
    with torch.no_grad():
        features = torso(unflatten(state, fields) if fields else state).shape[-1]
    kind = make_head(config)
    head = Head(
        view.actions,
        features,
        config.width,
        atoms=kind.outputs,
        cosines=kind.cosines,
        dueling=config.dueling,
        sigma=config.sigma if config.noisy else None,
    )
    return ValueNet(torso, head, fields)
