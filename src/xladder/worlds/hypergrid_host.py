"""The hypergrid in NumPy, a batch of states at a time: the twin of `hypergrid.py`.

Shapes: B states, D coordinates, H values of each, A = D + 1 forward actions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from xladder.worlds.hypergrid_settings import WorldConfig


# Written out again on purpose: a twin that shared them could not show that they are wrong.
HILL_MEAN, HILL_VARIANCE = 0.75, 0.05


class HostGrid:
    """Masks, steps and rewards of states int64 [B, D]; see `flow.HostWorld`."""

    def __init__(self, config: WorldConfig):
        self.config = config
        self.state_size, self.num_actions, self.max_steps = config.dim, config.dim + 1, config.steps
        self.num_inputs = config.dim * config.side
        self.offsets = config.side * np.arange(config.dim)
        self.moves = np.vstack([np.eye(config.dim, dtype=np.int64), np.zeros((1, config.dim), np.int64)])

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, D]: initial states."""
        return np.zeros((count, self.config.dim), np.int64)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: which forward actions are allowed."""
        mask = np.ones((len(states), self.config.dim + 1), bool)
        mask[:, :-1] = states < self.config.side - 1
        return mask

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, D]: which steps may have led here."""
        return states > 0

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states after actions [B]; stop does not change a state."""
        return states + self.moves[actions]

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states before actions [B]."""
        return states - self.moves[actions]

    def encode(self, states: np.ndarray) -> np.ndarray:
        """int64 [B, D]: the indices of the active one-hot inputs."""
        return states + self.offsets

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: the log-rewards. A custom reward is called as it is: it has no twin."""
        if self.config.own_reward:
            from xladder.worlds.own_rewards import log_rewards

            return log_rewards(self.config.reward, states)
        if self.config.terms:
            terms = self.log_terms(states).astype(np.float64)
            return np.log(np.exp(terms).mean(1)).astype(np.float32)
        edge = self.config.side - 1
        middle = np.abs(2 * states - edge)
        if self.config.reward == "corners":
            square = (middle / edge - HILL_MEAN) ** 2 / HILL_VARIANCE
            return (-0.5 * (square + np.log(2 * np.pi * HILL_VARIANCE))).sum(1).astype(np.float32)
        return np.log(self._reward(states, middle, edge)).astype(np.float32)

    def log_terms(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, K]: the log-rewards by each of several rewards."""
        return np.stack([HostGrid(term).log_reward(states) for term in self.config.terms], axis=1)

    def _reward(self, states: np.ndarray, middle: np.ndarray, edge: int) -> Any:
        """float64 [B]: the reward, from twice the distance to the centre, int [B, D], and its value at the edge."""
        r0, r1, r2 = self.config.levels
        if self.config.reward == "cosine":
            away = middle / (2 * edge)
            return r0 + r1 * ((1 + np.cos(50 * away)) * np.exp(-12.5 * away**2) / (2 * np.pi) ** 0.5).prod(1)
        if self.config.reward == "xor":
            planes = (states[:, :3, None] >> np.arange(6)) & 1  # [B, 3, 6]: bit by bit, as torchgfn has it
            even = planes.sum(1) % 2 == 0
            return r0 + r1 * even[:, :5].all(1) + r2 * even.all(1)
        if self.config.reward == "coprime":
            ruled = states[:, :3]
            fits = ((ruled > 0) & (900 % np.maximum(ruled, 1) == 0)).all(1)
            return r0 + r2 * (fits & (np.gcd(ruled[:, 1:], ruled[:, :-1]) == 1).all(1))
        if self.config.reward == "sparse":
            target = np.isin(states, [1, edge - 1]).all(1)
            return r0 + r2 * (target if edge == 2 else target & (states != 1).any(1))
        band = ((3 * edge < 5 * middle) & (5 * middle < 4 * edge)).all(1)
        if self.config.reward == "deceptive":
            return r0 + r1 * (5 * middle <= edge).any(1) + r2 * band
        return r0 + r1 * (2 * middle > edge).all(1) + r2 * band


@lru_cache(maxsize=8)
def build(config: WorldConfig) -> HostGrid:
    """The grid for these settings."""
    return HostGrid(config)
