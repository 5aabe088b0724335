"""Treasure hunt on the host, in NumPy: the twin of `treasurehunt.py`, with the same codes, draws and shapes.

It shares no code with it, so that comparing the two tests the rules.

Shapes: N agents, K items, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.worlds.boards_host import HostBoardWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

EMPTY, WALL, FIRST_ITEM = 0, 1, 2  # then the other items, then an agent


class HostTreasureHunt(HostBoardWorld):
    """One board: call `reset`, then every turn `begin_turn`, and `view` and `move` for every agent."""

    def __init__(self, config: WorldConfig):
        super().__init__(config)
        self.config = config
        self.values = np.array([cell.value for cell in config.cells()], np.float32)  # by code
        self._empty = self._framed(inside=EMPTY, wall=WALL, outside=WALL)
        self._agent = FIRST_ITEM + len(config.item_names)
        self.board = self._empty.copy()  # int8 [C]

    def draw_reset(self, rng: np.random.Generator) -> np.ndarray:
        """int32 [N]: distinct initial cells, uniform over the inside."""
        return rng.choice(self._inside, self.num_agents, replace=False)

    def draw_turns(self, rng: np.random.Generator, turns: int) -> np.ndarray:
        """int8 [turns, C]: the item that appears on each cell if it is empty then; `EMPTY` for none."""
        shape = (turns, self._empty.size)
        items = rng.integers(FIRST_ITEM, self._agent, shape, dtype=np.int8)
        return np.where(rng.random(shape, dtype=np.float32) < self.config.spawn_prob, items, np.int8(EMPTY))

    def reset(self, draws: np.ndarray) -> None:
        """Clear the board and place the agents on the cells drawn, int [N]."""
        self.board = self._empty.copy()
        self.board[draws] = self._agent
        self.positions = [int(start) for start in draws]

    def begin_turn(self, draws: np.ndarray) -> None:
        """Place the items drawn, int8 [C], on the cells that are empty."""
        np.copyto(self.board, draws, where=self.board == EMPTY)

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes of the cells that one agent sees."""
        return self.board[self._seen(agent)]

    def move(self, agent: int, action: int) -> int:
        """Move one agent. Returns the code of the cell it moved towards."""
        position = self.positions[agent]
        target = position + self._moves[action]
        found = int(self.board[target])
        if found not in (WALL, self._agent):
            self.board[position] = EMPTY
            self.board[target] = self._agent
            self.positions[agent] = target
        return found

    def reward(self, events: Any) -> Any:
        """float32: the values of cell codes."""
        return self.values[events]

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [K]: how often each item was moved towards."""
        return np.bincount(events.ravel(), minlength=len(self.values))[FIRST_ITEM:-1].astype(np.int32)

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """The board, int8 [C], and the agents' positions, int [N]."""
        return self.board.copy(), np.array(self.positions)
