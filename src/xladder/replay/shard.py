"""A shard of a replay memory that several processes share: the rows of some envs, and their priorities.

Envs that step together share a ring (`HostHistory`), a *group*. If actors run asynchronously, each has its own ring; in
lock step, all envs of a shard are one group, and the shards together are the memory of the synchronous loop.

Shapes: G groups, N envs of a group, T rows, M samples, R candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xladder.core.state import Arrays, Stateful, capture, restore
from xladder.replay.history import History, SampleIndices, Window
from xladder.replay.history_host import HostHistory
from xladder.replay.packed import PackedTrajectories, gather
from xladder.replay.priorities_host import HostPriorities, from_errors


class RowIds(NamedTuple):
    """Which rows of a shard were sampled."""

    group: np.ndarray  # int [M]
    env: np.ndarray  # int [M]
    slot: np.ndarray  # int [M]
    number: np.ndarray  # int [M]: rows written to its ring before it, which tells whether it is still there


class Sample(NamedTuple):
    """Sampled transitions with their indices, probabilities and ages."""

    batch: PackedTrajectories  # leaves [M, …]
    rows: RowIds
    probability: np.ndarray  # float32 [M]: the sampling probability among all rows of the shard
    age: np.ndarray  # int [M]: rows written since, of the same env


class Offer(NamedTuple):
    """A shard's usable rows among candidates that were drawn over the whole memory."""

    rank: np.ndarray  # int [M]: index of the first usable one of the R candidates; R if there is none
    batch: PackedTrajectories  # of the samples that have one
    age: np.ndarray  # int [M], of the same samples


class Held(NamedTuple):
    """The amount of data in a shard."""

    starts: int  # rows at which a sample may start
    mass: float  # the shard's weight in sampling: the number of starts, or the sum of their priorities


class RowGroup(Stateful):
    """The rows of one group."""

    STATE = ("history", "priorities", "written")

    def __init__(self, history: HostHistory, prioritised: bool):
        self.history = history
        self.priorities = HostPriorities(history.num_envs, history.window.length) if prioritised else None
        self.written = 0

    def add(self, chunk: History) -> None:
        """Add several rows per env, leaves [N, T, …]."""
        steps = chunk.is_first.shape[1]
        self.written += steps
        if self.priorities is None:
            self.history.extend(chunk)
            return
        for t in range(steps):
            self.history.add(History(*(column[:, t] for column in chunk)))
            self.priorities.admit(self.history)

    def starts(self) -> int:
        """Number of rows at which a sample may start, including reset rows."""
        return self.history.eligible()[1] * self.history.num_envs

    def mass(self) -> float:
        """The group's weight in sampling."""
        return float(self.starts() if self.priorities is None else self.priorities.sums.sum())

    def sample_indices(self, uniforms: np.ndarray) -> tuple[SampleIndices, np.ndarray]:
        """Sampled starts, and the weight of each."""
        if self.priorities is None:
            indices = self.history.sample_indices(uniforms)
            return indices, indices.valid
        indices = self.priorities.find(uniforms)
        return indices._replace(valid=(indices.valid > 0).astype(np.float32)), indices.valid

    def age(self, slot: np.ndarray) -> np.ndarray:
        """Number of rows written after those in these slots."""
        return (self.history.head - 1 - slot) % self.history.window.length


class Shard(Stateful):
    """Several groups of rows."""

    STATE = ("rings",)

    def __init__(
        self,
        groups: Sequence[int],
        window: Window,
        shape: tuple[int, ...],
        dtype: Any,
        prioritised: bool = False,
        alpha: float = 0.5,
        actions: int = 2,
    ):
        self.alpha = alpha
        # One array for all groups, so that a batch is gathered in one read.
        self.all = HostHistory(sum(groups), window, shape, dtype, actions)
        self.firsts = np.cumsum([0, *groups[:-1]])
        self.rings = [
            RowGroup(self.all.part(first, envs), prioritised) for first, envs in zip(self.firsts, groups, strict=True)
        ]

    def add(self, group: int, begin: int, end: int, *pieces: History) -> Held:
        """Add rows `begin` … `end` − 1 of chunks, leaves [N, T, …], which are concatenated along the envs."""
        chunk = pieces[0]
        if len(pieces) > 1:
            chunk = History(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        self.rings[group].add(History(*(column[:, begin:end] for column in chunk)))
        return self.held()

    def held(self) -> Held:
        """The current amount of data."""
        return Held(sum(ring.starts() for ring in self.rings), sum(ring.mass() for ring in self.rings))

    def sample(self, uniforms: np.ndarray, gamma: float) -> Sample | None:
        """Sample M transitions in proportion to their weights; None if the shard is empty."""
        masses = np.array([ring.mass() for ring in self.rings])
        if not masses.sum() > 0:
            return None
        group, uniforms = apportion(uniforms, masses)
        env, slot, number, age = np.zeros((4, len(group)), int)
        valid, weight = np.zeros((2, len(group)), np.float32)
        for g in np.unique(group):
            ring, in_group = self.rings[g], group == g
            indices, weight[in_group] = ring.sample_indices(uniforms[in_group])
            env[in_group], slot[in_group], valid[in_group] = indices
            age[in_group] = ring.age(indices.slot)
            number[in_group] = ring.written - 1 - age[in_group]
        batch = gather(self.all, SampleIndices(env + self.firsts[group], slot, valid), gamma)
        return Sample(batch, RowIds(group, env, slot, number), weight / np.float32(masses.sum()), age)

    def offer(self, uniforms: np.ndarray, first: int, total: int, gamma: float) -> Offer:
        """The usable rows among candidates over all envs; the shard's envs are `first` … of `total`."""
        (ring,) = self.rings
        rank, indices = ring.history.offer(uniforms, first, total)
        found = SampleIndices(*(column[indices.valid > 0] for column in indices))
        return Offer(rank, gather(ring.history, found, gamma), ring.age(found.slot))

    def update_priorities(self, rows: RowIds, errors: np.ndarray) -> None:
        """Set priorities from the errors of an update; rows that were overwritten meanwhile are skipped."""
        for g, ring in enumerate(self.rings):
            behind = ring.written - rows.number
            there = (rows.group == g) & (behind > 0) & (behind <= ring.history.window.length)
            if ring.priorities is not None and there.any():
                indices = SampleIndices(rows.env[there], rows.slot[there], np.ones(int(there.sum()), np.float32))
                ring.priorities.assign(indices, from_errors(errors[there], self.alpha))

    def save(self) -> Arrays:
        """The state as named arrays."""
        return capture(self.state())

    def load(self, arrays: Arrays) -> None:
        """Restore the state from named arrays."""
        restore(self.state(), arrays)


def apportion(uniforms: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distribute uniform numbers [M, …] over parts in proportion to masses [J].

    The first number of each row selects the part. Its position between that part's borders is again uniform and becomes
    the new number, so stratified numbers stay stratified within each part.

    Returns:
        The part of each row, int [M], and the new uniform numbers [M, …].
    """
    borders = np.concatenate([[0.0], np.cumsum(masses) / np.sum(masses)])
    number = uniforms.reshape(len(uniforms), -1)[:, 0].astype(np.float64)
    taken = np.flatnonzero(masses > 0)  # a number on a border must not select an empty part
    place = taken[np.clip(np.searchsorted(borders[taken + 1], number, side="right"), 0, len(taken) - 1)]
    within = (number - borders[place]) / (borders[place + 1] - borders[place])
    apart = uniforms.copy().reshape(len(uniforms), -1)
    apart[:, 0] = np.clip(within, 0.0, 1.0)
    return place, apart.reshape(uniforms.shape)
