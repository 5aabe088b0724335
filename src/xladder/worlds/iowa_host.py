"""Iowa on the host, in NumPy: the twin of `iowa.py`, with the same codes, draws and shapes, and none of its code.

Shapes: N agents, K decks, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.worlds.boards_host import HostBoardWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.iowa_presets import WorldConfig

SAND, WALL, OUTSIDE, FIRST_DECK = 1, 2, 3, 4  # then, for each deck, new, gain and loss; then an agent


class HostIowa(HostBoardWorld):
    """One board: call `reset`, then every turn `begin_turn`, and `view` and `move` for every agent."""

    def __init__(self, config: WorldConfig):
        super().__init__(config)
        self.config = config
        self._agent = FIRST_DECK + 3 * len(config.deck_names)
        self._values = np.array([cell.value for cell in config.cells()], np.float32)  # by code
        # By code: the codes a deck turns into where it wins and where it loses, and its probability of losing.
        self._wins, self._loses = np.arange(self._agent + 1, dtype=np.int8), np.arange(self._agent + 1, dtype=np.int8)
        self._odds = np.zeros(self._agent + 1, np.float32)
        for k, odds in enumerate(config.loss_probs):
            codes = FIRST_DECK + 3 * k + np.arange(3)
            self._wins[codes], self._loses[codes], self._odds[codes] = codes[1], codes[2], odds
        self._empty = self._framed(inside=SAND, wall=WALL, outside=OUTSIDE)
        self.board = self._empty.copy()

    def draw_reset(self, rng: np.random.Generator) -> np.ndarray:
        """int32 [N]: distinct initial cells, uniform over the inside."""
        return rng.choice(self._inside, self.num_agents, replace=False)

    def draw_turns(self, rng: np.random.Generator, turns: int) -> tuple[np.ndarray, np.ndarray]:
        """The decks that appear, int8 [turns, C], `SAND` for none, and the luck of all decks, float32 [turns, C]."""
        shape = (turns, self._empty.size)
        kinds = rng.integers(len(self.config.deck_names), size=shape, dtype=np.int8)
        appears = rng.random(shape, dtype=np.float32) < self.config.spawn_prob
        decks = np.where(appears, FIRST_DECK + 3 * kinds, SAND).astype(np.int8)
        return decks, rng.random(shape, dtype=np.float32)

    def reset(self, draws: np.ndarray) -> None:
        """Clear the board and place the agents on the cells drawn, int [N]."""
        self.board = self._empty.copy()
        self.board[draws] = self._agent
        self.positions = [int(start) for start in draws]

    def begin_turn(self, draws: Any) -> None:
        """Draw the outcomes of the decks, and place new ones on cells that are empty."""
        decks, luck = draws
        empty = self.board == SAND
        self.board = np.where(luck < self._odds[self.board], self._loses[self.board], self._wins[self.board])
        self.board[empty] = decks[empty]

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes of the cells that one agent sees."""
        return self.board[self._seen(agent)]

    def move(self, agent: int, action: int) -> int:
        """Move one agent. Returns the code of the cell it moved towards."""
        position = self.positions[agent]
        target = position + self._moves[action]
        found = int(self.board[target])
        if found not in (WALL, self._agent):
            self.board[position], self.board[target] = SAND, self._agent
            self.positions[agent] = target
        return found

    def reward(self, events: Any) -> Any:
        """float32: the values of cell codes."""
        return self._values[events]

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [K]: how often each deck was moved towards."""
        counts = np.bincount(events.ravel(), minlength=self._agent + 1)[FIRST_DECK : self._agent]
        return counts.reshape(-1, 3).sum(1).astype(np.int32)

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """The board, int8 [C], and the agents' positions, int [N]."""
        return self.board.copy(), np.array(self.positions)
