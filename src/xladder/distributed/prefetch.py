"""Batches on their way from the shards to the learner's device, so that it need not wait for them.

Several ticks' are asked for at once: a message costs more than the rows of a small world.

Shapes: K updates per tick, B batch, M = K·B rows per tick, J shards.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from xladder.distributed.health import HealthMonitor
from xladder.distributed.learner import Learner
from xladder.distributed.remote import Remote, RemoteFuture
from xladder.distributed.workers import WorkerGroup
from xladder.replay.limiter import Limiter
from xladder.replay.packed import PackedTrajectories, placed, weighted
from xladder.replay.shard import Held, RowIds, Sample, apportion

PREFETCHED = 2  # messages under way while the answer to another is learned from
UNPACKED = 2  # answers that are on their way to the device, or there
MOST_TICKS = 8  # in a message
MOST_BYTES = 8 * 2**20  # of an answer


class TickBatch(NamedTuple):
    """What a tick learns from."""

    batch: PackedTrajectories  # leaves [M, …]
    rows: RowIds  # leaves [M]
    shard: np.ndarray  # int [M]: whose rows these are
    probability: np.ndarray  # float32 [M]: how likely each was
    age: np.ndarray  # int [M]


class Part(NamedTuple):
    """What one shard was asked for."""

    shard: int
    place: np.ndarray  # int: which rows of the order
    share: float  # how likely a row was to be asked of it
    future: RemoteFuture
    generation: int  # of the shard, when it was asked


class Prefetcher:
    """The batches of ticks, in their order."""

    def __init__(self, config: Any, workers: WorkerGroup, learner: Learner, limiter: Limiter, health: HealthMonitor):
        self.config, self.workers, self.learner, self.limiter = config, workers, learner, limiter
        self.health, self.rows = health, learner.rows_per_tick
        self.ticks = ticks_per_order(config, learner)
        self.held = [Held(0, 0.0) for _ in workers.shards]
        self.orders: deque[list[Part]] = deque()
        self.arriving: deque[Future[list[TickBatch]]] = deque()
        self.tick_batches: deque[TickBatch] = deque()
        self.sent_errors: dict[RemoteFuture, tuple[Remote, RemoteFuture, int]] = {}
        self.transfers = ThreadPoolExecutor(1, "transfers")
        self.drawn = 0  # the tick that the next order begins with
        window, num_envs = learner.program.window, config.world.num_envs
        capacity = num_envs * (window.length - window.stack - window.n_step)
        self.enough = max(1, min(limiter.begins, capacity) // 2)
        """Rows without which nothing is learned, should others have been lost."""

    def restart(self, tick: int) -> None:
        """Forget what is under way; the next batch is that of a tick."""
        self._cancel()
        self.arriving.clear()
        self.tick_batches.clear()
        self.drawn = tick

    def is_starved(self) -> bool:
        """Whether learning has begun, and so many rows were lost that there is too little to learn from."""
        return self.limiter.inserted >= self.limiter.begins and sum(held.starts for held in self.held) < self.enough

    def waiting(self) -> int:
        """Ticks whose batches are there or under way."""
        return len(self.tick_batches) + (len(self.arriving) + len(self.orders)) * self.ticks

    def order(self) -> None:
        """Ask for what the limiter allows, if there is something to draw from."""
        while len(self.orders) <= PREFETCHED:
            masses = np.array([held.mass for held in self.held])
            ahead = (self.waiting() + self.ticks) * self.rows
            if not self.limiter.may_sample(ahead) or self.is_starved() or not masses.sum() > 0:
                return
            place, uniforms = apportion(self.learner.draw(self.drawn, self.ticks), masses)
            parts = []
            for j in np.unique(place):
                where = np.flatnonzero(place == j)
                shard = self.workers.shards[j]
                future = self.health.ask(shard, "sample", uniforms[where], self.config.learner.gamma)
                parts.append(Part(int(j), where, float(masses[j] / masses.sum()), future, shard.generation))
            self.orders.append(parts)
            self.drawn += self.ticks

    def futures(self) -> list[RemoteFuture]:
        """What the next batch waits for; nothing if it is there, or not ordered yet."""
        if self.tick_batches or self.arriving or not self.orders:
            return []
        return [part.future for part in self.orders[0]]

    def take(self) -> TickBatch | None:
        """The next batch, if it is there; call when the futures are answered."""
        self.unpack()
        if not self.tick_batches and self.arriving:
            self.tick_batches.extend(self.arriving.popleft().result())
        return self.tick_batches.popleft() if self.tick_batches else None

    def unpack(self) -> None:
        """Have what the shards have answered made ready and brought to the device, while something is learned from."""
        while self.orders and len(self.arriving) < UNPACKED and self._is_answered(self.orders[0]):
            parts = self.orders.popleft()
            samples = [
                self.health.answer(self.workers.shards[part.shard], part.future, part.generation) for part in parts
            ]
            if any(sample is None for sample in samples):  # lost, with what was to come of later orders
                self.drawn -= (len(self.orders) + 1) * self.ticks
                self._cancel()
                return
            self.arriving.append(self.transfers.submit(self._tick_batches, parts, samples))

    def _cancel(self) -> None:
        """Nothing of what was ordered is wanted any more."""
        self.health.forget(part.future for parts in self.orders for part in parts)
        self.orders.clear()

    def _is_answered(self, parts: list[Part]) -> bool:
        futures = [part.future for part in parts]
        return len(self.workers.engine.ready(futures, 0.0)) == len(futures)

    def _tick_batches(self, parts: list[Part], samples: list[Sample]) -> list[TickBatch]:
        """In a thread of its own: joining and copying take as long as learning does."""
        whole = join(parts, samples)
        places = [slice(i * self.rows, (i + 1) * self.rows) for i in range(self.ticks)]
        tick_batches = [TickBatch(*(_select(column, mine) for column in whole)) for mine in places]
        return [tick_batch._replace(batch=self.learner.bring(tick_batch.batch)) for tick_batch in tick_batches]

    def close(self) -> None:
        """Nothing more will be wanted."""
        self.transfers.shutdown(cancel_futures=True)

    def weighted(self, tick_batch: TickBatch, beta: float) -> PackedTrajectories:
        """The batch, with importance weights where rows have priorities."""
        if not self.config.learner.prioritised:
            return tick_batch.batch
        return weighted(tick_batch.batch, tick_batch.probability, self.config.updates_per_tick, beta)

    def update_priorities(self, tick_batch: TickBatch, errors: np.ndarray) -> None:
        """Tell the shards how far off predictions were; whether they have taken it in is looked at the next time."""
        done = self.workers.engine.ready(list(self.sent_errors), 0.0) if self.sent_errors else []
        for future in done:
            self.health.answer(*self.sent_errors.pop(future))
        for j, shard in enumerate(self.workers.shards):
            mine = tick_batch.shard == j
            if mine.any() and not self.health.misses(shard):
                future = self.health.ask(shard, "update_priorities", _select(tick_batch.rows, mine), errors[mine])
                self.sent_errors[future] = shard, future, shard.generation


def ticks_per_order(config: Any, learner: Learner) -> int:
    """As many as make a message of some size."""
    spec, window = learner.program.spec, learner.program.window
    row = min(window.stack + window.n_step, 2 * window.stack) * int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize
    return int(np.clip(MOST_BYTES // (row * learner.rows_per_tick), 1, MOST_TICKS))


def join(parts: list[Part], samples: list[Sample]) -> TickBatch:
    """What several shards have answered, in the order that it was drawn in."""
    order = np.argsort(np.concatenate([part.place for part in parts]), kind="stable")

    def joined(columns: Any) -> np.ndarray:
        return np.concatenate(columns)[order] if len(parts) > 1 else columns[0]

    return TickBatch(
        placed([(part.place, sample.batch) for part, sample in zip(parts, samples, strict=True)], len(order)),
        RowIds(*(joined(column) for column in zip(*(sample.rows for sample in samples), strict=True))),
        joined([np.full(len(part.place), part.shard) for part in parts]),
        joined([sample.probability * np.float32(part.share) for part, sample in zip(parts, samples, strict=True)]),
        joined([sample.age for sample in samples]),
    )


def _select(thing: Any, mine: Any) -> Any:
    """Some rows of an array, or of each of several."""
    return type(thing)(*(column[mine] for column in thing)) if isinstance(thing, tuple) else thing[mine]
