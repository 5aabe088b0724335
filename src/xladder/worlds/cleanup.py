"""Cleanup: agents harvest apples, which grow only while somebody keeps the river clean. Pure JAX.

After sorrel's `cleanup` example, a commons dilemma. The board has three layers: the ground (river, orchard, sand), the
agents, and the beams that they fire. At the beginning of a turn, all at once: river may become polluted, pollution
under a cleaning beam becomes river, trees may bear an apple unless more than a threshold of the river is polluted,
apples under an agent are eaten up, and beams grow old or vanish; a beam lasts for its own turn and for one more.
Then the agents act, one after another: move, clean or zap. A beam covers the cells in front of an agent, three abreast.
An agent is rewarded for what lies on the cell that it moves towards, whether or not it can enter, or on its own if it
fires: an apple pays, a zapping beam costs.

The event of an action is a sum of bits. Agents see the layers around them, one upon another, and their row and column.

Shapes: N agents, R beam radius, C cells of the board with its margin, V codes in a view, A apples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.boards import MOVES, BoardWorld, put

if TYPE_CHECKING:
    from xladder.families.multi_agent.cleanup_presets import WorldConfig

EMPTY, RIVER, POLLUTION, TREE, APPLE, WALL, OUTSIDE = range(7)  # the ground
NO_BEAM, CLEAN, OLD_CLEAN, ZAP, OLD_ZAP = range(5)
OCCUPIED, BEAM = 7, 14  # a cell of a view is its ground, plus 7 if an agent is there, plus 14 times its beam
ATE, ZAPPED, CLEANS, ZAPS = 1, 2, 4, 8  # bits of an event
UP, RIGHT, DOWN, LEFT = range(4)  # where an agent looks


class ResetDraws(NamedTuple):
    """The random numbers of a reset."""

    starts: jax.Array  # int32 [N]
    apples: jax.Array  # int32 [A]


class State(NamedTuple):
    """The layers of the board, and where the agents stand and look."""

    ground: jax.Array  # int8 [C]
    agents: jax.Array  # int8 [C]: 1 where an agent is
    beams: jax.Array  # int8 [C]
    positions: jax.Array  # int32 [N], indices into the layers
    directions: jax.Array  # int8 [N]


@dataclass(frozen=True)
class Cleanup(BoardWorld):
    """The board as pure functions of its state."""

    config: WorldConfig

    def terrain(self) -> np.ndarray:
        """int8 [C]: the ground before any pollution or apples."""
        c, m = self.config, self.config.margin
        ground = self.framed(inside=EMPTY, wall=WALL, outside=OUTSIDE).reshape(-1, self.stride)
        inside = ground[m + 1 : m + c.height - 1, m + 1 : m + c.width - 1]  # a view: what is written here is kept
        row = 1 + np.arange(inside.shape[0])[:, None]
        column = 1 + np.arange(inside.shape[1])[None, :]
        third, stem = c.height // 3, c.width // 3
        if c.mode == "apple":
            inside[:] = TREE
            return ground.ravel()
        orchard = (row > c.height - 1 - third) & (column > 0)
        # The river fills the upper third, and a stem of two columns reaches further down.
        river = (row < third) | ((row < 2 * third - 1) & ((column == stem) | (column == stem + 1)))
        inside[orchard] = TREE
        inside[river] = RIVER
        return ground.ravel()

    def spawn_cells(self) -> np.ndarray:
        """int32: where agents may start: on sand, or in the orchard of `apple` on cells of even row and column."""
        if self.config.mode != "apple":
            return np.flatnonzero(self.terrain() == EMPTY).astype(np.int32)
        row, column = self._coordinates()
        return self.inside()[((row % 2 == 0) & (column % 2 == 0))[self.inside()]]

    def orchard_cells(self) -> np.ndarray:
        """int32: where the first apples may be."""
        trees = np.flatnonzero(self.terrain() == TREE).astype(np.int32)
        return np.setdiff1d(trees, self.spawn_cells()).astype(np.int32)

    def _coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """int [C] each: row and column of every cell."""
        cells = np.arange(self.terrain().size)
        return cells // self.stride - self.config.margin, cells % self.stride - self.config.margin

    def beam_offsets(self) -> np.ndarray:
        """int32 [4, 3·R]: from an agent to the cells of its beam, by direction."""
        reach = np.arange(self.config.beam_radius)
        forward = np.array([-self.stride, 1, self.stride, -1])[:, None]
        aside = np.array([1, self.stride, -1, -self.stride])[:, None]
        ahead, beside = forward * (1 + reach), forward * reach
        return np.concatenate([ahead, beside + aside, beside - aside], axis=1).astype(np.int32)

    def beam_shapes(self) -> np.ndarray:
        """bool [4, 2·C]: whether a beam lights the cell at an offset from its agent, by direction and C + offset."""
        cells = self.terrain().size
        shapes = np.zeros((4, 2 * cells), bool)
        np.put_along_axis(shapes, self.beam_offsets() + cells, True, axis=1)
        return shapes

    def draw_reset(self, key: jax.Array) -> ResetDraws:
        """Distinct initial cells of agents and of apples."""
        agents, apples = (jax.random.fold_in(key, i) for i in range(2))
        return ResetDraws(
            self.draw_starts(agents, self.spawn_cells(), self.num_agents),
            self.draw_starts(apples, self.orchard_cells(), self.config.initial_apples),
        )

    def draw_turns(self, key: jax.Array, turns: int) -> jax.Array:
        """bool [turns, C]: whether river becomes polluted, or a tree bears an apple, if it can."""
        terrain = self.terrain()
        chance = np.where(terrain == RIVER, self.config.pollution_prob, 0.0)
        chance = np.where(terrain == TREE, self.config.apple_prob, chance).astype(np.float32)
        return jax.random.uniform(key, (turns, terrain.size)) < jnp.asarray(chance)[None]

    def reset(self, draws: ResetDraws) -> State:
        """A clean river, the apples and agents that were drawn, all looking down."""
        terrain = jnp.asarray(self.terrain())
        return State(
            ground=terrain.at[draws.apples].set(jnp.int8(APPLE)),
            agents=jnp.zeros_like(terrain).at[draws.starts].set(jnp.int8(1)),
            beams=jnp.zeros_like(terrain),
            positions=draws.starts,
            directions=jnp.full((self.num_agents,), DOWN, jnp.int8),
        )

    def begin_turn(self, state: State, draws: jax.Array) -> State:
        """Pollute, clean, grow and eat; age the beams."""
        ground, beams = state.ground, state.beams
        grows = jnp.sum(ground == POLLUTION, dtype=jnp.int32) <= self.config.most_pollution(self._river_cells())
        cleaned = (beams == CLEAN) | (beams == OLD_CLEAN)
        after = [
            (RIVER, draws, POLLUTION),
            (POLLUTION, cleaned, RIVER),
            (TREE, draws & grows, APPLE),
            (APPLE, state.agents == 1, TREE),
        ]
        changed = ground
        for code, turns, into in after:
            changed = jnp.where((ground == code) & turns, jnp.int8(into), changed)
        aged = jnp.asarray(np.array([NO_BEAM, OLD_CLEAN, NO_BEAM, OLD_ZAP, NO_BEAM], np.int8))[beams]
        return state._replace(ground=changed, beams=aged)

    def _river_cells(self) -> int:
        return int((self.terrain() == RIVER).sum())

    def view(self, state: State, agent: jax.Array | int) -> jax.Array:
        """int8 [V]: the cells that one agent sees, then its row and column."""
        position = state.positions[agent]
        layers = (self.see(layer, position) for layer in (state.ground, state.agents, state.beams))
        ground, agents, beams = layers
        place = jnp.stack([position // self.stride, position % self.stride]) - self.config.margin
        return jnp.append(ground + OCCUPIED * agents + BEAM * beams, place.astype(jnp.int8))

    def move(self, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
        """Let one agent move or fire. Returns the new state and the event, int8 []."""
        position, fires = state.positions[agent], action >= MOVES
        looks = jnp.asarray(np.array([UP, DOWN, LEFT, RIGHT, 0, 0], np.int8))[action]
        direction = jnp.where(fires, state.directions[agent], looks)
        target = position + jnp.asarray(np.append(self.strides(), np.zeros(2, np.int32)))[action]

        # Which cells are lit is looked up for all of them: a scatter would be a kernel of its own.
        cells = state.ground.size
        lit = jnp.asarray(self.beam_shapes())[direction, jnp.arange(cells) - position + cells]
        lit &= fires & (state.ground != WALL) & (state.ground != OUTSIDE)
        beams = jnp.where(lit, jnp.where(action == MOVES, jnp.int8(CLEAN), jnp.int8(ZAP)), state.beams)

        ate = state.ground[target] == APPLE
        zapped = (beams[target] == ZAP) | (beams[target] == OLD_ZAP)
        event = ATE * ate.astype(jnp.int8) + ZAPPED * zapped.astype(jnp.int8)
        event += CLEANS * (action == MOVES).astype(jnp.int8) + ZAPS * (action == MOVES + 1).astype(jnp.int8)

        enters = (state.agents[target] == 0) & (state.ground[target] != WALL)
        here = jnp.where(enters, target, position)
        agents = put(put(state.agents, position, jnp.int8(0)), here, jnp.int8(1))
        directions = put(state.directions, agent, direction)
        return State(state.ground, agents, beams, put(state.positions, agent, here), directions), event

    def reward(self, events: jax.Array) -> jax.Array:
        """float32: the values of apples and zapping beams."""
        ate, zapped = ((events & bit != 0).astype(jnp.float32) for bit in (ATE, ZAPPED))
        return ate * self.config.apple_value + zapped * self.config.zap_value

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [4]: apples that paid, zaps that cost, and how often agents cleaned and zapped."""
        bits = jnp.asarray(np.array([ATE, ZAPPED, CLEANS, ZAPS])).astype(events.dtype)
        return jnp.sum(events.reshape(-1, 1) & bits[None, :] != 0, axis=0, dtype=jnp.int32)
