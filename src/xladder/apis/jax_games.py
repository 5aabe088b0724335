"""Our worlds as pure functions of keys, for one env: what the environments for JaxMARL and gymnax are made of.

Shapes: A agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xladder.apis.interface import Interface, Observations, Outcome, of_envs, of_turns
from xladder.apis.painting import paint_observation, paint_turn
from xladder.core.keys import Stream
from xladder.nets.codes import encode
from xladder.worlds.envs import Envs

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import WorldSettings


class GameState(NamedTuple):
    """The state of an env."""

    world: Any  # the world's own state
    seen: Any  # [A, *shape]: the last observations, where they do not follow from the world's state; otherwise ()
    time: jax.Array  # int32 []: steps since the episode began
    truncated: jax.Array  # bool [A]: the last step reached the time limit


class JaxGame(Protocol):
    """One env, as pure functions; hashable."""

    @property
    def interface(self) -> Interface:
        """Agents, observations and actions."""

    def reset(self, key: jax.Array) -> tuple[GameState, jax.Array]:
        """Begin an episode. Returns the state and the first observations [A, *shape]."""

    def step(self, key: jax.Array, state: GameState, actions: jax.Array) -> tuple[GameState, Outcome]:
        """Let all agents act, int32 [A]. The episode must not be over."""

    def observe(self, state: GameState) -> jax.Array:
        """The observations in a state, [A, *shape]."""

    def picture(self, state: GameState) -> np.ndarray:
        """uint8 [height, width, 3]: what a state looks like."""


@dataclass(frozen=True)
class TurnGame:
    """A world in which agents take turns; they observe together, then move in order. A step is a turn."""

    settings: WorldSettings
    observations: Observations = "encoded"

    @property
    def interface(self) -> Interface:
        """Agents, observations and actions."""
        return of_turns(self.settings.build(), self.observations)

    def reset(self, key: jax.Array) -> tuple[GameState, jax.Array]:
        """Begin an epoch, and its first turn."""
        world = self.settings.build()
        state = world.reset(world.draw_reset(jax.random.fold_in(key, int(Stream.RESET))))
        state = self._begin_turn(jax.random.fold_in(key, int(Stream.SPAWN)), state)
        made = GameState(state, (), jnp.int32(0), jnp.zeros(world.num_agents, bool))
        return made, self.observe(made)

    def step(self, key: jax.Array, state: GameState, actions: jax.Array) -> tuple[GameState, Outcome]:
        """Let all agents move; the next turn begins with random numbers from `key`."""
        world = self.settings.build()
        moved, events = world.move_all(state.world, actions)
        time = state.time + 1
        over = time >= self.settings.max_turns
        begun = self._begin_turn(key, moved)
        last = jax.tree.map(lambda ended, goes_on: jnp.where(over, ended, goes_on), moved, begun)
        cut = jnp.broadcast_to(over, (world.num_agents,))
        made = GameState(last, (), time, cut)
        return made, Outcome(self.observe(made), world.reward(events), jnp.zeros_like(cut), cut)

    def observe(self, state: GameState) -> jax.Array:
        """The observations in a state, [A, *shape]."""
        world = self.settings.build()
        codes = jax.vmap(lambda agent: world.view(state.world, agent))(jnp.arange(world.num_agents))
        return codes if self.observations == "codes" else encode(codes[:, None], world.encoding)

    def picture(self, state: GameState) -> np.ndarray:
        """uint8 [height, width, 3]: the board."""
        return paint_turn(self.settings, state.world)

    def _begin_turn(self, key: jax.Array, state: Any) -> Any:
        world = self.settings.build()
        return world.begin_turn(state, jax.tree.map(lambda leaf: leaf[0], world.draw_turns(key, 1)))


@dataclass(frozen=True)
class ValueGame:
    """A JAX world of the value family: `envs` has one env."""

    name: str
    envs: Envs

    @property
    def interface(self) -> Interface:
        """Agents, observations and actions."""
        return of_envs(self.envs.spec)

    def reset(self, key: jax.Array) -> tuple[GameState, jax.Array]:
        """Begin an episode."""
        state, frames = self.envs.reset(key[None])
        seen = self._of_agents(frames)
        return GameState(state, seen, jnp.int32(0), jnp.zeros(seen.shape[0], bool)), seen

    def step(self, key: jax.Array, state: GameState, actions: jax.Array) -> tuple[GameState, Outcome]:
        """Let all agents act."""
        several = bool(self.envs.spec.agents)
        world, step = self.envs.step(key[None], state.world, actions[:, None] if several else actions)
        seen, rewards, ends, cuts = (
            self._of_agents(part) for part in (step.frame, step.reward, step.terminated, step.truncated)
        )
        cuts = cuts & ~ends  # absent agents are marked as both
        return GameState(world, seen, state.time + 1, cuts), Outcome(seen, rewards, ends, cuts)

    def observe(self, state: GameState) -> jax.Array:
        """The observations in a state, [A, *shape]."""
        return state.seen

    def picture(self, state: GameState) -> np.ndarray:
        """uint8 [height, width, 3]: what the first agent observes."""
        return paint_observation(self.name, np.asarray(state.seen[0]), self.interface)

    def _of_agents(self, part: jax.Array) -> jax.Array:
        """[A, …] from [1, …] or [A, 1, …]."""
        return part[:, 0] if self.envs.spec.agents else part
