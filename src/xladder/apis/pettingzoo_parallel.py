"""A world of ours with PettingZoo's parallel API: all agents act at once.

In worlds with turns, all agents observe, and then all move in order: what training calls `observe=together`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from xladder.apis.gymnasium_env import observation_space
from xladder.apis.interface import HostGame, Interface
from xladder.errors import UsageError


class ParallelGame(ParallelEnv[str, Any, int]):
    """All agents of a world of ours, acting at once."""

    def __init__(self, game: HostGame, name: str, render_mode: str | None = None):
        self.metadata = {"name": name, "render_modes": ["rgb_array"], "render_fps": 10, "is_parallelizable": True}
        self.render_mode = render_mode
        self._game = game
        self.possible_agents = list(game.interface.agents)
        self.agents: list[str] = []
        self._rng = np.random.default_rng()
        self._observed, self._chosen = agent_spaces(game.interface)

    def observation_space(self, agent: str) -> spaces.Space:
        """The observations of an agent."""
        return self._observed[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """The actions of an agent."""
        return self._chosen[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict[str, Any], dict[str, dict]]:
        """Begin an episode. The same seed gives the same episodes from then on; `options` is not used."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(self._game.begin(self._rng)), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        """Let all agents act, in the order of `possible_agents`."""
        if not self.agents:
            raise UsageError("The episode is over: call `reset` first.")
        missing = [agent for agent in self.agents if agent not in actions]
        if missing:
            raise UsageError(f"`actions` has none for {missing[0]}: it has to have one for every agent in `agents`.")
        # The world ignores what an agent does whose episode is over.
        made = self._game.step([actions.get(agent, 0) for agent in self.possible_agents])
        present = {agent: i for i, agent in enumerate(self.possible_agents) if agent in self.agents}
        seen = self._by_agent(made.observations)
        terminated = {agent: bool(made.terminated[i]) for agent, i in present.items()}
        truncated = {agent: bool(made.truncated[i]) for agent, i in present.items()}
        rewards = {agent: float(made.rewards[i]) for agent, i in present.items()}
        self.agents = [agent for agent in present if not (terminated[agent] or truncated[agent])]
        return seen, rewards, terminated, truncated, {agent: {} for agent in present}

    def render(self) -> Any:
        """uint8 [height, width, 3] if `render_mode` is `rgb_array`, otherwise nothing."""
        return self._game.picture() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Nothing has to be released."""

    def _by_agent(self, observations: np.ndarray) -> dict[str, Any]:
        whole = dict(zip(self.possible_agents, observations, strict=True))
        interface = self._game.interface
        if not interface.masked:
            return {agent: whole[agent] for agent in self.agents}
        size = interface.seen[0]
        return {
            agent: {"observation": whole[agent][:size], "action_mask": whole[agent][size:].astype(np.int8)}
            for agent in self.agents
        }


def agent_spaces(interface: Interface) -> tuple[dict[str, spaces.Space], dict[str, spaces.Space]]:
    """The spaces of observations and actions by agent; each its own, because sampling seeds them."""
    observed: dict[str, spaces.Space] = {}
    for agent in interface.agents:
        seen: spaces.Space = observation_space(interface)
        if interface.masked:
            mask = spaces.Box(0, 1, (interface.actions,), np.int8)
            seen = spaces.Dict({"observation": seen, "action_mask": mask})
        observed[agent] = seen
    return observed, {agent: spaces.Discrete(interface.actions) for agent in interface.agents}
