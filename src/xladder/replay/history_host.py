"""The replay memory of single frames in NumPy: the twin of `history.py`, changed in place.

Shapes: N envs, L rows per env, F frames per state, B batch, R candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from xladder.core.state import Stateful
from xladder.replay.batch import Batch
from xladder.replay.history import History, Rows, SampleIndices, Window, action_dtype, rows_of


class HostHistory(Stateful):
    """The rows of N envs, and the write position."""

    STATE = ("rows", "head", "size")

    def __init__(
        self,
        num_envs: int,
        window: Window,
        shape: tuple[int, ...],
        dtype: Any,
        actions: int = 2,
        hidden: int = 0,
        choices: tuple[int, ...] = (),
    ):
        self.num_envs, self.window = num_envs, window
        rows = (num_envs, window.length)
        plain = History(
            frames=np.zeros((*rows, *shape), dtype),
            actions=np.zeros((*rows, *choices), action_dtype(actions)),
            rewards=np.zeros(rows, np.float32),
            terminated=np.zeros(rows, bool),
            truncated=np.zeros(rows, bool),
            is_first=np.zeros(rows, bool),
        )
        self.rows: Any = rows_of(plain, np.zeros((*rows, hidden), np.float32)) if hidden else plain
        self.head = self.size = 0

    def part(self, first: int, count: int) -> HostHistory:
        """A memory of some of the envs, with its own write position, that shares the arrays."""
        found = copy(self)
        found.num_envs, found.rows = count, History(*(column[first : first + count] for column in self.rows))
        found.head = found.size = 0
        return found

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, writing into the same arrays, which `part`s share."""
        for old, new in zip(self.rows, state["rows"], strict=True):
            old[:] = new
        self.head, self.size = state["head"], state["size"]

    def add(self, rows: Rows) -> None:
        """Write one row per env, leaves [N, …]."""
        for old, new in zip(self.rows, rows, strict=True):
            old[:, self.head] = new
        self._written(1)

    def extend(self, chunk: History) -> None:
        """Write several rows per env, leaves [N, T, …]."""
        left = chunk.is_first.shape[1]
        while left:
            fit = min(left, self.window.length - self.head)
            for old, new in zip(self.rows, chunk, strict=True):
                old[:, self.head : self.head + fit] = new[:, new.shape[1] - left :][:, :fit]
            self._written(fit)
            left -= fit

    def _written(self, rows: int) -> None:
        self.head = (self.head + rows) % self.window.length
        self.size = min(self.size + rows, self.window.length)

    def eligible(self) -> tuple[int, int]:
        """The slot of the earliest possible start, and the number of starts from there, including reset rows."""
        window = self.window
        broken = 0 if self.begins_whole() else window.stack - 1
        return (self.head - self.size + broken) % window.length, max(self.size - broken - window.span, 0)

    def begins_whole(self) -> bool:
        """Whether the oldest rows begin an episode, so that their frame stacks are complete."""
        return self.size < self.window.length and bool(self.rows.is_first[:, 0].all())

    def sample_indices(self, uniforms: np.ndarray, strata: int = 1) -> SampleIndices:
        """Starts, uniform over envs and times, with replacement, from uniform numbers float32 [B, R, 2]."""
        earliest, count = self.eligible()
        stratum = np.arange(len(uniforms)) // (len(uniforms) // strata)  # [B]
        envs_per_stratum = self.num_envs // strata
        within, after = _places(uniforms, envs_per_stratum, count)
        envs, slots = stratum[:, None] * envs_per_stratum + within, (earliest + after) % self.window.length  # [B, R]
        usable = ~self.rows.is_first[envs, (slots + 1) % self.window.length] & (count > 0)
        if self.window.absences:
            usable &= ~(self.rows.terminated[envs, slots] & self.rows.truncated[envs, slots])
        each, chosen = np.arange(len(uniforms)), np.argmax(usable, axis=1)
        return SampleIndices(envs[each, chosen], slots[each, chosen], usable[each, chosen].astype(np.float32))

    def offer(self, uniforms: np.ndarray, first: int, total: int) -> tuple[np.ndarray, SampleIndices]:
        """Sample where these envs are `first` … of `total`, and other processes hold the rest.

        Returns the rank of the first usable candidate here, int [B], R if there is none, and that candidate. The first
        over all processes is then the one that a single memory would have sampled.
        """
        earliest, count = self.eligible()
        envs, after = _places(uniforms, total, count)
        envs, slots = envs - first, (earliest + after) % self.window.length  # [B, R]
        here = (envs >= 0) & (envs < self.num_envs)
        envs = np.where(here, envs, 0)
        usable = here & ~self.rows.is_first[envs, (slots + 1) % self.window.length] & (count > 0)
        each, chosen = np.arange(len(uniforms)), np.argmax(usable, axis=1)
        found = usable[each, chosen]
        rank = np.where(found, chosen, uniforms.shape[1])
        return rank, SampleIndices(envs[each, chosen], slots[each, chosen], found.astype(np.float32))

    def gather(self, indices: SampleIndices, gamma: float) -> Batch:
        """The transitions that start at `indices`."""
        window = self.window
        returns, discounts, steps = self.look_ahead(indices, gamma)
        now = indices.slot[:, None] + np.arange(1 - window.stack, 1)  # [B, F]
        if window.n_step == 1:  # both states are parts of F + 1 frames
            slots = np.append(now, indices.slot[:, None] + 1, axis=1)
            frames, is_first = self._read(indices.env, slots)
            states, next_states = (
                _mask_before_reset(frames[:, :-1], is_first[:, :-1]),
                _mask_before_reset(frames[:, 1:], is_first[:, 1:]),
            )
        else:
            states = self.states(indices.env, indices.slot)
            next_states = self.states(indices.env, indices.slot + steps)
        return Batch(
            states, self.rows.actions[indices.env, indices.slot], returns, discounts, next_states, indices.valid
        )

    def look_ahead(self, indices: SampleIndices, gamma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Σ γᵏ r over the m ≤ n steps left in the episode; γᵐ or 0; and m."""
        returns = np.zeros(indices.slot.shape, np.float32)
        discounts = np.ones(indices.slot.shape, np.float32)
        steps = np.zeros(indices.slot.shape, int)
        goes_on = np.ones(indices.slot.shape, bool)
        for step in range(self.window.n_step):
            row = indices.env, (indices.slot + step) % self.window.length
            terminated = self.rows.terminated[row]
            returns += discounts * np.where(goes_on, self.rows.rewards[row], np.float32(0))
            discounts[goes_on] *= np.where(terminated, np.float32(0), np.float32(gamma))[goes_on]
            steps += goes_on
            # An episode that was lost with its worker has no end row: the next one begins at once.
            lost = self.rows.is_first[indices.env, (indices.slot + step + 2) % self.window.length]
            goes_on &= ~terminated & ~self.rows.truncated[row] & ~lost
        return returns, discounts, steps

    def states(self, env: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """[B, F, *frame]: the frame stacks at these rows; frames of earlier episodes are zero."""
        return _mask_before_reset(*self._read(env, slot[:, None] + np.arange(1 - self.window.stack, 1)))

    def _read(self, env: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Frames [B, F, *frame] and their `is_first` flags, bool [B, F]."""
        places = env[:, None], slots % self.window.length
        return self.rows.frames[places], self.rows.is_first[places]


def push(stack: np.ndarray, frame: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """The next frame stack [N, F, *frame], as a new array: the previous one with the new frames appended."""
    pushed = np.concatenate([stack[:, 1:], frame[:, None]], axis=1)
    pushed[is_first, :-1] = 0
    return pushed


def _places(uniforms: np.ndarray, num_envs: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """int […] each: envs 0 … N − 1 and starts 0 … count − 1, uniform, from uniform numbers float32 […, 2].

    The second has 23 random bits, too few for a million starts; bits of the first that do not choose the env are added.
    """
    words = np.minimum((uniforms * np.float32(2**23)).astype(np.uint64), 2**23 - 1) * 2**9  # of 32 bits
    product = words[..., 0] * np.uint64(num_envs)
    rest = product % 2**32 // 2**23
    starts = (words[..., 1] + rest) * np.uint64(count) // 2**32
    return (product // 2**32).astype(int), starts.astype(int)


def _mask_before_reset(frames: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """Frames [B, F, *frame], with those before the latest `is_first` set to zero."""
    episodes_after = np.cumsum(is_first[:, ::-1], axis=1)[:, ::-1] - is_first  # [B, F]
    if episodes_after.any():
        frames = frames.copy()  # two states may share them
        frames[episodes_after > 0] = 0
    return frames
