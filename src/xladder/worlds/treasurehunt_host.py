"""Treasure hunt on the host, in NumPy: the twin of `treasurehunt.py`, with the same codes, draws and shapes.

It shares no code with it, so that comparing the two tests the rules.

Shapes: N agents, K items, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.worlds.items_host import HostItemWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

EMPTY, WALL, FIRST_ITEM = 0, 1, 2  # then the other items, then an agent


class HostTreasureHunt(HostItemWorld):
    """One board: call `reset`, then every turn `begin_turn`, and `view` and `move` for every agent."""

    def __init__(self, config: WorldConfig):
        super().__init__(config, EMPTY, WALL, WALL)
        self.config = config

    def draw_turns(self, rng: np.random.Generator, turns: int) -> np.ndarray:
        """int8 [turns, C]: the item that appears on each cell if it is empty then; `EMPTY` for none."""
        shape = (turns, self._empty.size)
        items = rng.integers(FIRST_ITEM, self._agent, shape, dtype=np.int8)
        return np.where(rng.random(shape, dtype=np.float32) < self.config.spawn_prob, items, np.int8(EMPTY))

    def begin_turn(self, draws: np.ndarray) -> None:
        """Place the items drawn, int8 [C], on the cells that are empty."""
        np.copyto(self.board, draws, where=self.board == EMPTY)

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [K]: how often each item was moved towards."""
        return np.bincount(events.ravel(), minlength=len(self.values))[FIRST_ITEM:-1].astype(np.int32)
