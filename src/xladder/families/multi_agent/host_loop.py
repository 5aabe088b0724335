"""One epoch for a world on the host: rollout and learning as in `program.py`, in Python.

The actor and the learner are separate arguments, so that PyTorch agents (`torch`), jitted JAX agents (`sequential`) and
PyTorch agents with a JAX learner (`hybrid`) run the same loop.

Shapes: N agents, T turns, F frames, V cells, Q quantiles.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat

import numpy as np

from xladder.core.mapping import pick
from xladder.core.state import Stateful, unique
from xladder.families.multi_agent.program import RolloutDraws
from xladder.replay.frames_host import HostFrameRing

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config


class HostActor(Protocol):
    """Interface of N agents while they act."""

    def draw(self, tick: int) -> RolloutDraws:
        """The random numbers of one epoch's rollout, as NumPy arrays."""

    def greedy(self, agent: int, codes: np.ndarray, taus: np.ndarray) -> int:
        """The greedy action in a state, int8 [F, V]."""


class HostLearner(Protocol):
    """Interface of N agents while they learn."""

    def learn(self, tick: int, agent: int, ring: HostFrameRing) -> SupportsFloat:
        """One update from a replay memory. Returns the loss, which may still be computed on a GPU."""

    def sync(self) -> None:
        """Copy the online networks into the target networks."""

    def params(self) -> Any:
        """The parameters of all agents as the JAX pytree, leaves [N, …]."""


class HostLoop(Stateful):
    """One run: a world, N agents and their replay memories. Every epoch resets the world."""

    STATE = ("tick", "rings", "epsilon", "agents")

    def __init__(self, config: Config, actor: HostActor, learner: HostLearner):
        c = config.learner
        self.config, self.actor, self.learner, self.tick = config, actor, learner, 0
        self.agents = unique(actor, learner)
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}
        self.world = w = config.world.on_host()
        cells = w.encoding.num_cells
        self.rings = [HostFrameRing(c.memory, cells, c.n_frames, c.n_step) for _ in range(w.num_agents)]
        self.epsilon = np.float32(c.epsilon)

    def advance(self) -> dict[str, np.ndarray]:
        """One epoch: sync, roll out, store, learn."""
        c, epsilon = self.config.learner, self.epsilon
        if self.tick % c.target_update_period == 0:
            self.learner.sync()
        begun = time.perf_counter()
        events = self.rollout(self.actor.draw(self.tick))
        played = time.perf_counter()
        started = [
            self.learner.learn(self.tick, i, ring) if ring.can_sample(c.batch_size) else np.nan
            for i, ring in enumerate(self.rings)
        ]
        losses = [float(loss) for loss in started]  # now, when all agents have begun: a GPU is waited for once
        self.seconds["sampling"].append(played - begun)
        self.seconds["update"].append(time.perf_counter() - played)
        decayed = epsilon * (np.float32(1) - np.float32(c.epsilon_decay))
        self.epsilon = max(decayed, np.float32(c.epsilon_min))
        self.tick += 1
        return {
            "returns": self.world.reward(events).sum(0),
            "loss": np.float32(np.mean(losses)),
            "epsilon": epsilon,
            "events": self.world.count(events),
        }

    def close(self) -> None:
        """Nothing to do: the world is arrays."""

    def rollout(self, draws: RolloutDraws) -> np.ndarray:
        """Roll out one epoch after a reset and store it. Returns the events of each agent's actions, int [T, N]."""
        w, world, n = self.config.world, self.world, self.world.num_agents
        for ring in self.rings:
            ring.add_empty()
        stacks = np.stack([np.concatenate([ring.recent(), ring.frames[:1]]) for ring in self.rings])
        explores = draws.acts.explore < self.epsilon
        events = np.zeros((w.max_turns, n), np.int64)
        world.reset(draws.reset)

        def choose(i: int, turn: int) -> int:
            stacks[i, :-1] = stacks[i, 1:]
            stacks[i, -1] = world.view(i)
            if explores[i, turn]:
                return int(draws.acts.action[i, turn])
            return self.actor.greedy(i, stacks[i], draws.acts.taus[i, turn])

        def move(i: int, turn: int, action: int) -> None:
            events[turn, i] = event = world.move(i, action)
            self.rings[i].add(stacks[i, -1], action, world.reward(event), done=False, is_first=turn == 0)

        for turn in range(w.max_turns):
            world.begin_turn(pick(draws.turns, turn))
            if w.observe == "together":
                for i, action in enumerate([choose(i, turn) for i in range(n)]):
                    move(i, turn, action)
            else:
                for i in range(n):
                    move(i, turn, choose(i, turn))
        return events
