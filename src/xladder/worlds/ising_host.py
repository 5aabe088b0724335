"""The Ising model in NumPy, a batch of states at a time: the twin of `ising.py`. See `flow.HostWorld`.

Shapes: B states, n = N² sites, A = 2n + 1 forward actions.
"""

from __future__ import annotations

import numpy as np


class HostIsing:
    """Masks, steps and rewards of states int64 [B, n]."""

    def __init__(self, side: int, strength: float, block: int):
        self.side, self.strength, self.block = side, strength, block
        self.state_size = side * side
        self.num_actions, self.max_steps = 2 * self.state_size + 1, self.state_size + 1
        self.num_inputs = 2 * self.state_size

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, n]: no spin is set."""
        return np.zeros((count, self.state_size), np.int64)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: unset sites of the first block that has any; stop if there is none."""
        blocks = (states == 0).reshape(len(states), -1, self.block)
        earlier = np.cumsum(blocks.any(2), axis=1) - blocks.any(2)
        unset = (blocks & (earlier == 0)[:, :, None]).reshape(states.shape)
        return np.concatenate([unset, unset, ~unset.any(1, keepdims=True)], axis=1)

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: set sites of the last block that has any."""
        used: np.ndarray = np.any((states > 0).reshape(len(states), -1, self.block), axis=2)
        later = used[:, ::-1].cumsum(1)[:, ::-1] - used
        last = np.repeat(used & (later == 0), self.block, axis=1)
        return np.concatenate([last & (states == 1), last & (states == 2)], axis=1)

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states after actions [B]; stop does not change a state."""
        return self._set(states, actions, 1 + actions // self.state_size)

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states before actions [B]."""
        return self._set(states, actions, np.zeros_like(actions))

    def _set(self, states: np.ndarray, actions: np.ndarray, values: np.ndarray) -> np.ndarray:
        moving = np.flatnonzero(actions < 2 * self.state_size)
        after = states.copy()
        after[moving, actions[moving] % self.state_size] = values[moving]
        return after

    def encode(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, 2n]: which spins are down, and which are up."""
        return np.concatenate([states == 1, states == 2], axis=1).astype(np.float32)

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: −E / T."""
        spins = np.where(states > 0, 2 * states - 3, 0).reshape(-1, self.side, self.side)
        right, down = np.roll(spins, -1, axis=2), np.roll(spins, -1, axis=1)
        return (self.strength * (spins * right + spins * down).sum((1, 2))).astype(np.float32)
