"""What worlds on a walled board have in common, in JAX: where cells are, where agents start, and what they see.

A board is stored flat, with a margin, so that a view is one gather and a move is one addition.

Shapes: N agents, C = (height + 2·margin)·(width + 2·margin) cells with margin, V cells in a view's picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.encoding import Encoding
from xladder.worlds.turns import TurnWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.board_settings import BoardSettings

MOVES = 4  # up, down, left, right: the first actions of every world


@dataclass(frozen=True)
class BoardWorld(TurnWorld):
    """A board with a wall round it."""

    config: BoardSettings

    @property
    def num_agents(self) -> int:
        """Number of agents, N."""
        return self.config.num_agents

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return len(self.config.action_names)

    @property
    def encoding(self) -> Encoding:
        """How a view becomes the inputs of a network."""
        return self.config.encoding()

    @property
    def stride(self) -> int:
        """From a cell to the one below it."""
        return self.config.width + 2 * self.config.margin

    def framed(self, inside: int, wall: int, outside: int) -> np.ndarray:
        """int8 [C]: a board of one code inside, with a wall and a margin of other codes."""
        c, m = self.config, self.config.margin
        board = np.full((c.height + 2 * m, self.stride), outside, np.int8)
        board[m : m + c.height, m : m + c.width] = wall
        board[m + 1 : m + c.height - 1, m + 1 : m + c.width - 1] = inside
        return board.ravel()

    def inside(self) -> np.ndarray:
        """int32 [(height − 2)·(width − 2)]: the cells within the wall."""
        return np.flatnonzero(self.framed(1, 0, 0)).astype(np.int32)

    def window(self) -> np.ndarray:
        """int32 [V]: the cells in view, row by row; offsets from an agent's position, or all cells of the map."""
        c, m = self.config, self.config.margin
        if c.full_view:
            rows, columns = m + np.arange(c.height), m + np.arange(c.width)
        else:
            rows = columns = np.arange(-c.radius, c.radius + 1)
        return (rows[:, None] * self.stride + columns[None, :]).ravel().astype(np.int32)

    def strides(self) -> np.ndarray:
        """int32 [4]: the offset of each move."""
        return np.array([-self.stride, self.stride, -1, 1], np.int32)

    def draw_starts(self, key: jax.Array, cells: np.ndarray, count: int) -> jax.Array:
        """int32 [count]: distinct cells, uniform over `cells`."""
        among = jnp.asarray(cells)
        scores = jax.random.uniform(key, among.shape)
        return among[jax.lax.top_k(scores, count)[1]]

    def see(self, board: jax.Array, position: jax.Array) -> jax.Array:
        """[V]: what an agent at a position sees of a board."""
        window = jnp.asarray(self.window())
        return board[window if self.config.full_view else position + window]


def put(cells: jax.Array, place: jax.Array | int, value: jax.Array) -> jax.Array:
    """`cells` with another value in one place.

    Every cell is compared, because XLA fuses that with what is computed before and after it. A scatter would be a
    kernel of its own, and a turn on a GPU is as long as its kernels are many.
    """
    return jnp.where(jnp.arange(cells.size) == place, value, cells)
