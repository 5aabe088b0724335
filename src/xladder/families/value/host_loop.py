"""One tick of a value learner for worlds on the host: the rollout and the updates of `program.py`, in Python.

Who acts and who learns are two arguments, so that a PyTorch learner (`torch`), a jitted JAX learner (`sequential`) and
a PyTorch actor that JAX teaches (`hybrid`) run the same loop. The memory is NumPy's, the twin of the one on a device.

Shapes: N copies, F frames per state, T steps per tick, K updates per tick, B batch.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np

from xladder.core.state import Stateful, unique
from xladder.families.value.acting import ActDraws
from xladder.families.value.program import Program
from xladder.families.value.stepping import Ended, Report, Stepper, Transition, of_agent, random_available
from xladder.replay import priorities_host
from xladder.replay.batch import Batch
from xladder.replay.history import History, Picks
from xladder.replay.history_host import HostHistory
from xladder.worlds.copies import HostCopies


class Actor(Protocol):
    """Who plays."""

    worlds: HostCopies

    def draw(self, step: int, agent: int) -> ActDraws:
        """The draws for one choice of action of every copy, as NumPy arrays."""

    def greedy(self, agent: int, stack: np.ndarray, draws: ActDraws) -> np.ndarray:
        """int [N]: the best actions in states [N, F, …]."""

    def draw_picks(self, update: int, agent: int) -> np.ndarray:
        """Uniform numbers that say what an update learns from."""


class Learner(Protocol):
    """Who studies."""

    def learn(self, update: int, agent: int, batch: Batch) -> tuple[float, np.ndarray]:
        """One update. Returns the loss, and how far off each transition was."""

    def sync(self) -> None:
        """The hard update of the target networks."""

    def params(self) -> Any:
        """Parameters as the JAX pytree."""


class HostMemory(Stateful):
    """What is remembered, and how likely each row is to be replayed."""

    STATE = ("history", "chances")

    def __init__(self, program: Program):
        config, view = program.config, program.view
        n, c = config.world.rows, config.learner
        self.program = program
        self.history = HostHistory(n, program.window, view.shape, view.dtype, view.actions)
        self.chances = priorities_host.HostPriorities(n, program.window.length) if c.prioritised else None
        self.alpha, self.beta, self.strata = c.alpha, np.float32(c.beta), c.strata

    def add(self, made: Transition) -> None:
        """One row of every copy."""
        step = made.step
        reward = self.program.reward(step)
        self.history.add(History(made.frames, made.actions, reward, step.terminated, step.truncated, made.first))
        if self.chances is not None:
            self.chances.admit(self.history)

    def sample(self, uniforms: np.ndarray, gamma: float) -> tuple[Picks, Batch]:
        """A batch of transitions, and where they are from."""
        if self.chances is None:
            picks = self.history.choose(uniforms, self.strata)
        else:
            even = np.stack([priorities_host.stratified(uniforms[:, 0]), uniforms[:, 1]], axis=1)
            picks = self.chances.choose(even, float(self.beta))
        return picks, self.history.cut(picks, gamma)

    def rate(self, picks: Picks, errors: np.ndarray) -> None:
        """Priorities by how far off the predictions were."""
        if self.chances is not None:
            self.chances.assign(picks, priorities_host.from_errors(np.asarray(errors), self.alpha))


class HostExperiment(Stateful):
    """One experiment: N copies of a world, its agents and their memories."""

    STATE = ("tick", "memories", "minds", "games")

    def __init__(self, config: Any, actor: Actor, learner: Learner):
        self.config, self.actor, self.learner, self.tick = config, actor, learner, 0
        self.minds = unique(actor, learner)
        self.program = Program(config)
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}
        self.memories = [HostMemory(self.program) for _ in range(self.program.num_agents)]
        self.games = Stepper(actor.worlds, config.world.stack)

    def advance(self) -> dict[str, np.ndarray]:
        """One tick: choose, study in the last step, step, remember."""
        c, begun, studying, losses = self.config, time.perf_counter(), 0.0, []
        epsilon, ended = float(self.program.epsilon(self.tick)), list[Ended]()
        learning = bool(self.program.is_learning(self.tick))
        for t in range(c.steps_per_tick):
            self.games.send(self.choose(self.tick * c.steps_per_tick + t, epsilon))
            if t == c.steps_per_tick - 1:
                paused = time.perf_counter()
                losses = self.study() if learning else []
                studying = time.perf_counter() - paused
            made = self.games.recv()
            for agent, memory in enumerate(self.memories):
                memory.add(of_agent(made, agent, len(self.memories)))
            ended.append(made.ended)
        self.seconds["sampling"].append(time.perf_counter() - begun - studying)
        self.seconds["update"].append(studying)
        self.tick += 1
        updates = self.config.updates_per_tick if learning else 0
        return Report(ended, losses, epsilon, updates, len(self.program.view.agents)).columns()

    def choose(self, step: int, epsilon: float) -> list[np.ndarray]:
        """int [N] for every agent: actions, random with probability ε."""
        chosen = []
        for agent in range(len(self.memories)):
            draws, stack = self.actor.draw(step, agent), self.games.seen_by(agent)
            explore, random = draws.explore < epsilon, np.asarray(draws.action)
            if self.program.view.masked:
                random = random_available(stack[:, -1, -self.program.view.actions :] > 0, random)
            if not explore.all():
                random = np.where(explore, random, self.actor.greedy(agent, stack, draws))
            chosen.append(random)
        return chosen

    def study(self) -> list[float]:
        """The updates of a tick, all of whose batches are drawn before the first. Returns the losses."""
        first, c = self.tick * self.config.updates_per_tick, self.config
        updates = range(first, first + c.updates_per_tick)
        if c.learner.sync_every and self.program.is_syncing(self.tick):
            self.learner.sync()
        losses = []
        for agent, memory in enumerate(self.memories):
            memory.beta = np.float32(self.program.beta(self.tick))
            samples = [memory.sample(self.actor.draw_picks(u, agent), c.learner.gamma) for u in updates]
            said = [self.learner.learn(u, agent, batch) for u, (_, batch) in zip(updates, samples, strict=True)]
            picks = Picks(*(np.concatenate(column) for column in zip(*(picks for picks, _ in samples), strict=True)))
            memory.rate(picks, np.concatenate([errors for _, errors in said]))
            losses += [loss for loss, _ in said]
        return losses
