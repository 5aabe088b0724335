"""Sequences in NumPy, a batch of states at a time: the twin of `sequences.py`; the reward is given.

Shapes: B states, L places, V symbols, A forward actions, the last of which is stop.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class HostSequences:
    """Masks, steps and rewards of states int64 [B, L]; see `flow.HostWorld`.

    Args:
        length: Places, L.
        symbols: Symbols, V.
        order: Where symbols are written: append, ends or any.
        shortest: Symbols of the shortest sequence.
        log_reward: float [B] of states [B, L] in which stop is allowed.
    """

    def __init__(
        self, length: int, symbols: int, order: str, shortest: int, log_reward: Callable[[np.ndarray], np.ndarray]
    ):
        self.symbols, self.order, self.shortest, self._log_reward = symbols, order, shortest, log_reward
        moves = {"append": symbols, "ends": 2 * symbols, "any": length * symbols}[order]
        self.state_size, self.num_actions, self.max_steps = length, moves + 1, length + 1
        self.num_inputs = length * (symbols + 1)

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, L]: empty sequences."""
        return np.zeros((count, self.state_size), np.int64)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: which forward actions are allowed."""
        filled = states > 0
        if self.order == "any":
            return np.column_stack([np.repeat(~filled, self.symbols, axis=1), filled.all(1)])
        size = filled.sum(1)
        room = np.repeat((size < self.state_size)[:, None], self.num_actions - 1, axis=1)
        return np.column_stack([room, size >= self.shortest])

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: which symbol may have been written last, and where."""
        count, length = states.shape
        mask = np.zeros((count, length, self.symbols), bool)
        who, place = np.nonzero(states)
        mask[who, place, states[who, place] - 1] = True
        if self.order == "any":
            return mask.reshape(count, -1)
        last = mask[np.arange(count), np.maximum((states > 0).sum(1) - 1, 0)]
        return last if self.order == "append" else np.concatenate([last, mask[:, 0]], axis=1)

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states after actions [B]; stop does not change a state."""
        after = states.copy()
        who = np.flatnonzero(actions < self.num_actions - 1)
        place, symbol = np.divmod(actions[who], self.symbols)
        if self.order != "any":
            prepending = who[place == 1]
            after[prepending, 1:] = states[prepending, :-1]
            place = np.where(place == 1, 0, (states[who] > 0).sum(1))
        after[who, place] = symbol + 1
        return after

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states before actions [B]; stop does not change a state."""
        before = states.copy()
        who = np.flatnonzero(actions < self.num_actions - 1)
        place = actions[who] // self.symbols
        if self.order == "any":
            before[who, place] = 0
            return before
        last, first = who[place == 0], who[place == 1]
        before[last, np.maximum((states[last] > 0).sum(1) - 1, 0)] = 0
        before[first, :-1], before[first, -1] = states[first, 1:], 0
        return before

    def encode(self, states: np.ndarray) -> np.ndarray:
        """int64 [B, L]: the indices of the active one-hot inputs."""
        return states + (self.symbols + 1) * np.arange(self.state_size)

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: the log-rewards."""
        return np.asarray(self._log_reward(states), np.float32)
