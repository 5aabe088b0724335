"""Priorities of the rows of a `HostHistory`, in NumPy: the twin of `priorities.py`, changed in place.

Running sums are added in another order than in XLA, so if a uniform number falls within rounding error of the border
between two rows, the twins may draw either one.

Shapes: N envs, G blocks of T times each, B batch.
"""

from __future__ import annotations

import math

import numpy as np

from xladder.core.state import Stateful
from xladder.replay.history import SampleIndices
from xladder.replay.history_host import HostHistory


class HostPriorities(Stateful):
    """Priorities, already raised to the power of alpha; the row in slot s is at [s // T, s % T]."""

    STATE = ("blocks", "sums", "largest")

    def __init__(self, num_envs: int, length: int):
        self.times = max(1, int(np.rint(np.sqrt(length / num_envs))))  # about as many blocks as rows of each
        self.blocks = np.zeros((math.ceil(length / self.times), self.times, num_envs), np.float32)
        self.sums = np.zeros(len(self.blocks), np.float32)
        self.largest = np.float32(1)

    def admit(self, history: HostHistory) -> None:
        """Update the priorities after a row was added to the history."""
        window, newest = history.window, history.head - 1
        slots = (newest + np.array([-window.span, *range(window.stack)])) % window.length  # [F + 1]
        touched, by_slot = slots // self.times, self.blocks.reshape(-1, self.blocks.shape[2])  # a view [G·T, N]
        by_slot[slots[1]] = 0
        if history.size == window.length:
            by_slot[slots[2:]] = 0  # their stacks are broken
        if history.size > window.span:
            is_reset = history.rows.is_first[:, (slots[0] + 1) % window.length]
            if window.absences:
                is_reset = is_reset | (history.rows.terminated[:, slots[0]] & history.rows.truncated[:, slots[0]])
            broken = history.size < window.length and slots[0] < window.stack - 1 and not history.begins_whole()
            by_slot[slots[0]] = np.where(is_reset | broken, np.float32(0), self.largest)
        self.sums[touched] = self.blocks[touched].sum(axis=(1, 2))

    def sample_indices(self, uniforms: np.ndarray, beta: float) -> SampleIndices:
        """Starts in proportion to their priorities, with replacement, from uniform numbers float32 [B, 2]."""
        found = self.find(uniforms)
        return found._replace(valid=weights(found.valid, beta))

    def find(self, uniforms: np.ndarray) -> SampleIndices:
        """`sample_indices`, with priorities instead of importance weights."""
        num_envs = self.blocks.shape[2]
        block = _find(self.sums[None], uniforms[:, 0])
        rows = self.blocks[block].reshape(len(block), -1)  # [B, T·N]
        row = _find(rows, uniforms[:, 1])
        priority = rows[np.arange(len(row)), row]
        return SampleIndices(env=row % num_envs, slot=block * self.times + row // num_envs, valid=priority)

    def assign(self, indices: SampleIndices, values: np.ndarray) -> None:
        """Set new priorities, positive float32 [B], of sampled rows; for duplicates the larger one counts."""
        place = indices.slot // self.times, indices.slot % self.times, indices.env
        values = np.where(self.blocks[place] > 0, values, np.float32(0))
        self.blocks[place] = 0
        np.maximum.at(self.blocks, place, values)
        self.largest = np.maximum(self.largest, values.max())
        self.sums[place[0]] = self.blocks[place[0]].sum(axis=(1, 2))


def weights(priority: np.ndarray, beta: float) -> np.ndarray:
    """float32 [B]: importance weights of a batch, which correct for non-uniform sampling."""
    weight = (priority.min() / np.where(priority > 0, priority, np.float32(1))) ** np.float32(beta)
    weight[priority == 0] = 0
    return weight


def stratified(uniforms: np.ndarray) -> np.ndarray:
    """Stratify uniform numbers float32 [B]: the i-th falls into the i-th of B equal intervals."""
    return (np.arange(uniforms.size, dtype=uniforms.dtype) + uniforms) / np.float32(uniforms.size)


def from_errors(errors: np.ndarray, alpha: float, offset: float = 1e-6) -> np.ndarray:
    """(|δ| + offset)^α, float32."""
    return (np.abs(errors) + np.float32(offset)) ** np.float32(alpha)


def _find(weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """int [B]: an index into each row of weights [B, K], or into the only one, [1, K], sampled by weight."""
    heights = np.cumsum(weights, axis=1)
    positive, place = weights > 0, np.arange(weights.shape[1])
    last = np.max(np.where(positive, place, 0), axis=1, keepdims=True)  # if rounding leaves no running sum above
    above = positive & (heights > uniforms[:, None] * heights[:, -1:]) | (place == last)
    return np.argmax(above, axis=1)
