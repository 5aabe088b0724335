"""Treasure hunt: several agents on one board, collecting what appears on it. Pure JAX.

After sorrel's `treasurehunt` example. A board of cells is surrounded by a wall. At the beginning of a turn every
empty cell may turn into an item; then the agents move, one after another. The reward is the value of the cell an
agent moves towards, whether or not it can be entered.

A cell is a code: 0 empty, 1 wall, 2 … K+1 the items, K+2 an agent. The board is kept flat and with a margin of
`radius` cells of wall, so that a view is one gather and a move is one addition.

Shapes: N agents, K items, C = (height + 2·radius)·(width + 2·radius) cells with margin, V = (2·radius + 1)² cells in
a view, E = K + 3 codes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import WorldConfig

EMPTY, WALL, FIRST_ITEM = 0, 1, 2
NUM_ACTIONS = 4  # up, down, left, right


class State(NamedTuple):
    """The board and who stands where."""

    board: jax.Array  # int8 [C]
    positions: jax.Array  # int32 [N], indices into the board


def agent_code(config: WorldConfig) -> int:
    """The code of a cell with an agent on it."""
    return FIRST_ITEM + len(config.item_names)


def num_codes(config: WorldConfig) -> int:
    """E: how many kinds of cell there are; also the channels of an encoded view."""
    return agent_code(config) + 1


def cell_values(config: WorldConfig) -> np.ndarray:
    """float32 [E]: the reward for moving towards a cell of each code."""
    return np.array([0.0, config.wall_value, *config.item_values, 0.0], np.float32)


def empty_board(config: WorldConfig) -> np.ndarray:
    """int8 [C]: walls round an empty inside."""
    margin = config.radius + 1
    board = np.full((config.height + 2 * config.radius, config.width + 2 * config.radius), WALL, np.int8)
    board[margin:-margin, margin:-margin] = EMPTY
    return board.ravel()


def inside(config: WorldConfig) -> np.ndarray:
    """int32 [(height − 2)·(width − 2)]: the cells within the wall."""
    return np.flatnonzero(empty_board(config) == EMPTY).astype(np.int32)


def window(config: WorldConfig) -> np.ndarray:
    """int32 [V]: what to add to a position to get the cells in view, row by row."""
    reach = np.arange(-config.radius, config.radius + 1)
    return (reach[:, None] * _stride(config) + reach[None, :]).ravel().astype(np.int32)


def strides(config: WorldConfig) -> np.ndarray:
    """int32 [4]: what each action adds to a position."""
    return np.array([-_stride(config), _stride(config), -1, 1], np.int32)


def _stride(config: WorldConfig) -> int:
    return config.width + 2 * config.radius


def draw_reset(config: WorldConfig, key: jax.Array) -> jax.Array:
    """int32 [N]: distinct cells to start on, uniform over the inside."""
    cells = jnp.asarray(inside(config))
    scores = jax.random.uniform(key, cells.shape)
    return cells[jax.lax.top_k(scores, config.num_agents)[1]]


def draw_spawns(config: WorldConfig, key: jax.Array, turns: int) -> jax.Array:
    """int8 [turns, C]: what would appear on each cell if it is empty then; `EMPTY` where nothing would."""
    shape = (turns, empty_board(config).size)
    appears, kind = jax.random.uniform(key, (2, *shape))
    item = FIRST_ITEM + (kind * len(config.item_names)).astype(jnp.int8)
    return jnp.where(appears < config.spawn_prob, item, jnp.int8(EMPTY))


def reset(config: WorldConfig, starts: jax.Array) -> State:
    """A fresh board with the agents on `starts`, int32 [N]."""
    board = jnp.asarray(empty_board(config))
    return State(board.at[starts].set(jnp.int8(agent_code(config))), starts)


def begin_turn(state: State, spawns: jax.Array) -> State:
    """Items appear: `spawns`, int8 [C], falls on the cells that are empty."""
    return state._replace(board=jnp.where(state.board == EMPTY, spawns, state.board))


def view(config: WorldConfig, state: State, agent: jax.Array | int) -> jax.Array:
    """int8 [V]: the codes of the cells around one agent."""
    return state.board[state.positions[agent] + jnp.asarray(window(config))]


def move(config: WorldConfig, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
    """One agent moves. Returns the new state and the code of the cell it moved towards, int8 []."""
    position = state.positions[agent]
    target = position + jnp.asarray(strides(config))[action]
    found = state.board[target]
    enters = (found != WALL) & (found != agent_code(config))
    # Leaving first and arriving second makes a blocked move (target = position) put the agent back.
    target = jnp.where(enters, target, position)
    board = state.board.at[position].set(jnp.int8(EMPTY)).at[target].set(jnp.int8(agent_code(config)))
    return State(board, state.positions.at[agent].set(target)), found


def move_all(config: WorldConfig, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
    """All agents move, in order, as by `move` one after another. Returns what each moved towards, int8 [N].

    No board in between is made. What an agent finds is what lay there before the turn, unless somebody stands there
    now, or stood there and has left. Comparing positions costs N² scalars, which XLA fuses into one kernel, where N
    changed boards would be N kernels.
    """
    agent = jnp.int8(agent_code(config))
    targets = state.positions + jnp.asarray(strides(config))[actions]
    before = [state.positions[i] for i in range(config.num_agents)]
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


def _any(conditions: Iterable[jax.Array]) -> jax.Array:
    return reduce(operator.or_, conditions, jnp.bool_(False))


def reward(config: WorldConfig, found: jax.Array) -> jax.Array:
    """float32: the value of the cell codes `found`, of any shape."""
    return jnp.asarray(cell_values(config))[found]
