"""The value learner in PyTorch; its random numbers come from NumPy's and PyTorch's generators."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor

from xladder.core.compiling import compiled
from xladder.core.types import Params
from xladder.families.value import own_torsos, torso_twins_torch
from xladder.families.value.acting import ActDraws, Choice
from xladder.families.value.config import ValueConfig
from xladder.families.value.host_loop import HostMemory
from xladder.families.value.learner_config import LearnerConfig
from xladder.families.value.program import Program
from xladder.families.value.torsos import BYTE, PICTURE_AXES, is_own
from xladder.learners.recurrent_torch import RecurrentTorchLearner
from xladder.learners.state_torch import TorchBackend
from xladder.learners.value_torch import TorchLearner
from xladder.losses.heads_torch import make_head
from xladder.nets import torsos_torch
from xladder.nets.fields_torch import unflatten
from xladder.nets.normaliser_torch import Normaliser
from xladder.nets.recurrent_torch import Gru, RecurrentNet
from xladder.nets.team_torch import TeamNet
from xladder.nets.value_torch import Head, ValueNet
from xladder.replay.history import CANDIDATES
from xladder.worlds.envs import EnvSpec


class Backend(TorchBackend):
    """PyTorch agents and the envs of their world."""

    STATE = ("rng", "agents")

    def __init__(self, config: ValueConfig, seed: int, device: str):
        self.config, self.program = config, Program(config)
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.agents = [make_learner(config, device) for _ in range(self.program.num_agents)]
        self._seed = seed

    @cached_property
    def worlds(self) -> Any:
        """The envs of the world, created on first use."""
        world = self.config.world
        return world.on_host(world.num_envs, self._seed, compiled)

    def draw(self, step: int, agent: int) -> ActDraws:
        """The random numbers for one action selection."""
        n, spec, learner = self.config.world.rows, self.program.spec, self.agents[agent]
        fractions = self.config.learner.act_quantiles if learner.head.fractions else 0
        rng, repeat = self.rng, self.config.learner.explore_repeat
        if repeat > 1:  # the same numbers for so many steps, and after a resumption
            rng = np.random.default_rng((self._seed, agent, step // repeat))
        shape = n, *spec.choices
        explore, masked = rng.random(shape, dtype=np.float32), spec.masked
        return ActDraws(
            explore=explore,
            action=rng.random(shape, np.float32) if masked else rng.integers(0, spec.actions, shape, dtype=np.int32),
            taus=self.rng.random((n, fractions), dtype=np.float32),
            noise=self.rng.standard_normal((n, learner.net.head.noise_size), dtype=np.float32),
        )

    def greedy(self, agent: int, stack: np.ndarray, hidden: Any, draws: ActDraws) -> Choice:
        """The greedy actions in a batch of states."""
        noise = draws.noise if draws.noise.shape[1] else None
        values, hidden = self.agents[agent].step_values(stack, hidden, draws.taus, noise)
        return Choice(values.argmax(-1), hidden)

    def draw_indices(self, update: int, agent: int) -> np.ndarray:
        """Uniform numbers that pick where the samples of an update start."""
        c = self.config.learner
        shape = (c.batch_size, 2) if c.prioritised else (c.batch_size, CANDIDATES, 2)
        return self.rng.random(shape, dtype=np.float32)

    def learn(self, update: int, agent: int, batch: Any) -> tuple[Tensor, np.ndarray | None]:
        """One update; a GPU is waited for only where the errors are needed."""
        loss, errors = self.agents[agent].start_update(batch)
        return loss, errors.cpu().numpy() if self.config.learner.prioritised else None

    def see(self, agent: int, frames: np.ndarray) -> None:
        """Add frames [N, *frame] of training to the statistics that normalise observations."""
        self.agents[agent].see(frames)

    def sync(self) -> None:
        """Copy the online networks into the target networks."""
        for agent in self.agents:
            agent.sync()

    def give(self, agent: int) -> Params:
        """The parameters of one agent as the JAX pytree."""
        return self.agents[agent].to_jax(self.agents[agent].net.state_dict())

    def take(self, agent: int, params: Params) -> None:
        """Load these parameters."""
        self.agents[agent].load(params)

    def params(self) -> Params:
        """Parameters as the JAX pytree; of several agents, leaves [A, …]."""
        if not self.program.spec.agents:
            return self.give(0)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(self.give(i) for i in range(len(self.agents))))

    def learners(self) -> list[TorchLearner]:
        """The learners, one per agent."""
        return self.agents

    def dry_run(self, agent: int = 0) -> None:
        """Run an update and some actions on made-up data; used to choose the number of threads."""
        memory, uniforms = HostMemory(self.program), np.zeros((self.config.learner.batch_size, 1, 2), np.float32)
        batch = memory.gather(memory.history.sample_indices(uniforms), 0.0)
        n, stack = self.config.world.rows, self.config.world.stack
        self.agents[agent].update(batch)
        for _ in range(self.config.steps_per_tick):
            stacks = np.zeros((n, stack, *self.program.spec.shape), self.program.spec.dtype)
            hidden = np.zeros((n, self.config.hidden_width), np.float32) if self.config.learner.recurrent else ()
            self.greedy(agent, stacks, hidden, self.draw(0, agent))


def make_learner(config: ValueConfig, device: str = "cpu") -> TorchLearner:
    """Build the PyTorch learner from the settings and the world's frame shape alone."""
    c, whole, stack = config.learner, config.world.spec(), config.world.stack
    spec, own = whole.of_one, is_own(c.torso)
    kind, axes = RecurrentTorchLearner if c.recurrent else TorchLearner, len(spec.shape)

    def one() -> torch.nn.Module:
        torso = torso_twins_torch.make_twin(c.torso, spec, stack) if own else make_torso(c, spec, stack)
        return make_net(c, torso, spec, stack, config.world.scaling)

    names = torso_twins_torch.torso_names(c.torso, spec, stack) if own else None
    if not whole.team:
        return kind(c, one(), device, spec.masked * axes, names)
    members = [one() for _ in range(1 if whole.shared else whole.team)]
    return kind(c, TeamNet(members, whole.team, axes), device, spec.masked * axes, names, whole.team)


