"""One iteration of a GFlowNet for a world on the host: sampling and learning as in `program.py`, in Python.

The actor and the learner are separate arguments, so that PyTorch (`torch`), jitted JAX (`sequential`) and a PyTorch
sampler with a JAX learner (`hybrid`) run the same loop. All trajectories of a batch take each step together.

Shapes: B trajectories, T steps of the longest, D numbers in a state, A forward actions, the last of which is stop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from xladder.core.state import Stateful, unique
from xladder.core.types import Params
from xladder.families.gflownet.local_search_host import refine
from xladder.families.gflownet.program import Draws
from xladder.learners.gflownet import Explore, Learned, Trajectories
from xladder.replay.objects_host import HostObjects
from xladder.worlds.flow import host_terms
from xladder.worlds.flow_jitted import JittedHost

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

SMALLEST = np.float32(1e-30)  # weight of a reward whose logarithm is taken


class HostActor(Protocol):
    """Interface of the sampler."""

    def draw(self, tick: int) -> Draws:
        """The random numbers of an iteration, as NumPy arrays."""

    def forward_policy(self, states: np.ndarray, explore: Explore, condition: np.ndarray | None) -> np.ndarray:
        """float32 [B, A]: the probability with which sampling takes each action."""

    def backward_policy(self, states: np.ndarray, condition: np.ndarray | None) -> np.ndarray:
        """float32 [B, A − 1]: the probability with which each action is undone."""


class HostLearner(Protocol):
    """Interface of the learner."""

    def learn(self, tick: int, agent: int, batch: Trajectories) -> Learned:
        """One update from a batch."""

    def params(self) -> Params:
        """The parameters as the JAX pytree."""


class HostLoop(Stateful):
    """One run: a world, a GFlowNet and its replay memory of objects."""

    STATE = ("tick", "memory", "found", "agents")

    def __init__(self, config: GFlowNetConfig, actor: HostActor, learner: HostLearner):
        self.config, self.actor, self.learner, self.tick = config, actor, learner, 0
        self.agents = unique(actor, learner)
        self.world = config.world.host()
        self.memory = HostObjects(config.learner.memory, self.world.state_size) if config.remembered else None
        modes = config.world.modes_counted
        self.found = np.zeros(modes, bool) if modes else None
        self._counter = JittedHost(config.world.build()) if modes else None  # counting modes is no part of learning
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}

    def advance(self) -> dict[str, Any]:
        """One iteration: sample, store, learn."""
        begun = time.perf_counter()
        explore, draws = self.explore(), self.actor.draw(self.tick)
        new = draws.steps.shape[1]
        condition = None if draws.condition is None else self.condition(draws.condition)
        now, then = (None, None) if condition is None else (condition[:new], condition[new:])
        batch = self.sample(explore, draws.steps, condition=now)
        log_rewards = self.world.log_reward(objects_of(batch))
        reward = np.exp(log_rewards).mean()
        if draws.search is not None:
            batch = refine(self, batch, draws.search)
            log_rewards = self.world.log_reward(objects_of(batch))
        if self._counter is not None and self.found is not None:
            self.found = self.found | self._counter.near_modes(objects_of(batch)).any(0)
        if self.memory is not None:
            add = self.memory.add_diverse if self.config.learner.replay == "diverse" else self.memory.add
            add(objects_of(batch), log_rewards)
            known = self.memory.sample(draws.indices, self.config.learner.replay != "uniform")
            old = self.sample_backward(known, draws.back, then)
            batch = Trajectories(
                np.concatenate([batch.states, old.states], axis=1),
                np.concatenate([batch.actions, old.actions], axis=1),
                np.concatenate([batch.length, old.length]),
                condition,
            )
        sampled = time.perf_counter()
        learned = self.learner.learn(self.tick, 0, batch)
        self.seconds["sampling"].append(sampled - begun)
        self.seconds["update"].append(time.perf_counter() - sampled)
        self.tick += 1
        modes = np.nan if self.found is None else self.found.sum()
        values = reward, learned.loss, learned.log_z, batch.length.mean(), *explore, modes
        names = ("reward", "loss", "log_z", "length", "epsilon", "temperature", "modes_found")
        return {name: np.float32(value) for name, value in zip(names, values, strict=True)}

    def close(self) -> None:
        """Nothing to do: the world is functions of states."""

    def explore(self) -> Explore:
        """ε and temperature at this tick."""
        c = self.config.learner
        ticks = c.explore_until * self.config.ticks
        done = min(self.tick / ticks, 1.0) if ticks else 1.0
        return Explore(
            np.float32(c.epsilon + done * (c.epsilon_end - c.epsilon)),
            np.float32(c.temperature + done * (c.temperature_end - c.temperature)),
        )

    def condition(self, draws: np.ndarray) -> np.ndarray:
        """float32 [B] or [B, K]: conditions from draws, places in [0, 1] of their range or weights themselves."""
        if self.config.preferential:
            return draws
        low, high = self.config.learner.condition_low, self.config.learner.condition_high
        return (np.float32(low) + np.float32(high - low) * draws).astype(np.float32)

    def log_rewards(self, states: np.ndarray, condition: np.ndarray | None) -> np.ndarray:
        """float32 [B]: the log-rewards of states [B, D], under conditions [B] or [B, K] if given."""
        if condition is None or not self.config.preferential:
            plain = self.world.log_reward(states)
            return plain if condition is None else condition * plain
        terms = host_terms(self.world, states)
        if self.config.learner.scalarisation == "product":
            return (condition * terms).sum(-1)
        return np.logaddexp.reduce(terms + np.log(np.maximum(condition, SMALLEST)), axis=-1)

    def sample(
        self,
        explore: Explore,
        draws: np.ndarray,
        start: np.ndarray | None = None,
        condition: np.ndarray | None = None,
    ) -> Trajectories:
        """Sample a batch forward from the initial state or states [B, D]; `draws` are uniform, float32 [T, B]."""
        steps, count = draws.shape
        stop = self.world.num_actions - 1
        states = np.zeros((steps, count, self.world.state_size), np.int32)
        actions = np.zeros((steps, count), np.int32)
        state = self.world.initial(count) if start is None else start
        length, active = np.zeros(count, np.int32), np.ones(count, bool)
        for t in range(steps):
            action = choose(self.actor.forward_policy(state, explore, condition), draws[t])
            states[t], actions[t] = state, action
            length += active
            state = self.world.forward(state, np.where(active, action, stop))
            active &= action != stop
            if not active.any():
                break
        return Trajectories(states, actions, length, condition)

    def sample_backward(
        self, objects: np.ndarray, draws: np.ndarray, condition: np.ndarray | None = None
    ) -> Trajectories:
        """Trajectories that end in given objects [B, D]; `draws` are uniform, float32 [T, B]."""
        steps, count = draws.shape
        stop, state, moves = self.world.num_actions - 1, objects, np.zeros(count, np.int32)
        backwards: list[tuple[np.ndarray, np.ndarray]] = []  # (state before, action) of each step, last step first
        for k in range(steps - 1):
            active = self.world.backward_mask(state).any(-1)
            if not active.any():
                break
            action = np.where(active, choose(self.actor.backward_policy(state, condition), draws[k]), stop)
            state = self.world.backward(state, action)
            backwards.append((state, action))
            moves += active
        states = np.zeros((steps, count, self.world.state_size), np.int32)
        actions = np.full((steps, count), stop, np.int32)
        states[moves, np.arange(count)] = objects
        for k, (before, action) in enumerate(backwards):
            who = np.flatnonzero(moves > k)
            place = moves[who] - 1 - k, who
            states[place], actions[place] = before[who], action[who]
        return Trajectories(states, actions, moves + 1, condition)


def objects_of(batch: Trajectories) -> np.ndarray:
    """int [B, D]: the final states of trajectories."""
    return batch.states[batch.length - 1, np.arange(len(batch.length))]


def choose(probs: np.ndarray, draw: np.ndarray) -> np.ndarray:
    """int64 [B]: actions sampled from probabilities [B, A] with uniform numbers [B]."""
    heights = np.cumsum(probs, axis=-1)
    return (heights[:, :-1] <= (draw * heights[:, -1])[:, None]).sum(-1)
