"""Sets in NumPy, a batch of states at a time: the twin of `sets.py`. See `flow.HostWorld`.

Shapes: B states, n items, A = n + 1 forward actions.
"""

from __future__ import annotations

import numpy as np


class HostSets:
    """Masks, steps and rewards of states int64 [B, n]."""

    def __init__(self, energies: np.ndarray, most: int, full: bool):
        self.energies, self.most, self.full = energies, most, full
        self.state_size = self.num_inputs = len(energies)
        self.num_actions, self.max_steps = len(energies) + 1, most + 1
        self.moves = np.vstack([np.eye(len(energies), dtype=np.int64), np.zeros((1, len(energies)), np.int64)])

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, n]: empty sets."""
        return np.zeros((count, self.state_size), np.int64)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: items that a set with room lacks, and stop."""
        left = self.most - states.sum(1, keepdims=True)
        stop = left == 0 if self.full else np.ones_like(left, bool)
        return np.concatenate([(1 - states) * left > 0, stop], axis=1)

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, n]: items of the set."""
        return states != 0

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states after actions [B]; stop does not change a state."""
        return states + self.moves[actions]

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states before actions [B]."""
        return states - self.moves[actions]

    def encode(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, n]: the states as they are."""
        return states.astype(np.float32)

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: minus the sum of the energies."""
        return -(states @ self.energies).astype(np.float32)
