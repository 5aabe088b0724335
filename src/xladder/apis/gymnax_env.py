"""A world of ours with gymnax's API, for one agent: pure functions under `jit`, `vmap` and `scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import spaces
from gymnax.environments.environment import Environment, EnvParams

from xladder.apis.jax_games import GameState, JaxGame


class GymnaxEnv(Environment[GameState, EnvParams]):
    """One agent in a world of ours. `params` is not used: settings are given to `xladder.make`."""

    def __init__(self, game: JaxGame, name: str):
        self.game, self._name = game, name

    @property
    def name(self) -> str:
        """The world's name."""
        return self._name

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.game.interface.actions

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[jax.Array, GameState]:
        """Begin an episode. Returns the observation and the state."""
        state, observations = self.game.reset(key)
        return self.game.interface.without_mask(observations)[0], state

    def step_env(
        self, key: jax.Array, state: GameState, action: Any, params: EnvParams
    ) -> tuple[jax.Array, GameState, jax.Array, jax.Array, dict[str, Any]]:
        """Act. Returns observation, state, reward, whether it terminated, and an empty dict."""
        state, made = self.game.step(key, state, jnp.asarray(action).astype(jnp.int32).reshape(1))
        seen = self.game.interface.without_mask(made.observations)[0]
        return seen, state, made.rewards[0], made.terminated[0], {}

    def is_truncated(self, state: GameState, params: EnvParams) -> jax.Array:
        """Whether the last step reached the time limit."""
        return state.truncated[0]

    def is_terminated(self, state: GameState, params: EnvParams) -> jax.Array:
        """Not known from a state: `step` and `step_env` return it."""
        raise NotImplementedError("`step` and `step_env` return whether the episode terminated.")

    def get_obs(self, state: GameState, params: EnvParams | None = None, key: jax.Array | None = None) -> jax.Array:
        """The observation in a state."""
        return self.game.interface.without_mask(self.game.observe(state))[0]

    def observation_space(self, params: EnvParams | None = None) -> spaces.Box:
        """The observations."""
        shown = self.game.interface
        return spaces.Box(float(shown.low), float(shown.high), shown.seen, shown.dtype)

    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete:
        """The actions."""
        return spaces.Discrete(self.game.interface.actions)

    def render(self, state: GameState, params: EnvParams | None = None) -> np.ndarray:
        """uint8 [height, width, 3]: what a state looks like. Not for use under `jit`."""
        return self.game.picture(state)


class MaskedGymnaxEnv(GymnaxEnv):
    """One agent in a world of ours in which some actions are not always available."""

    def get_avail_actions(self, state: GameState, params: EnvParams | None = None) -> jax.Array:
        """bool [actions]: which actions are available."""
        return self.game.interface.available(self.game.observe(state))[0]
