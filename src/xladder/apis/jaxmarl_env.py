"""A world of ours with JaxMARL's API, for any number of agents: pure functions under `jit`, `vmap` and `scan`.

In worlds with turns, all agents observe, and then all move in order: what training calls `observe=together`.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from xladder.apis.interface import Outcome
from xladder.apis.jax_games import GameState, JaxGame

with patch("builtins.print"):  # JaxMARL prints which optional worlds are missing
    from jaxmarl.environments import spaces
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv

Dicts = tuple[dict[str, jax.Array], Any, dict[str, jax.Array], dict[str, jax.Array], dict[str, jax.Array]]


class JaxMARLEnv(MultiAgentEnv):
    """All agents of a world of ours, acting at once."""

    def __init__(self, game: JaxGame, name: str):
        self.game, self._name = game, name
        shown = game.interface
        super().__init__(len(shown.agents))
        self.agents = list(shown.agents)
        low, high = float(shown.low), float(shown.high)
        self.observation_spaces = {a: spaces.Box(low, high, shown.seen, shown.dtype) for a in self.agents}
        self.action_spaces = {agent: spaces.Discrete(shown.actions) for agent in self.agents}

    @property
    def name(self) -> str:
        """The world's name."""
        return self._name

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """All agents are of one kind."""
        return {"agents": self.agents}

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: jax.Array) -> tuple[dict[str, jax.Array], GameState]:
        """Begin an episode. Returns observations by agent, and the state."""
        state, observations = self.game.reset(key)
        return self._by_agent(self.game.interface.without_mask(observations)), state

    @partial(jax.jit, static_argnums=0)
    def step_env(self, key: jax.Array, state: GameState, actions: dict[str, jax.Array]) -> Dicts:
        """Let all agents act; JaxMARL's `step` calls this and begins the next episode where one is over.

        Returns observations, state, rewards, dones and infos. `infos["truncated"]`, bool [A], says whose episode was
        cut by a time limit: there, a learner should still bootstrap.
        """
        taken = jnp.stack([jnp.asarray(actions[agent]).astype(jnp.int32).reshape(()) for agent in self.agents])
        state, made = self.game.step(key, state, taken)
        made = Outcome(*made)
        over = made.terminated | made.truncated
        dones = {**self._by_agent(over), "__all__": over.all()}
        infos = {"truncated": made.truncated}
        return self.get_obs(state), state, self._by_agent(made.rewards), dones, infos

    def get_obs(self, state: Any) -> dict[str, jax.Array]:
        """The observations in a state, by agent."""
        return self._by_agent(self.game.interface.without_mask(self.game.observe(state)))

    @partial(jax.jit, static_argnums=0)
    def get_avail_actions(self, state: GameState) -> dict[str, jax.Array]:
        """bool [actions] by agent: which actions are available."""
        shown = self.game.interface
        if shown.masked:
            return self._by_agent(shown.available(self.game.observe(state)))
        return {agent: jnp.ones(shown.actions, bool) for agent in self.agents}

    def render(self, state: GameState) -> np.ndarray:
        """uint8 [height, width, 3]: what a state looks like. Not for use under `jit`."""
        return self.game.picture(state)

    def _by_agent(self, part: jax.Array) -> dict[str, jax.Array]:
        return {agent: part[i] for i, agent in enumerate(self.agents)}
