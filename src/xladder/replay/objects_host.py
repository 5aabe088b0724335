"""A replay memory of objects in NumPy: the twin of `objects.py`.

Shapes: C slots, D numbers in an object, B objects.
"""

from __future__ import annotations

import numpy as np

from xladder.core.state import Stateful


class HostObjects(Stateful):
    """A ring of objects and their log-rewards."""

    STATE = ("states", "log_rewards", "index", "size")

    def __init__(self, capacity: int, size: int):
        self.states = np.zeros((capacity, size), np.int64)
        self.log_rewards = np.zeros(capacity, np.float32)
        self.index = self.size = 0

    def add(self, states: np.ndarray, log_rewards: np.ndarray) -> None:
        """Add objects [B, D], overwriting the oldest."""
        capacity = len(self.log_rewards)
        for state, log_reward in zip(states, log_rewards, strict=True):
            self.states[self.index], self.log_rewards[self.index] = state, log_reward
            self.index = (self.index + 1) % capacity
            self.size = min(self.size + 1, capacity)

    def add_diverse(self, states: np.ndarray, log_rewards: np.ndarray) -> None:
        """Add objects [B, D] that are not known: where there is room, or in place of the nearest if not worse."""
        for state, log_reward in zip(states, log_rewards, strict=True):
            away = np.abs(self.states[: self.size] - state).sum(1)
            room = self.size < len(self.log_rewards) and not (away == 0).any()
            slot = self.size if room else int(away.argmin())
            if room or log_reward >= self.log_rewards[slot]:
                self.states[slot], self.log_rewards[slot] = state, log_reward
            self.size += room
        self.index = self.size % len(self.log_rewards)

    def sample(self, draws: np.ndarray, prioritised: bool) -> np.ndarray:
        """Sample an object [B, D] for each uniform number [B], with replacement."""
        if not prioritised:
            return self.states[np.minimum((draws * np.float32(self.size)).astype(int), self.size - 1)]
        held = self.log_rewards[: self.size]
        heights = np.cumsum(np.exp(held - held.max()))
        return self.states[np.minimum(np.searchsorted(heights, draws * heights[-1], side="right"), self.size - 1)]