def make_torso(config: LearnerConfig, spec: EnvSpec, stack: int) -> torch.nn.Module:
    """Build one of the built-in torsos."""
    if config.torso in ("nature", "nature_same"):
        padded, colour = config.torso == "nature_same", len(spec.shape) == PICTURE_AXES
        channels, bright = (stack * spec.seen[-1], spec.max_value) if colour else (stack, BYTE)
        return torsos_torch.NatureCnn(channels, padded=padded, max_value=bright)
    if config.torso == "minatar":
        return torsos_torch.MinAtarCnn(spec.seen[-1], stack, max_value=spec.max_value)
    return torsos_torch.Mlp(stack * int(np.prod(spec.seen)), config.hidden, max_value=spec.max_value)


def make_net(
    config: LearnerConfig,
    torso: torch.nn.Module,
    spec: EnvSpec,
    stack: int,
    scaling: tuple[float, float] | None = None,
) -> torch.nn.Module:
    """Build the network around a torso, which is called once to find its number of features."""
    fields = spec.fields if is_own(config.torso) and own_torsos.is_by_key(config.torso) else ()
    state = torch.from_numpy(np.zeros((1, stack, *spec.seen), spec.dtype))
    with torch.no_grad():
        features = torso(unflatten(state, fields) if fields else state).shape[-1]
    kind = make_head(config)
    head = Head(
        spec.actions,
        config.recurrent or features,
        config.width,
        atoms=kind.outputs,
        cosines=kind.cosines,
        dueling=config.dueling,
        apart=config.streams == "apart",
        sigma=config.sigma if config.noisy else None,
    )
    given = fields, Normaliser(spec.seen, *scaling) if scaling else None
    if config.recurrent:
        return RecurrentNet(torso, Gru(features, config.recurrent), head, *given)
    return ValueNet(torso, head, *given)
