"""Iowa on the host, in NumPy: the twin of `iowa.py`, with the same codes, draws and shapes, and none of its code.

Shapes: N agents, K decks, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.worlds.items_host import HostItemWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.iowa_presets import WorldConfig

SAND, WALL, OUTSIDE, FIRST_DECK = 1, 2, 3, 4  # then, for each deck, new, gain and loss; then an agent


class HostIowa(HostItemWorld):
    """One board: call `reset`, then every turn `begin_turn`, and `view` and `move` for every agent."""

    def __init__(self, config: WorldConfig):
        super().__init__(config, SAND, WALL, OUTSIDE)
        self.config = config
        # By code: the codes a deck turns into where it wins and where it loses, and its probability of losing.
        self._wins, self._loses = np.arange(self._agent + 1, dtype=np.int8), np.arange(self._agent + 1, dtype=np.int8)
        self._odds = np.zeros(self._agent + 1, np.float32)
        for k, odds in enumerate(config.loss_probs):
            codes = FIRST_DECK + 3 * k + np.arange(3)
            self._wins[codes], self._loses[codes], self._odds[codes] = codes[1], codes[2], odds

    def draw_turns(self, rng: np.random.Generator, turns: int) -> tuple[np.ndarray, np.ndarray]:
        """The decks that appear, int8 [turns, C], `SAND` for none, and the luck of all decks, float32 [turns, C]."""
        shape = (turns, self._empty.size)
        kinds = rng.integers(len(self.config.deck_names), size=shape, dtype=np.int8)
        appears = rng.random(shape, dtype=np.float32) < self.config.spawn_prob
        decks = np.where(appears, FIRST_DECK + 3 * kinds, SAND).astype(np.int8)
        return decks, rng.random(shape, dtype=np.float32)

    def begin_turn(self, draws: Any) -> None:
        """Draw the outcomes of the decks, and place new ones on cells that are empty."""
        decks, luck = draws
        empty = self.board == SAND
        self.board = np.where(luck < self._odds[self.board], self._loses[self.board], self._wins[self.board])
        self.board[empty] = decks[empty]

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [K]: how often each deck was moved towards."""
        counts = np.bincount(events.ravel(), minlength=self._agent + 1)[FIRST_DECK : self._agent]
        return counts.reshape(-1, 3).sum(1).astype(np.int32)
