"""Treasure hunt: several agents on one board, collecting items that appear on it. Pure JAX.

After sorrel's `treasurehunt` example. The board is surrounded by a wall. At the beginning of a turn every empty cell
may turn into an item; then the agents move, one after another. The reward is the value of the cell an agent moves
towards, whether or not it can be entered. The event of a move is the code of that cell.

A cell is a code: 0 empty, 1 wall, 2 … K+1 the items, K+2 an agent.

Shapes: N agents, K items, C cells of the board with its margin, V cells in a view, E = K + 3 codes.
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

from xladder.worlds.boards import BoardWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

EMPTY, WALL, FIRST_ITEM = 0, 1, 2


class State(NamedTuple):
    """The board and the agents' positions."""

    board: jax.Array  # int8 [C]
    positions: jax.Array  # int32 [N], indices into the board


@dataclass(frozen=True)
class TreasureHunt(BoardWorld):
    """The board as pure functions of its state."""

    config: WorldConfig

    @property
    def agent_code(self) -> int:
        """The code of a cell with an agent on it."""
        return FIRST_ITEM + len(self.config.item_names)

    def empty_board(self) -> np.ndarray:
        """int8 [C]: an empty board surrounded by walls."""
        return self.framed(inside=EMPTY, wall=WALL, outside=WALL)

    def draw_reset(self, key: jax.Array) -> jax.Array:
        """int32 [N]: distinct initial cells, uniform over the inside."""
        return self.draw_starts(key, self.inside(), self.num_agents)

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
        """int8 [V]: the codes of the cells that one agent sees."""
        return self.see(state.board, state.positions[agent])

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
        return jnp.asarray(np.array([cell.value for cell in self.config.cells()], np.float32))[events]

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [K]: how often each item was moved towards."""
        items = FIRST_ITEM + jnp.arange(len(self.config.item_names), dtype=events.dtype)
        return jnp.sum(events.reshape(-1, 1) == items[None, :], axis=0, dtype=jnp.int32)


def _any(conditions: Iterable[jax.Array]) -> jax.Array:
    return reduce(operator.or_, conditions, jnp.bool_(False))
