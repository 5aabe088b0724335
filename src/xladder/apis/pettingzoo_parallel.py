"""A world of ours with PettingZoo's parallel API: all agents act at once.

In worlds with turns, all agents observe, and then all move in order: what training calls `observe=together`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pettingzoo import ParallelEnv

from xladder.apis.interface import HostGame
from xladder.apis.pettingzoo_games import SharedGame
from xladder.errors import UsageError


class ParallelGame(SharedGame[HostGame], ParallelEnv[str, Any, int]):
    """All agents of a world of ours, acting at once."""

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict[str, Any], dict[str, dict]]:
        """Begin an episode. The same seed gives the same episodes from then on; `options` is not used."""
        return self._by_agent(self.begin(seed)), {agent: {} for agent in self.agents}

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

    def _by_agent(self, observations: np.ndarray) -> dict[str, Any]:
        whole = dict(zip(self.possible_agents, observations, strict=True))
        shown = self._game.interface
        if not shown.masked:
            return {agent: whole[agent] for agent in self.agents}
        return {
            agent: {
                "observation": shown.without_mask(whole[agent]),
                "action_mask": shown.available(whole[agent]).astype(np.int8),
            }
            for agent in self.agents
        }
