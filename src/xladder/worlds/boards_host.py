"""What worlds on a walled board have in common, on the host: the twin of `boards.py`, without its code.

Shapes: N agents, C cells of the board with its margin, V cells in a view's picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xladder.families.multi_agent.board_settings import BoardSettings


class HostBoardWorld:
    """A board with a wall round it: cells by flat index, and the agents' positions."""

    def __init__(self, settings: BoardSettings) -> None:
        reach, margin = settings.radius, settings.margin
        self._settings, self._margin = settings, margin
        self._stride = stride = settings.width + 2 * margin  # from a cell to the one below it
        self.num_agents = settings.num_agents
        self.num_actions = len(settings.action_names)
        self.encoding = settings.encoding()
        self.num_cells, self.num_codes = self.encoding.num_cells, self.encoding.num_codes
        self._map = np.array([self.cell(y, x) for y in range(settings.height) for x in range(settings.width)])
        self._inside = np.array(
            [self.cell(y, x) for y in range(1, settings.height - 1) for x in range(1, settings.width - 1)], np.int32
        )
        self._window = np.array([y * stride + x for y in range(-reach, reach + 1) for x in range(-reach, reach + 1)])
        self._moves = [-stride, stride, -1, 1]  # up, down, left, right
        self.positions: list[int] = []

    def cell(self, row: int, column: int) -> int:
        """The flat index of a cell of the map."""
        return (row + self._margin) * self._stride + column + self._margin

    def _framed(self, inside: int, wall: int, outside: int) -> np.ndarray:
        """int8 [C]: a board of one code inside, with a wall and a margin of other codes."""
        board = np.full(self._stride * (self._settings.height + 2 * self._margin), outside, np.int8)
        board[self._map] = wall
        board[self._inside] = inside
        return board

    def _seen(self, agent: int) -> np.ndarray:
        """int [V]: the cells that an agent sees."""
        return self._map if self._settings.full_view else self.positions[agent] + self._window
