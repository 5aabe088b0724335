"""What our worlds have in common in PettingZoo's two APIs: agents, spaces, seeds and pictures."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from gymnasium import spaces

from xladder.apis.gymnasium_env import observation_space
from xladder.apis.interface import HostGame, Interface

G = TypeVar("G", bound=HostGame)


class SharedGame(Generic[G]):
    """A world with several agents; the APIs add how they act."""

    def __init__(self, game: G, name: str, render_mode: str | None = None):
        super().__init__()
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

    def begin(self, seed: int | None) -> np.ndarray:
        """Begin an episode with all agents. The same seed gives the same episodes from then on."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        return self._game.begin(self._rng)

    def render(self) -> Any:
        """uint8 [height, width, 3] if `render_mode` is `rgb_array`, otherwise nothing."""
        return self._game.picture() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Nothing has to be released."""


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
