"""What treasure hunt and iowa have in common, in JAX: agents walk over a board and are paid for what they walk towards.

The reward is the value of the cell an agent moves towards, whether or not it can be entered. The event of a move is the
code of that cell.

Shapes: N agents, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.boards import BoardWorld, put


class State(NamedTuple):
    """The board and the agents' positions."""

    board: jax.Array  # int8 [C]
    positions: jax.Array  # int32 [N], indices into the board


@dataclass(frozen=True)
class ItemWorld(BoardWorld):
    """A board of codes: of the floor, the wall, what lies outside, items, and last an agent."""

    floor: ClassVar[int]
    wall: ClassVar[int]
    outside: ClassVar[int]

    @property
    @abstractmethod
    def agent_code(self) -> int:
        """The code of a cell with an agent on it."""

    def empty_board(self) -> np.ndarray:
        """int8 [C]: an empty board surrounded by walls."""
        return self.framed(inside=self.floor, wall=self.wall, outside=self.outside)

    def draw_reset(self, key: jax.Array) -> jax.Array:
        """int32 [N]: distinct initial cells, uniform over the inside."""
        return self.draw_starts(key, self.inside(), self.num_agents)

    def reset(self, draws: jax.Array) -> State:
        """An empty board with the agents on the cells drawn, int32 [N]."""
        board = jnp.asarray(self.empty_board())
        return State(board.at[draws].set(jnp.int8(self.agent_code)), draws)

    def view(self, state: State, agent: jax.Array | int) -> jax.Array:
        """int8 [V]: the codes of the cells that one agent sees."""
        return self.see(state.board, state.positions[agent])

    def move(self, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
        """Move one agent. Returns the new state and the code of the cell it moved towards, int8 []."""
        position = state.positions[agent]
        target = position + jnp.asarray(self.strides())[action]
        found = state.board[target]
        target = jnp.where(self._enters(found), target, position)
        # Leaving first and arriving second makes a blocked move (target = position) put the agent back.
        board = put(put(state.board, position, jnp.int8(self.floor)), target, jnp.int8(self.agent_code))
        return State(board, put(state.positions, agent, target)), found

    def move_all(self, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
        """Move all agents, in order, as `move` would one by one. Returns the new state and the events, int8 [N].

        No intermediate boards are made. An agent finds what lay on a cell before the turn, unless another agent is
        there now or has left it. Comparing positions takes N² scalars, which XLA fuses into one kernel, where N
        intermediate boards would be N kernels.
        """
        agent, floor = jnp.int8(self.agent_code), jnp.int8(self.floor)
        targets = state.positions + jnp.asarray(self.strides())[actions]
        before = [state.positions[i] for i in range(self.num_agents)]
        now, found = list(before), []
        for i, lay in enumerate(state.board[targets]):
            target = targets[i]
            occupied = _any(target == position for position in now[:i] + now[i + 1 :])
            left = _any(target == position for position in before[:i])
            code = jnp.where(occupied, agent, jnp.where(left, floor, lay))
            now[i] = jnp.where(self._enters(code), target, before[i])
            found.append(code)
        cells = jnp.arange(state.board.size)
        board = jnp.where(_any(cells == position for position in before), floor, state.board)
        board = jnp.where(_any(cells == position for position in now), agent, board)
        return State(board, jnp.stack(now)), jnp.stack(found)

    def _enters(self, code: jax.Array) -> jax.Array:
        return (code != self.wall) & (code != self.agent_code)

    def reward(self, events: jax.Array) -> jax.Array:
        """float32: the values of cell codes of any shape."""
        return jnp.asarray(np.array([cell.value for cell in self.config.cells()], np.float32))[events]


def _any(conditions: Iterable[jax.Array]) -> jax.Array:
    return reduce(operator.or_, conditions, jnp.bool_(False))
