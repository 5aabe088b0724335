"""What treasure hunt and iowa have in common, on the host: the twin of `items.py`, without its code.

Shapes: N agents, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.worlds.boards_host import HostBoardWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.board_settings import BoardSettings


class HostItemWorld(HostBoardWorld):
    """A board of codes, the last of which is an agent: a cell is worth its value to whoever walks towards it."""

    def __init__(self, settings: BoardSettings, floor: int, wall: int, outside: int):
        super().__init__(settings)
        self.values = np.array([cell.value for cell in settings.cells()], np.float32)  # by code
        self._floor, self._wall, self._agent = floor, wall, len(self.values) - 1
        self._empty = self._framed(inside=floor, wall=wall, outside=outside)
        self.board = self._empty.copy()  # int8 [C]

    def draw_reset(self, rng: np.random.Generator) -> np.ndarray:
        """int32 [N]: distinct initial cells, uniform over the inside."""
        return rng.choice(self._inside, self.num_agents, replace=False)

    def reset(self, draws: np.ndarray) -> None:
        """Clear the board and place the agents on the cells drawn, int [N]."""
        self.board = self._empty.copy()
        self.board[draws] = self._agent
        self.positions = [int(start) for start in draws]

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes of the cells that one agent sees."""
        return self.board[self._seen(agent)]

    def move(self, agent: int, action: int) -> int:
        """Move one agent. Returns the code of the cell it moved towards."""
        position = self.positions[agent]
        target = position + self._moves[action]
        found = int(self.board[target])
        if found not in (self._wall, self._agent):
            self.board[position] = self._floor
            self.board[target] = self._agent
            self.positions[agent] = target
        return found

    def reward(self, events: Any) -> Any:
        """float32: the values of cell codes."""
        return self.values[events]

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """The board, int8 [C], and the agents' positions, int [N]."""
        return self.board.copy(), np.array(self.positions)
