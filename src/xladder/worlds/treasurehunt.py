"""Treasure hunt: several agents on one board, collecting items that appear on it. Pure JAX.

After sorrel's `treasurehunt` example. The board is surrounded by a wall. At the beginning of a turn every empty cell
may turn into an item; then the agents move, one after another. The reward is the value of the cell an agent moves
towards, whether or not it can be entered. The event of a move is the code of that cell.

A cell is a code: 0 empty, 1 wall, 2 … K+1 the items, K+2 an agent.

Shapes: N agents, K items, C cells of the board with its margin, V cells in a view, E = K + 3 codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from xladder.worlds.items import ItemWorld, State

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

EMPTY, WALL, FIRST_ITEM = 0, 1, 2


@dataclass(frozen=True)
class TreasureHunt(ItemWorld):
    """The board as pure functions of its state."""

    floor, wall, outside = EMPTY, WALL, WALL

    config: WorldConfig

    @property
    def agent_code(self) -> int:
        """The code of a cell with an agent on it."""
        return FIRST_ITEM + len(self.config.item_names)

    def draw_turns(self, key: jax.Array, turns: int) -> jax.Array:
        """int8 [turns, C]: the item that appears on each cell if it is empty then; `EMPTY` for none."""
        shape = (turns, self.empty_board().size)
        appears, kind = jax.random.uniform(key, (2, *shape))
        item = FIRST_ITEM + (kind * len(self.config.item_names)).astype(jnp.int8)
        return jnp.where(appears < self.config.spawn_prob, item, jnp.int8(EMPTY))

    def begin_turn(self, state: State, draws: jax.Array) -> State:
        """Place the items drawn, int8 [C], on the cells that are empty."""
        return state._replace(board=jnp.where(state.board == EMPTY, draws, state.board))

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [K]: how often each item was moved towards."""
        items = FIRST_ITEM + jnp.arange(len(self.config.item_names), dtype=events.dtype)
        return jnp.sum(events.reshape(-1, 1) == items[None, :], axis=0, dtype=jnp.int32)
