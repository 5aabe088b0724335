"""One tick of a value learner for worlds on the host: the rollout and the updates of `program.py`, in Python.

The actor and the learner are separate arguments, so that a PyTorch learner (`torch`), a jitted JAX learner
(`sequential`) and a PyTorch actor with a JAX learner (`hybrid`) run the same loop. The replay memory is in NumPy, the
twin of the one on a device.

Shapes: N envs, F frames per state, T steps per tick, K updates per tick, B batch.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Protocol, SupportsFloat

import numpy as np

from xladder.core.state import Stateful, unique
from xladder.families.value.acting import ActDraws, Choice
from xladder.families.value.config import ValueConfig
from xladder.families.value.program import Program
from xladder.families.value.stepping import Ended, Report, Stepper, Transition, of_agent, random_available
from xladder.replay import priorities_host, sequences_host
from xladder.replay.history import SampleIndices
from xladder.replay.history_host import HostHistory
from xladder.worlds.envs import HostEnvs, available


class HostActor(Protocol):
    """Interface of the actor."""

    worlds: HostEnvs

    def draw(self, step: int, agent: int) -> ActDraws:
        """The random numbers for one action selection in every env, as NumPy arrays."""

    def greedy(self, agent: int, stack: np.ndarray, hidden: Any, draws: ActDraws) -> Choice:
        """The best actions in states [N, F, …], after hidden states [N, H]; () for a network without memory."""

    def draw_indices(self, update: int, agent: int) -> np.ndarray:
        """Uniform numbers that pick where the samples of an update start."""


class HostLearner(Protocol):
    """Interface of the learner."""

    def learn(self, update: int, agent: int, batch: Any) -> tuple[SupportsFloat, np.ndarray | None]:
        """One update. Returns the loss, which may still be computed on a GPU, and each transition's error.

        Without prioritised replay, errors may be None.
        """

    def see(self, agent: int, frames: np.ndarray) -> None:
        """Add frames [N, *frame] of training to the statistics that normalise observations."""

    def sync(self) -> None:
        """Copy the online networks into the target networks."""

    def params(self) -> Any:
        """Parameters as the JAX pytree."""


class HostMemory(Stateful):
    """A replay memory, with priorities if replay is prioritised."""

    STATE = ("history", "priorities")

    def __init__(self, program: Program):
        config, spec = program.config, program.spec
        n, c = config.world.rows, config.learner
        self.program = program
        sizes = spec.actions, config.hidden_width, spec.choices
        self.history = HostHistory(n, program.window, spec.shape, spec.dtype, *sizes)
        self.gather: Any = partial(sequences_host.gather, self.history) if c.recurrent else self.history.gather
        self.priorities = priorities_host.HostPriorities(n, program.window.length) if c.prioritised else None
        self.alpha, self.beta, self.strata = c.alpha, np.float32(c.beta), c.strata

    def add(self, made: Transition) -> None:
        """Add one row per env."""
        self.history.add(made.columns(self.program.reward(made.step)))
        if self.priorities is not None:
            self.priorities.admit(self.history)

    def sample(self, uniforms: np.ndarray, gamma: float) -> tuple[SampleIndices, Any]:
        """Sample a batch of transitions, or of sequences for a network with memory. Returns their indices, too."""
        if self.priorities is None:
            indices = self.history.sample_indices(uniforms, self.strata)
        else:
            even = np.stack([priorities_host.stratified(uniforms[:, 0]), uniforms[:, 1]], axis=1)
            indices = self.priorities.sample_indices(even, float(self.beta))
        return indices, self.gather(indices, gamma)

    def update_priorities(self, indices: SampleIndices, errors: np.ndarray) -> None:
        """Set priorities from the errors of an update."""
        if self.priorities is not None:
            self.priorities.assign(indices, priorities_host.from_errors(np.asarray(errors), self.alpha))


class HostLoop(Stateful):
    """One run: N envs of a world, its agents and their replay memories."""

    STATE = ("tick", "memories", "agents", "games")

    def __init__(self, config: ValueConfig, actor: HostActor, learner: HostLearner):
        self.config, self.actor, self.learner, self.tick = config, actor, learner, 0
        self.agents = unique(actor, learner)
        self.program = Program(config)
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}
        self.memories = [HostMemory(self.program) for _ in range(self.program.num_agents)]
        self.games = Stepper(actor.worlds, config.world.stack, config.hidden_width)
        for agent in range(len(self.memories)):
            self.see(agent, self.games.seen_by(agent)[:, -1])

    def advance(self) -> dict[str, np.ndarray]:
        """One tick: choose actions, learn (in the last step only), step the envs, store."""
        c, begun, updating, losses = self.config, time.perf_counter(), 0.0, []
        epsilon, ended = float(self.program.epsilon(self.tick)), list[Ended]()
        learning = bool(self.program.is_learning(self.tick))
        for t in range(c.steps_per_tick):
            choices = self.choose(self.tick * c.steps_per_tick + t, epsilon)
            self.games.send([one.actions for one in choices], [one.hidden for one in choices])
            if t == c.steps_per_tick - 1:
                paused = time.perf_counter()
                losses = self.learn() if learning else []
                updating = time.perf_counter() - paused
            made = self.games.recv()
            for agent, memory in enumerate(self.memories):
                own = of_agent(made, agent, len(self.memories))
                memory.add(own)
                self.see(agent, own.step.frame)
            ended.append(made.ended)
        self.seconds["sampling"].append(time.perf_counter() - begun - updating)
        self.seconds["update"].append(updating)
        self.tick += 1
        updates = self.config.updates_per_tick if learning else 0
        return Report(ended, losses, epsilon, updates, len(self.program.spec.agents)).columns()

    def close(self) -> None:
        """Close the envs."""
        self.games.close()

    def see(self, agent: int, frames: np.ndarray) -> None:
        """Add frames to the running statistics of actor and learner, if these normalise observations."""
        if self.config.world.scaling is not None:
            for one in self.agents:
                one.see(agent, frames)

    def choose(self, step: int, epsilon: float) -> list[Choice]:
        """What every agent's envs are to do: random actions with probability ε."""
        chosen = []
        for agent in range(len(self.memories)):
            draws, stack = self.actor.draw(step, agent), self.games.seen_by(agent)
            explore, random = draws.explore < epsilon, np.asarray(draws.action)
            if self.program.spec.masked:
                random = random_available(available(self.program.spec, stack[:, -1]), random)
            choice = Choice(random)
            if self.config.learner.recurrent or not explore.all():  # a network with memory sees every frame
                greedy = self.actor.greedy(agent, stack, self.games.hidden_of(agent), draws)
                choice = greedy._replace(actions=np.where(explore, random, greedy.actions))
            chosen.append(choice)
        return chosen

    def learn(self) -> list[float]:
        """All updates of a tick; their batches are drawn before the first update. Returns the losses."""
        first, c = self.tick * self.config.updates_per_tick, self.config
        updates = range(first, first + c.updates_per_tick)
        if c.learner.target_update_period and self.program.is_syncing(self.tick):
            self.learner.sync()
        losses = []
        for agent, memory in enumerate(self.memories):
            memory.beta = np.float32(self.program.beta(self.tick))
            samples = [memory.sample(self.actor.draw_indices(u, agent), c.learner.gamma) for u in updates]
            outputs = [self.learner.learn(u, agent, batch) for u, (_, batch) in zip(updates, samples, strict=True)]
            if memory.priorities is not None:
                indices = SampleIndices(
                    *(np.concatenate(column) for column in zip(*(indices for indices, _ in samples), strict=True))
                )
                memory.update_priorities(indices, np.concatenate([errors for _, errors in outputs]))
            losses += [loss for loss, _ in outputs]
        return [float(loss) for loss in losses]  # now, when all updates have begun: a GPU is waited for once
