"""A part of a memory that several processes share: the rows of some envs of the world, and how likely each is drawn.

Envs that step together share a ring (`HostHistory`). Where actors keep their own pace each has a ring of its own,
a *group*; where they step in time, all envs of a shard are one group, and the memory is that of the synchronous
loop, cut into pieces.

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
    number: np.ndarray  # int [M]: how many its ring was given before, which tells whether it is still there


class Sample(NamedTuple):
    """Transitions, and what is known of them."""

    batch: PackedTrajectories  # leaves [M, …]
    rows: RowIds
    probability: np.ndarray  # float32 [M]: how likely each was among all rows of the shard
    age: np.ndarray  # int [M]: rows that were written since, of the same env


class Offer(NamedTuple):
    """What a shard has for samples that candidates all over the memory were drawn for."""

    rank: np.ndarray  # int [M]: which of the R candidates the first usable one is; R where none is
    batch: PackedTrajectories  # of those that have one
    age: np.ndarray  # int [M], of the same


class Held(NamedTuple):
    """What a shard holds."""

    starts: int  # rows that a sample may start at
    mass: float  # how likely a sample comes from it: its starts, or the sum of their priorities


class RowGroup(Stateful):
    """The rows of one group."""

    STATE = ("history", "priorities", "written")

    def __init__(self, history: HostHistory, prioritised: bool):
        self.history = history
        self.priorities = HostPriorities(history.num_envs, history.window.length) if prioritised else None
        self.written = 0

    def add(self, chunk: History) -> None:
        """Some rows of every env, leaves [N, T, …]."""
        steps = chunk.is_first.shape[1]
        self.written += steps
        if self.priorities is None:
            self.history.extend(chunk)
            return
        for t in range(steps):
            self.history.add(History(*(column[:, t] for column in chunk)))
            self.priorities.admit(self.history)

    def starts(self) -> int:
        """How many rows a sample may start at, reset rows among them."""
        return self.history.eligible()[1] * self.history.num_envs

    def mass(self) -> float:
        """Their weight."""
        return float(self.starts() if self.priorities is None else self.priorities.sums.sum())

    def sample_indices(self, uniforms: np.ndarray) -> tuple[SampleIndices, np.ndarray]:
        """Starts, and the weight of each."""
        if self.priorities is None:
            indices = self.history.sample_indices(uniforms)
            return indices, indices.valid
        indices = self.priorities.find(uniforms)
        return indices._replace(valid=(indices.valid > 0).astype(np.float32)), indices.valid

    def age(self, slot: np.ndarray) -> np.ndarray:
        """Rows that were written after those in these slots."""
        return (self.history.head - 1 - slot) % self.history.window.length


class Shard(Stateful):
    """Some groups of rows."""

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
        self.all = HostHistory(
            sum(groups), window, shape, dtype, actions
        )  # one array, so that a sample is read at once
        self.firsts = np.cumsum([0, *groups[:-1]])
        self.rings = [
            RowGroup(self.all.part(first, envs), prioritised) for first, envs in zip(self.firsts, groups, strict=True)
        ]

    def add(self, group: int, begin: int, end: int, *pieces: History) -> Held:
        """Rows `begin` … `end` − 1 of chunks, leaves [N, T, …], that lie side by side."""
        chunk = pieces[0]
        if len(pieces) > 1:
            chunk = History(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        self.rings[group].add(History(*(column[:, begin:end] for column in chunk)))
        return self.held()

    def held(self) -> Held:
        """What it holds by now."""
        return Held(sum(ring.starts() for ring in self.rings), sum(ring.mass() for ring in self.rings))

    def sample(self, uniforms: np.ndarray, gamma: float) -> Sample | None:
        """Transitions in proportion to their weights, one for each of M; None if there is nothing yet."""
        masses = np.array([ring.mass() for ring in self.rings])
        if not masses.sum() > 0:
            return None
        group, uniforms = apportion(uniforms, masses)
        env, slot, number, age = np.zeros((4, len(group)), int)
        valid, weight = np.zeros((2, len(group)), np.float32)
        for g in np.unique(group):
            ring, mine = self.rings[g], group == g
            indices, weight[mine] = ring.sample_indices(uniforms[mine])
            env[mine], slot[mine], valid[mine] = indices
            age[mine] = ring.age(indices.slot)
            number[mine] = ring.written - 1 - age[mine]
        batch = gather(self.all, SampleIndices(env + self.firsts[group], slot, valid), gamma)
        return Sample(batch, RowIds(group, env, slot, number), weight / np.float32(masses.sum()), age)

    def offer(self, uniforms: np.ndarray, first: int, total: int, gamma: float) -> Offer:
        """What there is for candidates among all envs, of which those of the shard are `first` … of `total`."""
        (ring,) = self.rings
        rank, indices = ring.history.offer(uniforms, first, total)
        found = SampleIndices(*(column[indices.valid > 0] for column in indices))
        return Offer(rank, gather(ring.history, found, gamma), ring.age(found.slot))

    def update_priorities(self, rows: RowIds, errors: np.ndarray) -> None:
        """Priorities by how far off the predictions were; rows that were overwritten meanwhile are left out."""
        for g, ring in enumerate(self.rings):
            behind = ring.written - rows.number
            there = (rows.group == g) & (behind > 0) & (behind <= ring.history.window.length)
            if ring.priorities is not None and there.any():
                indices = SampleIndices(rows.env[there], rows.slot[there], np.ones(int(there.sum()), np.float32))
                ring.priorities.assign(indices, from_errors(errors[there], self.alpha))

    def save(self) -> Arrays:
        """All that it holds, as named arrays."""
        return capture(self.state())

    def load(self, arrays: Arrays) -> None:
        """Hold that again."""
        restore(self.state(), arrays)


def apportion(uniforms: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Uniform numbers [M, …] shared out in proportion to masses [J]: whose each is, int [M], and new uniform numbers.

    The first number of each says whose it is; where it lies between the borders is as uniform as it was. Numbers of
    equal parts, one in each, stay evenly spread over the parts that they fall into.
    """
    borders = np.concatenate([[0.0], np.cumsum(masses) / np.sum(masses)])
    number = uniforms.reshape(len(uniforms), -1)[:, 0].astype(np.float64)
    taken = np.flatnonzero(masses > 0)  # a number on a border must not go where nothing is
    place = taken[np.clip(np.searchsorted(borders[taken + 1], number, side="right"), 0, len(taken) - 1)]
    within = (number - borders[place]) / (borders[place + 1] - borders[place])
    apart = uniforms.copy().reshape(len(uniforms), -1)
    apart[:, 0] = np.clip(within, 0.0, 1.0)
    return place, apart.reshape(uniforms.shape)
