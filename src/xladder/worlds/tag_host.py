"""Tag on the host, in NumPy: the twin of `tag.py`, with the same codes, draws and shapes, and none of its code.

Shapes: N agents, C cells of the board with its margin, V codes in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.worlds.boards_host import HostBoardWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.tag_presets import WorldConfig

EMPTY, WALL, IT, NOT_IT = 0, 1, 2, 3
STAYED_IT, WAS_FREE, TAGGED = 0, 1, 2  # events


class HostTag(HostBoardWorld):
    """One board: call `reset`, then every turn `begin_turn`, and `view` and `move` for every agent."""

    def __init__(self, config: WorldConfig):
        super().__init__(config)
        self.config = config
        self._values = np.array([0.0, config.free_reward, config.free_reward], np.float32)  # by event
        up, down, left, right = self._moves
        self._around = [up, right, down, left]
        self.board = self._framed(inside=EMPTY, wall=WALL, outside=WALL)
        self.it = 0

    def draw_reset(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Distinct initial cells, uniform over the inside, and one agent that is it."""
        starts = rng.choice(self._inside, self.num_agents, replace=False)
        return starts, np.array(rng.integers(self.num_agents), np.int32)

    def draw_turns(self, rng: np.random.Generator, turns: int) -> tuple[()]:
        """Nothing is drawn during an epoch."""
        return ()

    def reset(self, draws: Any) -> None:
        """Place the agents on the cells drawn."""
        starts, it = draws
        self.board = self._framed(inside=EMPTY, wall=WALL, outside=WALL)
        self.positions, self.it = [int(start) for start in starts], int(it)
        for agent, cell in enumerate(self.positions):
            self.board[cell] = IT if agent == self.it else NOT_IT

    def begin_turn(self, draws: tuple[()]) -> None:
        """Nothing happens before the agents act."""

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes of the cells that one agent sees, then whether it is it."""
        return np.append(self.board[self._seen(agent)], np.int8(agent == self.it))

    def move(self, agent: int, action: int) -> int:
        """Move one agent and let it tag. Returns the event."""
        position = self.positions[agent]
        target = position + self._moves[action]
        if self.board[target] == EMPTY:
            self.board[target] = self.board[position]
            self.board[position] = EMPTY
            self.positions[agent] = position = target
        if agent != self.it:
            return WAS_FREE
        for step in self._around:
            if self.board[position + step] == NOT_IT:
                self.board[position], self.board[position + step] = NOT_IT, IT
                self.it = self.positions.index(position + step)
                return TAGGED
        return STAYED_IT

    def reward(self, events: Any) -> Any:
        """float32: the reward of every agent that is not it."""
        return self._values[events]

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [1]: how often an agent was tagged."""
        return np.array([(events == TAGGED).sum()], np.int32)

    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The board, int8 [C], the agents' positions, int [N], and who is it, int []."""
        return self.board.copy(), np.array(self.positions), np.array(self.it)
