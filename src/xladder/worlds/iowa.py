"""Iowa: agents take cards from decks that appear on a board, some of which lose in the long run. Pure JAX.

After sorrel's `iowa` example, an Iowa gambling task on a grid. At the beginning of a turn every empty cell may turn
into a deck, and every deck that was there before draws its outcome anew: its gain, or its gain less its loss. Then the
agents move, one after another. The reward is the value of the cell an agent moves towards, whether or not it can be
entered; a deck that has just appeared is worth nothing until the next turn. The event of a move is the code of that
cell.

A cell is a code: 0 is never on the board, 1 empty, 2 wall, 3 outside the map, then for each deck three codes (new,
gain, loss), then an agent. All three codes of a deck look alike. The ground has a channel of its own, and the wall
stands on two layers, so an empty cell is not zeros, and a wall is told from what lies beyond it.

Shapes: N agents, K decks, C cells of the board with its margin, V cells in a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.items import ItemWorld, State

if TYPE_CHECKING:
    from xladder.families.multi_agent.iowa_presets import WorldConfig

SAND, WALL, OUTSIDE, FIRST_DECK = 1, 2, 3, 4
NEW, GAIN, LOSS = range(3)
OUTCOMES = 3


class TurnDraws(NamedTuple):
    """The random numbers of turns."""

    decks: jax.Array  # int8 [T, C]: the new deck that appears on each cell if it is empty then; `SAND` for none
    luck: jax.Array  # float32 [T, C]: a deck loses if this is below its probability of losing


@dataclass(frozen=True)
class Iowa(ItemWorld):
    """The board as pure functions of its state."""

    floor, wall, outside = SAND, WALL, OUTSIDE

    config: WorldConfig

    @property
    def agent_code(self) -> int:
        """The code of a cell with an agent on it."""
        return FIRST_DECK + OUTCOMES * len(self.config.deck_names)

    def draw_turns(self, key: jax.Array, turns: int) -> TurnDraws:
        """The decks that appear, and the luck of all decks."""
        shape = (turns, self.empty_board().size)
        appears, kind, luck = jax.random.uniform(key, (3, *shape))
        deck = FIRST_DECK + OUTCOMES * (kind * len(self.config.deck_names)).astype(jnp.int8)
        return TurnDraws(jnp.where(appears < self.config.spawn_prob, deck, jnp.int8(SAND)), luck)

    def begin_turn(self, state: State, draws: TurnDraws) -> State:
        """Draw the outcomes of the decks, and place new ones on cells that are empty."""
        board = state.board
        is_deck = (board >= FIRST_DECK) & (board < self.agent_code)
        deck = jnp.where(is_deck, (board - FIRST_DECK) // OUTCOMES, jnp.int8(0))
        loses = draws.luck < jnp.asarray(np.array(self.config.loss_probs, np.float32))[deck]
        outcome = FIRST_DECK + OUTCOMES * deck + jnp.where(loses, jnp.int8(LOSS), jnp.int8(GAIN))
        return state._replace(board=jnp.where(is_deck, outcome, jnp.where(board == SAND, draws.decks, board)))

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [K]: how often each deck was moved towards."""
        first = FIRST_DECK + OUTCOMES * jnp.arange(len(self.config.deck_names), dtype=events.dtype)
        within = (events.reshape(-1, 1) >= first[None, :]) & (events.reshape(-1, 1) < first[None, :] + OUTCOMES)
        return jnp.sum(within, axis=0, dtype=jnp.int32)
