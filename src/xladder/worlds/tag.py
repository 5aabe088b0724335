"""Tag: several agents on one board, one of whom is "it" until it stands next to another. Pure JAX.

After sorrel's `tag` example. Agents move one after another. Whoever is it and, after its own move, has a neighbour,
makes that neighbour it; of several neighbours the first of up, right, down, left. An agent that is not it at the end of
its own move is rewarded. Agents see the cells around them, who of them is it, and whether they are it themselves.

A cell is a code: 0 empty, 1 wall, 2 the agent that is it, 3 another agent. The event of a move says whether its agent
stayed it, was not it, or has just tagged another.

Shapes: N agents, C cells of the board with its margin, V codes in a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from xladder.worlds.boards import BoardWorld, put

if TYPE_CHECKING:
    from xladder.families.multi_agent.tag_presets import WorldConfig

EMPTY, WALL, IT, NOT_IT = range(4)
STAYED_IT, WAS_FREE, TAGGED = range(3)  # events


class Draws(NamedTuple):
    """The random numbers of a reset."""

    starts: jax.Array  # int32 [N]
    it: jax.Array  # int32 []: who is it


class State(NamedTuple):
    """The board, the agents' positions and who is it."""

    board: jax.Array  # int8 [C]
    positions: jax.Array  # int32 [N], indices into the board
    it: jax.Array  # int32 []


@dataclass(frozen=True)
class Tag(BoardWorld):
    """The board as pure functions of its state."""

    config: WorldConfig

    def draw_reset(self, key: jax.Array) -> Draws:
        """Distinct initial cells, uniform over the inside, and one agent that is it."""
        starts = self.draw_starts(jax.random.fold_in(key, 0), self.inside(), self.num_agents)
        return Draws(starts, jax.random.randint(jax.random.fold_in(key, 1), (), 0, self.num_agents, jnp.int32))

    def draw_turns(self, key: jax.Array, turns: int) -> tuple[()]:
        """Nothing is drawn during an epoch."""
        return ()

    def reset(self, draws: Draws) -> State:
        """A board with the agents on the cells drawn."""
        board = jnp.asarray(self.framed(inside=EMPTY, wall=WALL, outside=WALL))
        codes = jnp.where(jnp.arange(self.num_agents) == draws.it, jnp.int8(IT), jnp.int8(NOT_IT))
        return State(board.at[draws.starts].set(codes), draws.starts, draws.it)

    def begin_turn(self, state: State, draws: tuple[()]) -> State:
        """Nothing happens before the agents act."""
        return state

    def view(self, state: State, agent: jax.Array | int) -> jax.Array:
        """int8 [V]: the codes of the cells that one agent sees, then whether it is it."""
        own = jnp.equal(state.it, agent).astype(jnp.int8)
        return jnp.append(self.see(state.board, state.positions[agent]), own)

    def move(self, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
        """Move one agent and let it tag. Returns the new state and the event, int8 []."""
        position = state.positions[agent]
        target = position + jnp.asarray(self.strides())[action]
        here = jnp.where(state.board[target] == EMPTY, target, position)
        positions = put(state.positions, agent, here)

        was_it, tags, other = jnp.equal(state.it, agent), jnp.bool_(False), here
        up, down, left, right = (int(stride) for stride in self.strides())
        for offset in (up, right, down, left):  # scalar by scalar: a reduction would be a kernel of its own
            # Where the agent came from has another code, if it is it.
            first = was_it & ~tags & (state.board[here + offset] == NOT_IT)
            tags, other = tags | first, jnp.where(first, here + offset, other)
        it = state.it
        for i in range(self.num_agents):
            it = jnp.where(tags & (positions[i] == other), jnp.int32(i), it)

        board = put(state.board, position, jnp.int8(EMPTY))
        board = put(board, here, jnp.where(was_it & ~tags, jnp.int8(IT), jnp.int8(NOT_IT)))
        board = jnp.where(tags, put(board, other, jnp.int8(IT)), board)
        event = jnp.where(tags, jnp.int8(TAGGED), jnp.where(was_it, jnp.int8(STAYED_IT), jnp.int8(WAS_FREE)))
        return State(board, positions, it), event

    def reward(self, events: jax.Array) -> jax.Array:
        """float32: the reward of every agent that is not it."""
        return jnp.where(events == STAYED_IT, jnp.float32(0), jnp.float32(self.config.free_reward))

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [1]: how often an agent was tagged."""
        return jnp.sum(events == TAGGED, dtype=jnp.int32)[None]
