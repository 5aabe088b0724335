"""One tick of a value learner for worlds on the host: the play and study of `value.py`, in Python.

Who acts and who learns are two arguments, so that a PyTorch learner (`torch`), a jitted JAX learner (`sequential`) and
a PyTorch actor that JAX teaches (`hybrid`) run the same loop. The memory is NumPy's, the twin of the one on a device.

Shapes: N copies, F frames per state, T steps per tick, K updates per tick, B batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from xladder.core.state import Stateful, unique
from xladder.families.value.acting import ActDraws
from xladder.families.value.program import Program
from xladder.replay import history_host, priorities_host
from xladder.replay.batch import Batch
from xladder.replay.history import History, Picks
from xladder.replay.history_host import HostHistory
from xladder.worlds.copies import HostCopies, Step


class Actor(Protocol):
    """Who plays."""

    worlds: HostCopies

    def draw(self, step: int) -> ActDraws:
        """The draws for one choice of action of every copy, as NumPy arrays."""

    def greedy(self, stack: np.ndarray, draws: ActDraws) -> np.ndarray:
        """int [N]: the best actions in states [N, F, …]."""

    def draw_picks(self, update: int) -> np.ndarray:
        """Uniform numbers that say what an update learns from."""


class Learner(Protocol):
    """Who studies."""

    def learn(self, update: int, agent: int, batch: Batch) -> tuple[float, np.ndarray]:
        """One update. Returns the loss, and how far off each transition was."""

    def sync(self) -> None:
        """The hard update of the target network."""

    def params(self) -> Any:
        """Parameters as the JAX pytree."""


class HostMemory(Stateful):
    """What is remembered, and how likely each row is to be replayed."""

    STATE = ("history", "chances")

    def __init__(self, program: Program):
        config, view = program.config, program.view
        n, c = config.world.num_envs, config.learner
        self.history = HostHistory(n, program.window, view.shape, view.dtype)
        self.chances = priorities_host.HostPriorities(n, program.window.length) if c.prioritised else None
        self.clip, self.alpha, self.beta, self.strata = c.clip_rewards, c.alpha, np.float32(c.beta), c.strata

    def add(self, frames: np.ndarray, first: np.ndarray, actions: np.ndarray, step: Step) -> None:
        """One row of every copy."""
        reward = np.clip(step.reward, -1.0, 1.0) if self.clip else step.reward
        self.history.add(History(frames, actions, reward, step.terminated, step.truncated, first))
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


class Score(Stateful):
    """What the games of N copies have come to."""

    STATE = ("total", "steps")

    def __init__(self, num_envs: int):
        self.total, self.steps = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32)

    def add(self, step: Step) -> list[tuple[float, int]]:
        """Count a step. Returns total and length of every game that ended."""
        first = np.asarray(step.first)
        ended = list(zip(self.total[first].tolist(), self.steps[first].tolist(), strict=True))
        self.total = np.where(first, np.float32(0), self.total + step.reward)
        self.steps = np.where(first, 0, self.steps + 1)
        return ended


class Row(NamedTuple):
    """What one tick reports."""

    ended: Sequence[tuple[float, int]]
    loss: float
    epsilon: float
    updates: int

    def columns(self) -> dict[str, Any]:
        """Under the names of `value.Metrics`."""
        totals, lengths = zip(*self.ended, strict=True) if self.ended else ((np.nan,), (np.nan,))
        return {
            "returns": np.float32(np.mean(totals)),
            "length": np.float32(np.mean(lengths)),
            "episodes": np.int32(len(self.ended)),
            "loss": np.float32(self.loss),
            "epsilon": np.float32(self.epsilon),
            "updates": np.int32(self.updates),
        }


class HostExperiment(Stateful):
    """One experiment: N copies of a world, an agent and its memory."""

    STATE = ("tick", "memory", "minds")

    def __init__(self, config: Any, actor: Actor, learner: Learner):
        self.config, self.actor, self.learner, self.tick = config, actor, learner, 0
        self.minds, self.worlds = unique(actor, learner), actor.worlds
        self.program = Program(config)
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}
        self.memory = HostMemory(self.program)
        self.score = Score(config.world.num_envs)
        frames = self.worlds.reset()
        self.first = np.ones(config.world.num_envs, bool)
        stack = np.zeros((len(frames), config.world.stack, *frames.shape[1:]), frames.dtype)
        self.stack = history_host.push(stack, frames, self.first)

    def state(self) -> dict[str, Any]:
        """What it goes on from. Games that cannot be carried over begin anew, and so does what is seen of them."""
        games = {"worlds": self.worlds, "score": self.score, "stack": self.stack, "first": self.first}
        return {**super().state(), **(games if hasattr(self.worlds, "take_state") else {})}

    def advance(self) -> dict[str, np.ndarray]:
        """One tick: choose, study in the last step, step, remember."""
        c, begun, studying, losses = self.config, time.perf_counter(), 0.0, []
        epsilon, ended = float(self.program.epsilon(self.tick)), []
        learning = bool(self.program.is_learning(self.tick))
        for t in range(c.steps_per_tick):
            actions = self.choose(self.tick * c.steps_per_tick + t, epsilon)
            self.worlds.send(actions)
            if t == c.steps_per_tick - 1:
                paused = time.perf_counter()
                losses = self.study() if learning else []
                studying = time.perf_counter() - paused
            ended += self.observe(actions, self.worlds.recv())
        self.seconds["sampling"].append(time.perf_counter() - begun - studying)
        self.seconds["update"].append(studying)
        self.tick += 1
        return Row(ended, float(np.mean(losses)) if losses else np.nan, epsilon, len(losses)).columns()

    def choose(self, step: int, epsilon: float) -> np.ndarray:
        """int [N]: an action for every copy, random with probability ε."""
        draws = self.actor.draw(step)
        explore = draws.explore < epsilon
        if explore.all():
            return np.asarray(draws.action)
        return np.where(explore, draws.action, self.actor.greedy(self.stack, draws))

    def study(self) -> list[float]:
        """The updates of a tick, all of whose batches are drawn before the first. Returns the losses."""
        first = self.tick * self.config.updates_per_tick
        updates = range(first, first + self.config.updates_per_tick)
        self.memory.beta = np.float32(self.program.beta(self.tick))
        if self.config.learner.sync_every and self.program.is_syncing(self.tick):
            self.learner.sync()
        gamma = self.config.learner.gamma
        samples = [self.memory.sample(self.actor.draw_picks(update), gamma) for update in updates]
        said = [self.learner.learn(update, 0, batch) for update, (_, batch) in zip(updates, samples, strict=True)]
        picks = Picks(*(np.concatenate(column) for column in zip(*(picks for picks, _ in samples), strict=True)))
        self.memory.rate(picks, np.concatenate([errors for _, errors in said]))
        return [loss for loss, _ in said]

    def observe(self, actions: np.ndarray, step: Step) -> list[tuple[float, int]]:
        """What has come of the actions, into the memory. Returns what the games that ended came to."""
        self.memory.add(self.stack[:, -1], self.first, actions, step)
        self.stack = history_host.push(self.stack, np.asarray(step.frame), step.first)
        self.first = np.asarray(step.first)
        return self.score.add(step)
