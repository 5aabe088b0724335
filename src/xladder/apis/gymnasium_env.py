"""A world of ours with Gymnasium's API, for one agent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from xladder.apis.interface import HostGame, Interface


class GymnasiumEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One agent in a world of ours. `info["action_mask"]`, int8, says which actions are available, if not all are."""

    def __init__(self, game: HostGame, render_mode: str | None = None):
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.render_mode = render_mode
        self._game = game
        self.observation_space = observation_space(game.interface)
        self.action_space = spaces.Discrete(game.interface.actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode. The same seed gives the same episodes from then on; `options` is not used."""
        super().reset(seed=seed)
        return self._shown(self._game.begin(self.np_random)[0])

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Act. Returns observation, reward, terminated, truncated and info."""
        made = self._game.step([action])
        seen, info = self._shown(made.observations[0])
        return seen, float(made.rewards[0]), bool(made.terminated[0]), bool(made.truncated[0]), info

    def render(self) -> Any:
        """uint8 [height, width, 3] if `render_mode` is `rgb_array`, otherwise nothing."""
        return self._game.picture() if self.render_mode == "rgb_array" else None

    def _shown(self, observation: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """An observation without its mask, and info."""
        shown = self._game.interface
        if not shown.masked:
            return observation, {}
        return shown.without_mask(observation), {"action_mask": shown.available(observation).astype(np.int8)}


def observation_space(interface: Interface) -> spaces.Box:
    """The space of an observation, without its mask."""
    return spaces.Box(interface.low, interface.high, interface.seen, interface.dtype.type)
