"""The ring buffer of frames in NumPy: the twin of `frames.py`, for one agent, changed in place."""

import numpy as np

from xladder.core.state import Stateful
from xladder.replay.batch import Batch


class HostFrameRing(Stateful):
    """The frames of one agent."""

    STATE = ("frames", "actions", "rewards", "dones", "breaks", "index", "size")

    def __init__(self, capacity: int, cells: int, n_frames: int, n_step: int):
        self.capacity, self.n_frames, self.n_step = capacity, n_frames, n_step
        self.frames = np.zeros((capacity, cells), np.int8)
        self.actions = np.zeros(capacity, np.int8)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, bool)
        self.breaks = np.zeros(capacity, bool)
        self.index = self.size = 0

    def add(self, frame: np.ndarray, action: int, reward: float, done: bool, is_first: bool) -> None:
        """Write one frame, int8 [V]; `is_first` marks the first of an epoch."""
        i = self.index
        self.frames[i] = frame
        self.actions[i] = action
        self.rewards[i] = reward
        self.dones[i] = done
        self.breaks[i] = is_first
        self.index = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def add_empty(self) -> None:
        """Begin an epoch: skip `n_frames − 1` slots without clearing them; one of them counts as stored."""
        self.breaks[self.index] = True
        self.index = (self.index + self.n_frames - 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def recent(self) -> np.ndarray:
        """int8 [F − 1, V]: the frames before the write position, oldest first."""
        return self.frames[(self.index + np.arange(1 - self.n_frames, 0)) % self.capacity]

    def can_sample(self, batch_size: int) -> bool:
        """Whether a batch can be drawn without replacement."""
        return self.size >= batch_size + self.n_frames + self.n_step

    def limit(self) -> int:
        """Windows may start at 0 … limit − 1."""
        return max(1, self.size - self.n_frames - self.n_step)

    def sample_indices(self, scores: np.ndarray, batch_size: int) -> np.ndarray:
        """int [B]: window starts, sampled without replacement by random scores of all slots."""
        return np.argsort(-scores[: self.limit()], kind="stable")[:batch_size]

    def gather(self, starts: np.ndarray, gamma: float) -> Batch:
        """The transitions whose state windows begin at `starts`, int [B]."""
        n_frames, n_step, last = self.n_frames, self.n_step, self.n_frames - 1
        slots = (starts[:, None] + np.arange(n_frames + n_step)) % self.capacity
        frames, dones = self.frames[slots], self.dones[slots]
        returns = np.zeros(len(starts), np.float32)
        discounts = np.ones(len(starts), np.float32)
        for step in range(last, last + n_step):
            returns += discounts * self.rewards[slots[:, step]]
            discounts *= np.where(dones[:, step], np.float32(0), np.float32(gamma))
        valid = ~np.any(dones[:, :last], axis=1)
        if n_step > 1:
            after = slots[:, last + 1 :]
            valid &= ~np.any(self.breaks[after] | (after == self.index), axis=1)
        return Batch(
            states=frames[:, :n_frames],
            actions=self.actions[slots[:, last]],
            returns=returns,
            discounts=discounts,
            next_states=frames[:, n_step:],
            valid=valid.astype(np.float32),
        )
