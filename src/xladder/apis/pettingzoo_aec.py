"""A world with turns in PettingZoo's AEC API: agents act one after another.

Which moves an agent sees is a setting of the world, as in training: with `observe=in_turn` it sees those of the agents
before it, with `observe=together` what was there when the turn began.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pettingzoo import AECEnv

from xladder.apis.host_games import HostTurnGame
from xladder.apis.pettingzoo_games import SharedGame


class TurnGame(SharedGame[HostTurnGame], AECEnv[str, Any, int | None]):
    """All agents of a world with turns, acting one after another."""

    def __init__(self, game: HostTurnGame, name: str, render_mode: str | None = None):
        super().__init__(game, name, render_mode)
        self._place = {agent: i for i, agent in enumerate(self.possible_agents)}
        self._together = game.settings.observe == "together"
        self._seen: np.ndarray | None = None  # by all agents at the beginning of the turn, or at the end of the epoch

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        """Begin an epoch. The same seed gives the same epochs from then on; `options` is not used."""
        seen = self.begin(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]
        self._seen = seen if self._together else None

    def observe(self, agent: str) -> Any:
        """What an agent sees now."""
        place = self._place[agent]
        return self._game.observe(place) if self._seen is None else self._seen[place]

    def step(self, action: int | None) -> None:
        """Let the selected agent act; after the last one, the next turn begins."""
        agent = self.agent_selection
        if self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        place = self._place[agent]
        self.rewards[agent] = self._game.act(place, action)
        if place == len(self.possible_agents) - 1:
            over = self._game.end_turn()
            self.truncations = dict.fromkeys(self.agents, over)
            self._seen = self._game.observe_all() if self._together or over else None
        self.agent_selection = self.possible_agents[(place + 1) % len(self.possible_agents)]
        self._accumulate_rewards()
