"""One iteration of a GFlowNet for a world on the host: the sampling and study of `hypergrid.py`, in Python.

Who acts and who learns are two arguments, so that PyTorch (`torch`), jitted JAX (`sequential`) and PyTorch that JAX
teaches (`hybrid`) run the same loop. A batch of trajectories goes one step at a time.

Shapes: B trajectories, T steps of the longest, D coordinates, A = D + 1 forward actions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from xladder.core.state import Stateful, unique
from xladder.core.types import Params
from xladder.families.gflownet.program import Draws
from xladder.learners.gflownet import Explore, Learned, Trajectories
from xladder.replay.objects_host import HostObjects
from xladder.worlds.hypergrid_host import HostGrid

if TYPE_CHECKING:
    from xladder.families.gflownet.config import Config


class Actor(Protocol):
    """What samples."""

    def draw(self, tick: int) -> Draws:
        """The draws of an iteration, as NumPy arrays."""

    def forward_chances(self, states: np.ndarray, explore: Explore) -> np.ndarray:
        """float32 [B, A]: with what probability sampling takes each action."""

    def backward_chances(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, D]: with what probability walking back takes off each coordinate."""


class Learner(Protocol):
    """What learns."""

    def learn(self, tick: int, agent: int, batch: Trajectories) -> Learned:
        """One update from a batch."""

    def params(self) -> Params:
        """The parameters as the JAX pytree."""


class HostExperiment(Stateful):
    """One experiment: a grid, a GFlowNet and its memory of objects."""

    STATE = ("tick", "memory", "minds")

    def __init__(self, config: Config, actor: Actor, learner: Learner):
        self.config, self.actor, self.learner, self.tick = config, actor, learner, 0
        self.minds = unique(actor, learner)
        self.world = HostGrid(config.world)
        self.memory = HostObjects(config.learner.memory, config.world.dim) if config.remembered else None
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}

    def advance(self) -> dict[str, Any]:
        """One iteration: sample, remember, study."""
        begun = time.perf_counter()
        explore, draws = self.explore(), self.actor.draw(self.tick)
        batch = self.sample(explore, draws.steps)
        found = batch.states[batch.length - 1, np.arange(len(batch.length))]
        log_rewards = self.world.log_reward(found)
        if self.memory is not None:
            self.memory.add(found, log_rewards)
            known = self.memory.sample(draws.picks, self.config.learner.replay == "prioritised")
            old = self.walk_back(known, draws.back)
            batch = Trajectories(
                np.concatenate([batch.states, old.states], axis=1),
                np.concatenate([batch.actions, old.actions], axis=1),
                np.concatenate([batch.length, old.length]),
            )
        sampled = time.perf_counter()
        learned = self.learner.learn(self.tick, 0, batch)
        self.seconds["sampling"].append(sampled - begun)
        self.seconds["update"].append(time.perf_counter() - sampled)
        self.tick += 1
        said = np.exp(log_rewards).mean(), learned.loss, learned.log_z, batch.length.mean(), *explore
        names = ("reward", "loss", "log_z", "length", "epsilon", "temperature")
        return {name: np.float32(value) for name, value in zip(names, said, strict=True)}

    def explore(self) -> Explore:
        """Epsilon and temperature at this tick."""
        c = self.config.learner
        ticks = c.explore_until * self.config.ticks
        done = min(self.tick / ticks, 1.0) if ticks else 1.0
        return Explore(
            np.float32(c.epsilon + done * (c.epsilon_end - c.epsilon)),
            np.float32(c.temperature + done * (c.temperature_end - c.temperature)),
        )

    def sample(self, explore: Explore, draws: np.ndarray) -> Trajectories:
        """A batch from the origin on; `draws` are uniform, float32 [T, B]."""
        steps, count = draws.shape
        stop = self.config.world.dim
        states, actions = np.zeros((steps, count, stop), np.int32), np.zeros((steps, count), np.int32)
        length, state, active = np.zeros(count, np.int32), self.world.initial(count), np.ones(count, bool)
        for t in range(steps):
            action = choose(self.actor.forward_chances(state, explore), draws[t])
            states[t], actions[t] = state, action
            length += active
            state = self.world.forward(state, np.where(active, action, stop))
            active &= action != stop
            if not active.any():
                break
        return Trajectories(states, actions, length)

    def walk_back(self, objects: np.ndarray, draws: np.ndarray) -> Trajectories:
        """Trajectories that end in given objects [B, D]; `draws` are uniform, float32 [T, B]."""
        steps, count = draws.shape
        stop, moves, state = self.config.world.dim, objects.sum(-1), objects
        states, actions = np.zeros((steps, count, stop), np.int32), np.full((steps, count), stop, np.int32)
        states[moves, np.arange(count)] = objects
        for k in range(int(moves.max(initial=0))):
            active = np.flatnonzero(state.any(-1))
            action = choose(self.actor.backward_chances(state), draws[k])
            state = self.world.backward(state, np.where(state.any(-1), action, stop))
            place = moves[active] - 1 - k, active
            states[place], actions[place] = state[active], action[active]
        return Trajectories(states, actions, (moves + 1).astype(np.int32))


def choose(chances: np.ndarray, draw: np.ndarray) -> np.ndarray:
    """int64 [B]: the actions that uniform numbers [B] stand for, given chances [B, A]."""
    heights = np.cumsum(chances, axis=-1)
    return (heights[:, :-1] <= (draw * heights[:, -1])[:, None]).sum(-1)
