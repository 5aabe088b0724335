"""Cleanup on the host, in NumPy: the twin of `cleanup.py`, with the same codes, draws and shapes, and none of its code.

Shapes: N agents, C cells of the board with its margin, V codes in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.worlds.boards_host import HostBoardWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.cleanup_presets import WorldConfig

EMPTY, RIVER, POLLUTION, TREE, APPLE, WALL, OUTSIDE = 0, 1, 2, 3, 4, 5, 6  # the ground
CLEAN, OLD_CLEAN, ZAP, OLD_ZAP = 1, 2, 3, 4  # the beams
ATE, ZAPPED, CLEANS, ZAPS = 1, 2, 4, 8  # bits of an event
ACTIONS_MOVING = 4  # up, down, left, right; then clean and zap


class HostCleanup(HostBoardWorld):
    """One board: call `reset`, then every turn `begin_turn`, and `view` and `move` for every agent."""

    def __init__(self, config: WorldConfig):
        super().__init__(config)
        self.config = config
        self._terrain = self._framed(inside=EMPTY, wall=WALL, outside=OUTSIDE)
        self._spawns: list[int] = []
        self._orchard: list[int] = []
        for row in range(1, config.height - 1):
            for column in range(1, config.width - 1):
                self._lay(row, column)
        self._most = config.most_pollution(int((self._terrain == RIVER).sum()))
        events = np.arange(16)
        self._values = np.where(events & ATE, config.apple_value, 0.0) + np.where(
            events & ZAPPED, config.zap_value, 0.0
        )
        self._values = self._values.astype(np.float32)
        self.ground, self.agents, self.beams = self._terrain.copy(), self._terrain * 0, self._terrain * 0
        self.directions: list[int] = []  # the move that an agent made last

    def _lay(self, row: int, column: int) -> None:
        """Lay the ground of one cell."""
        c, cell = self.config, self.cell(row, column)
        if c.mode == "apple":
            self._terrain[cell] = TREE
            (self._spawns if row % 2 == column % 2 == 0 else self._orchard).append(cell)
        elif row < c.height // 3 or (row < c.height // 3 * 2 - 1 and column - c.width // 3 in (0, 1)):
            self._terrain[cell] = RIVER
        elif row > c.height - 1 - c.height // 3:
            self._terrain[cell] = TREE
            self._orchard.append(cell)
        else:
            self._spawns.append(cell)

    def draw_reset(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Distinct initial cells of agents, int [N], and of apples."""
        starts = rng.choice(self._spawns, self.num_agents, replace=False)
        return starts, rng.choice(self._orchard, self.config.initial_apples, replace=False)

    def draw_turns(self, rng: np.random.Generator, turns: int) -> np.ndarray:
        """bool [turns, C]: whether river becomes polluted, or a tree bears an apple, if it can."""
        odds = {RIVER: self.config.pollution_prob, TREE: self.config.apple_prob}
        chance = np.array([odds.get(code, 0.0) for code in self._terrain], np.float32)
        return rng.random((turns, chance.size), dtype=np.float32) < chance

    def reset(self, draws: Any) -> None:
        """A clean river, the apples and agents that were drawn, all looking down."""
        starts, apples = draws
        self.ground, self.agents, self.beams = self._terrain.copy(), self._terrain * 0, self._terrain * 0
        self.ground[apples] = APPLE
        self.agents[starts] = 1
        self.positions = [int(start) for start in starts]
        self.directions = [2] * self.num_agents

    def begin_turn(self, draws: np.ndarray) -> None:
        """Pollute, clean, grow and eat; age the beams."""
        before = self.ground.copy()
        grows = np.count_nonzero(before == POLLUTION) <= self._most
        self.ground[(before == RIVER) & draws] = POLLUTION
        self.ground[(before == POLLUTION) & np.isin(self.beams, (CLEAN, OLD_CLEAN))] = RIVER
        if grows:
            self.ground[(before == TREE) & draws] = APPLE
        self.ground[(before == APPLE) & (self.agents == 1)] = TREE
        fresh = np.isin(self.beams, (CLEAN, ZAP))
        self.beams = np.where(fresh, self.beams + 1, 0).astype(np.int8)

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the cells that one agent sees, then its row and column."""
        cells, place = self._seen(agent), divmod(self.positions[agent], self._stride)
        codes = self.ground[cells] + 7 * self.agents[cells] + 14 * self.beams[cells]
        return np.append(codes, [x - self._margin for x in place]).astype(np.int8)

    def move(self, agent: int, action: int) -> int:
        """Let one agent move or fire. Returns the event."""
        target = position = self.positions[agent]
        event = 0
        if action < ACTIONS_MOVING:
            target += self._moves[action]
            self.directions[agent] = (0, 2, 3, 1)[action]
        else:
            event = (CLEANS, ZAPS)[action - ACTIONS_MOVING]
            self._fire(position, self.directions[agent], (CLEAN, ZAP)[action - ACTIONS_MOVING])
        if self.ground[target] == APPLE:
            event |= ATE
        if self.beams[target] in (ZAP, OLD_ZAP):
            event |= ZAPPED
        if not self.agents[target] and self.ground[target] != WALL:
            self.agents[position], self.agents[target] = 0, 1
            self.positions[agent] = target
        return event

    def _fire(self, position: int, direction: int, beam: int) -> None:
        """Put a beam in front of an agent: one column ahead of it, and one on either side, from beside it."""
        up, down, left, right = self._moves
        forward, aside = ((up, right), (right, down), (down, left), (left, up))[direction]
        for i in range(self.config.beam_radius):
            for cell in (position + forward * (i + 1), position + aside + forward * i, position - aside + forward * i):
                if self.ground[cell] not in (WALL, OUTSIDE):
                    self.beams[cell] = beam

    def reward(self, events: Any) -> Any:
        """float32: the values of apples and zapping beams."""
        return self._values[events]

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [4]: apples that paid, zaps that cost, and how often agents cleaned and zapped."""
        return np.array([np.count_nonzero(events & bit) for bit in (ATE, ZAPPED, CLEANS, ZAPS)], np.int32)

    def state(self) -> tuple[np.ndarray, ...]:
        """The layers, int8 [C], and where the agents stand and look, int [N]."""
        layers = self.ground.copy(), self.agents.copy(), self.beams.copy()
        return *layers, np.array(self.positions), np.array(self.directions)
