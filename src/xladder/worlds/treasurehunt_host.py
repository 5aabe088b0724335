"""Treasure hunt on the host, in NumPy: the twin of `treasurehunt.py`, same codes, same draws, same shapes.

The state is changed in place: that is what a Python loop is quick at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.worlds.treasurehunt import (
    EMPTY,
    FIRST_ITEM,
    WALL,
    agent_code,
    cell_values,
    empty_board,
    inside,
    strides,
    window,
)

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import WorldConfig


class HostWorld:
    """One board. `reset`, then `begin_turn` and for every agent `view` and `move`, turn by turn."""

    def __init__(self, config: WorldConfig):
        self.config = config
        self.values = cell_values(config)
        self._empty = empty_board(config)
        self._window = window(config)
        self._strides = strides(config).tolist()
        self._agent = agent_code(config)
        self.board = self._empty.copy()  # int8 [C]
        self.positions: list[int] = []

    def reset(self, starts: np.ndarray) -> None:
        """A fresh board with the agents on `starts`, int [N]."""
        self.board = self._empty.copy()
        self.board[starts] = self._agent
        self.positions = [int(start) for start in starts]

    def begin_turn(self, spawns: np.ndarray) -> None:
        """Items appear: `spawns`, int8 [C], falls on the cells that are empty."""
        np.copyto(self.board, spawns, where=self.board == EMPTY)

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes of the cells around one agent."""
        return self.board[self.positions[agent] + self._window]

    def move(self, agent: int, action: int) -> int:
        """One agent moves. Returns the code of the cell it moved towards."""
        position = self.positions[agent]
        target = position + self._strides[action]
        found = int(self.board[target])
        if found not in (WALL, self._agent):
            self.board[position] = EMPTY
            self.board[target] = self._agent
            self.positions[agent] = target
        return found


def draw_reset(config: WorldConfig, rng: np.random.Generator) -> np.ndarray:
    """int32 [N]: distinct cells to start on, uniform over the inside."""
    return rng.choice(inside(config), config.num_agents, replace=False)


def draw_spawns(config: WorldConfig, rng: np.random.Generator, turns: int) -> np.ndarray:
    """int8 [turns, C]: what would appear on each cell if it is empty then; `EMPTY` where nothing would."""
    shape = (turns, empty_board(config).size)
    items = rng.integers(FIRST_ITEM, FIRST_ITEM + len(config.item_names), shape, dtype=np.int8)
    return np.where(rng.random(shape, dtype=np.float32) < config.spawn_prob, items, np.int8(EMPTY))
