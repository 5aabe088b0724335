"""Our worlds on the host, one episode at a time: what the environments for PettingZoo and Gymnasium are made of.

Worlds with turns are their NumPy twins, which training compares with the JAX worlds; the others are the JAX worlds
themselves, jitted.

Shapes: A agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.apis.interface import Interface, Observations, Outcome, check_action, of_envs, of_turns
from xladder.apis.painting import paint_observation, paint_turn
from xladder.core.compiling import compiled
from xladder.core.mapping import pick

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import WorldSettings


class HostTurnGame:
    """An epoch of a world in which agents take turns.

    A turn is `observe` and `act` for every agent, then `end_turn`. `step` does that for agents that observe together.
    """

    def __init__(self, world: WorldSettings, observations: Observations = "encoded"):
        self.settings, self.world = world, world.on_host()
        self.interface: Interface = of_turns(self.world, observations)
        self._encoded = observations == "encoded"
        self._tables = [block.table() for block in self.world.encoding.blocks]
        self._turns: Any = None
        self.turn = 0

    def begin(self, rng: np.random.Generator) -> np.ndarray:
        """Begin an epoch; returns what the agents see in its first turn, [A, *shape]."""
        return self.begin_with(self.world.draw_reset(rng), self.world.draw_turns(rng, self.settings.max_turns))

    def begin_with(self, reset: Any, turns: Any) -> np.ndarray:
        """The same with given random numbers: of the reset, and of all turns, leaves [T, …]."""
        self.world.reset(reset)
        self._turns, self.turn = turns, 0
        self.world.begin_turn(pick(turns, 0))
        return self.observe_all()

    def observe(self, agent: int) -> np.ndarray:
        """What one agent sees now."""
        codes = self.world.view(agent)
        if not self._encoded:
            return codes.astype(np.int8)
        parts = [codes[p.first_cell : p.first_cell + p.block.cells] for p in self.world.encoding.parts]
        return np.concatenate(
            [table[seen].T.ravel() for table, seen in zip(self._tables, parts, strict=True)]  # channel first
        )

    def observe_all(self) -> np.ndarray:
        """What all agents see now, [A, *shape]."""
        return np.stack([self.observe(agent) for agent in range(self.world.num_agents)])

    def act(self, agent: int, action: Any) -> float:
        """Let one agent act; returns its reward."""
        return float(self.world.reward(self.world.move(agent, check_action(self.interface, action))))

    def end_turn(self) -> bool:
        """End the turn and begin the next one; returns whether that was the last of the epoch."""
        self.turn += 1
        over = self.turn >= self.settings.max_turns
        if not over:
            self.world.begin_turn(pick(self._turns, self.turn))
        return over

    def step(self, actions: list[int]) -> Outcome:
        """Let all agents move, in order."""
        rewards = np.array([self.act(agent, action) for agent, action in enumerate(actions)], np.float32)
        over = self.end_turn()
        return Outcome(self.observe_all(), rewards, np.zeros(len(actions), bool), np.full(len(actions), over))

    def picture(self) -> np.ndarray:
        """uint8 [height, width, 3]: the board."""
        return paint_turn(self.settings, self.world.state())


class HostValueGame:
    """An episode of a JAX world of the value family, for one agent or several."""

    def __init__(self, name: str, world: Any):
        self._name, self._envs = name, world.on_host(1, 0, compiled)
        self.interface: Interface = of_envs(self._envs.spec)
        self._several = bool(self._envs.spec.agents)
        self._seen = np.zeros((len(self.interface.agents), *self.interface.shape), self.interface.dtype)

    def begin(self, rng: np.random.Generator) -> np.ndarray:
        """Begin an episode; returns the first observations [A, *shape]."""
        return self.begin_with(int(rng.integers(2**31)))

    def begin_with(self, seed: int) -> np.ndarray:
        """The same with a given seed: the first episode of a run's envs with this seed."""
        from xladder.core.keys import root

        self._envs.root = root(seed)
        self._seen = self._of_agents(self._envs.reset())
        return self._seen

    def step(self, actions: list[int]) -> Outcome:
        """Let all agents act."""
        taken = np.array([check_action(self.interface, action) for action in actions], np.int32)
        self._envs.send(taken[:, None] if self._several else taken)
        step = self._envs.recv()
        self._seen = self._of_agents(step.frame)
        rewards, ends, cuts = (self._of_agents(part) for part in (step.reward, step.terminated, step.truncated))
        return Outcome(self._seen, rewards, ends, cuts & ~ends)

    def picture(self) -> np.ndarray:
        """uint8 [height, width, 3]: what the first agent observes."""
        return paint_observation(self._name, self._seen[0], self.interface)

    def _of_agents(self, part: np.ndarray) -> np.ndarray:
        """[A, …] from [1, …] or [A, 1, …]."""
        return np.asarray(part)[:, 0] if self._several else np.asarray(part)
