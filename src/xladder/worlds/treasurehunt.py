"""Treasure hunt: several agents on one board, collecting items that appear on it. Pure JAX.

After sorrel's `treasurehunt` example. The board is surrounded by a wall. At the beginning of a turn every empty cell
may turn into an item; then the agents move, one after another. The reward is the value of the cell an agent moves
towards, whether or not it can be entered. The event of a move is the code of that cell.

A cell is a code: 0 empty, 1 wall, 2 … K+1 the items, K+2 an agent. The board is stored flat, with a margin of `radius`
cells of wall, so that a view is one gather and a move is one addition.

Shapes: N agents, K items, C = (height + 2·radius)·(width + 2·radius) cells with margin, V = (2·radius + 1)² cells in
a view, E = K + 3 codes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.turns import TurnWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

EMPTY, WALL, FIRST_ITEM = 0, 1, 2
NUM_ACTIONS = 4  # up, down, left, right


class State(NamedTuple):
    """The board and the agents' positions."""

    board: jax.Array  # int8 [C]
    positions: jax.Array  # int32 [N], indices into the board


@dataclass(frozen=True)
class TreasureHunt(TurnWorld):
    """The board as pure functions of its state."""

    config: WorldConfig

    @property
    def num_agents(self) -> int:
        """Number of agents, N."""
        return self.config.num_agents

    @property
    def num_actions(self) -> int:
        """Number of actions: up, down, left, right."""
        return NUM_ACTIONS

    @property
    def num_codes(self) -> int:
        """Number of cell codes, E."""
        return self.agent_code + 1

    @property
    def num_cells(self) -> int:
        """Number of cells in a view, V."""
        return self.window().size

    @property
    def agent_code(self) -> int:
        """The code of a cell with an agent on it."""
        return FIRST_ITEM + len(self.config.item_names)

    def cell_values(self) -> np.ndarray:
        """float32 [E]: the reward for moving towards a cell of each code."""
        return np.array([0.0, self.config.wall_value, *self.config.item_values, 0.0], np.float32)

    def empty_board(self) -> np.ndarray:
        """int8 [C]: an empty board surrounded by walls."""
        c, margin = self.config, self.config.radius + 1
        board = np.full((c.height + 2 * c.radius, self._stride), WALL, np.int8)
        board[margin:-margin, margin:-margin] = EMPTY
        return board.ravel()

    def inside(self) -> np.ndarray:
        """int32 [(height − 2)·(width − 2)]: the cells within the wall."""
        return np.flatnonzero(self.empty_board() == EMPTY).astype(np.int32)

    def window(self) -> np.ndarray:
        """int32 [V]: offsets from a position to the cells in view, row by row."""
        reach = np.arange(-self.config.radius, self.config.radius + 1)
        return (reach[:, None] * self._stride + reach[None, :]).ravel().astype(np.int32)

    def strides(self) -> np.ndarray:
        """int32 [4]: the offset of each action."""
        return np.array([-self._stride, self._stride, -1, 1], np.int32)

    @property
    def _stride(self) -> int:
        return self.config.width + 2 * self.config.radius

    def draw_reset(self, key: jax.Array) -> jax.Array:
        """int32 [N]: distinct initial cells, uniform over the inside."""
        cells = jnp.asarray(self.inside())
        scores = jax.random.uniform(key, cells.shape)
        return cells[jax.lax.top_k(scores, self.num_agents)[1]]

    def draw_turns(self, key: jax.Array, turns: int) -> jax.Array:
        """int8 [turns, C]: the item that appears on each cell if it is empty then; `EMPTY` for none."""
        shape = (turns, self.empty_board().size)
        appears, kind = jax.random.uniform(key, (2, *shape))
        item = FIRST_ITEM + (kind * len(self.config.item_names)).astype(jnp.int8)
        return jnp.where(appears < self.config.spawn_prob, item, jnp.int8(EMPTY))

    def reset(self, draws: jax.Array) -> State:
        """An empty board with the agents on the cells drawn, int32 [N]."""
        board = jnp.asarray(self.empty_board())
        return State(board.at[draws].set(jnp.int8(self.agent_code)), draws)

    def begin_turn(self, state: State, draws: jax.Array) -> State:
        """Place the items drawn, int8 [C], on the cells that are empty."""
        return state._replace(board=jnp.where(state.board == EMPTY, draws, state.board))

    def view(self, state: State, agent: jax.Array | int) -> jax.Array:
        """int8 [V]: the codes of the cells around one agent."""
        return state.board[state.positions[agent] + jnp.asarray(self.window())]

    def move(self, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
        """Move one agent. Returns the new state and the code of the cell it moved towards, int8 []."""
        position = state.positions[agent]
        target = position + jnp.asarray(self.strides())[action]
        found = state.board[target]
        enters = (found != WALL) & (found != self.agent_code)
        # Leaving first and arriving second makes a blocked move (target = position) put the agent back.
        target = jnp.where(enters, target, position)
        board = state.board.at[position].set(jnp.int8(EMPTY)).at[target].set(jnp.int8(self.agent_code))
        return State(board, state.positions.at[agent].set(target)), found

    def move_all(self, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
        """Move all agents, in order, as `move` would one by one. Returns the new state and the events, int8 [N].

        No intermediate boards are made. An agent finds what lay on a cell before the turn, unless another agent is
        there now or has left it. Comparing positions takes N² scalars, which XLA fuses into one kernel, where N
        intermediate boards would be N kernels.
        """
        agent = jnp.int8(self.agent_code)
        targets = state.positions + jnp.asarray(self.strides())[actions]
        before = [state.positions[i] for i in range(self.num_agents)]
        now, found = list(before), []
        for i, lay in enumerate(state.board[targets]):
            target = targets[i]
            occupied = _any(target == position for position in now[:i] + now[i + 1 :])
            left = _any(target == position for position in before[:i])
            code = jnp.where(occupied, agent, jnp.where(left, jnp.int8(EMPTY), lay))
            enters = (code != WALL) & (code != agent)
            now[i] = jnp.where(enters, target, before[i])
            found.append(code)
        cells = jnp.arange(state.board.size)
        board = jnp.where(_any(cells == position for position in before), jnp.int8(EMPTY), state.board)
        board = jnp.where(_any(cells == position for position in now), agent, board)
        return State(board, jnp.stack(now)), jnp.stack(found)

    def reward(self, events: jax.Array) -> jax.Array:
        """float32: the values of cell codes of any shape."""
        return jnp.asarray(self.cell_values())[events]

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [K]: how often each item was moved towards."""
        items = FIRST_ITEM + jnp.arange(len(self.config.item_names), dtype=events.dtype)
        return jnp.sum(events.reshape(-1, 1) == items[None, :], axis=0, dtype=jnp.int32)


def _any(conditions: Iterable[jax.Array]) -> jax.Array:
    return reduce(operator.or_, conditions, jnp.bool_(False))
