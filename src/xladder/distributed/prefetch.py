"""Prefetches batches from the shards to the learner's device, so that the learner does not wait for them.

One request asks for the batches of several ticks: for a small world, a message costs more than its rows.

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
from xladder.families.value.config import ValueConfig
from xladder.replay.limiter import Limiter
from xladder.replay.packed import PackedTrajectories, placed, weighted
from xladder.replay.shard import Held, RowIds, Sample, apportion

PREFETCHED = 2  # requests in flight while the learner works on an earlier one
UNPACKED = 2  # requests whose rows are being copied to the device, or are there
MOST_TICKS = 8  # per request
MOST_BYTES = 8 * 2**20  # per reply


class TickBatch(NamedTuple):
    """The samples of one tick."""

    batch: PackedTrajectories  # leaves [M, …]
    rows: RowIds  # leaves [M]
    shard: np.ndarray  # int [M]: the shard each row comes from
    probability: np.ndarray  # float32 [M]: its sampling probability
    age: np.ndarray  # int [M]


class Part(NamedTuple):
    """The part of a request that goes to one shard."""

    shard: int
    place: np.ndarray  # int: which rows of the request
    share: float  # the probability that a row was asked of this shard
    future: RemoteFuture
    generation: int  # of the shard, when it was called


class Prefetcher:
    """Requests the batches of upcoming ticks and hands them out in order.

    Args:
        config: the configuration of the run.
        workers: its actors and shards.
        learner: draws the random numbers of the samples.
        limiter: says how many samples may be drawn.
        health: watches the calls.
    """

    def __init__(
        self, config: ValueConfig, workers: WorkerGroup, learner: Learner, limiter: Limiter, health: HealthMonitor
    ):
        self.config, self.workers, self.learner, self.limiter = config, workers, learner, limiter
        self.health, self.rows = health, learner.rows_per_tick
        self.ticks = ticks_per_order(config, learner)
        self.held = [Held(0, 0.0) for _ in workers.shards]
        self.orders: deque[list[Part]] = deque()
        self.arriving: deque[Future[list[TickBatch]]] = deque()
        self.tick_batches: deque[TickBatch] = deque()
        self.sent_errors: dict[RemoteFuture, tuple[Remote, RemoteFuture, int]] = {}
        self.transfers = ThreadPoolExecutor(1, "transfers")
        self.drawn = 0  # the first tick of the next request
        window, num_envs = learner.program.window, config.world.num_envs
        capacity = num_envs * (window.length - window.stack - window.n_step)
        self.enough = max(1, min(limiter.begins, capacity) // 2)
        """After the loss of a shard, learning pauses until there are this many rows."""

    def restart(self, tick: int) -> None:
        """Drop everything in flight; the next batch is that of `tick`."""
        self._cancel()
        self.arriving.clear()
        self.tick_batches.clear()
        self.drawn = tick

    def is_starved(self) -> bool:
        """Whether learning has begun, but so many rows were lost that there are too few to sample from."""
        return self.limiter.inserted >= self.limiter.begins and sum(held.starts for held in self.held) < self.enough

    def waiting(self) -> int:
        """Number of ticks whose batches are ready or in flight."""
        return len(self.tick_batches) + (len(self.arriving) + len(self.orders)) * self.ticks

    def order(self) -> None:
        """Request as many batches as the limiter allows, if there are rows to sample."""
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
                future = self.health.call(shard, "sample", uniforms[where], self.config.learner.gamma)
                parts.append(Part(int(j), where, float(masses[j] / masses.sum()), future, shard.generation))
            self.orders.append(parts)
            self.drawn += self.ticks

    def futures(self) -> list[RemoteFuture]:
        """The futures that the next batch waits for; empty if it is ready or not requested yet."""
        if self.tick_batches or self.arriving or not self.orders:
            return []
        return [part.future for part in self.orders[0]]

    def take(self) -> TickBatch | None:
        """The next batch, or None if it is not ready; call this when `futures` have been answered."""
        self.unpack()
        if not self.tick_batches and self.arriving:
            self.tick_batches.extend(self.arriving.popleft().result())
        if not self.tick_batches:
            return None
        self.limiter.sampled += self.rows  # now, because `waiting` does not count this batch any more
        return self.tick_batches.popleft()

    def unpack(self) -> None:
        """Start moving the shards' replies to the device, in the background."""
        while self.orders and len(self.arriving) < UNPACKED and self._is_answered(self.orders[0]):
            parts = self.orders.popleft()
            samples = [
                self.health.answer(self.workers.shards[part.shard], part.future, part.generation) for part in parts
            ]
            if any(sample is None for sample in samples):  # a shard was lost: later requests are void, too
                self.drawn -= (len(self.orders) + 1) * self.ticks
                self._cancel()
                return
            self.arriving.append(self.transfers.submit(self._tick_batches, parts, samples))

    def _cancel(self) -> None:
        """Drop all requests."""
        self.health.forget(part.future for parts in self.orders for part in parts)
        self.orders.clear()

    def _is_answered(self, parts: list[Part]) -> bool:
        futures = [part.future for part in parts]
        return len(self.workers.engine.ready(futures, 0.0)) == len(futures)

    def _tick_batches(self, parts: list[Part], samples: list[Sample]) -> list[TickBatch]:
        """Join the parts and copy them to the device. Runs in a thread: it takes as long as an update."""
        whole = join(parts, samples)
        places = [slice(i * self.rows, (i + 1) * self.rows) for i in range(self.ticks)]
        tick_batches = [TickBatch(*(_select(column, mine) for column in whole)) for mine in places]
        return [tick_batch._replace(batch=self.learner.to_device(tick_batch.batch)) for tick_batch in tick_batches]

    def close(self) -> None:
        """Stop the thread that copies."""
        self.transfers.shutdown(cancel_futures=True)

    def weighted(self, tick_batch: TickBatch, beta: float) -> PackedTrajectories:
        """The transitions of a batch, with importance weights if replay is prioritised."""
        if not self.config.learner.prioritised:
            return tick_batch.batch
        return weighted(tick_batch.batch, tick_batch.probability, self.config.updates_per_tick, beta)

    def update_priorities(self, tick_batch: TickBatch, errors: np.ndarray) -> None:
        """Send new TD errors to the shards; their confirmations are read at the next call."""
        done = self.workers.engine.ready(list(self.sent_errors), 0.0) if self.sent_errors else []
        for future in done:
            self.health.answer(*self.sent_errors.pop(future))
        for j, shard in enumerate(self.workers.shards):
            mine = tick_batch.shard == j
            if mine.any() and not self.health.is_lost(shard):
                future = self.health.call(shard, "update_priorities", _select(tick_batch.rows, mine), errors[mine])
                self.sent_errors[future] = shard, future, shard.generation


def ticks_per_order(config: ValueConfig, learner: Learner) -> int:
    """Ticks per request, so that a reply has a reasonable size."""
    spec, window = learner.program.spec, learner.program.window
    row = min(window.stack + window.n_step, 2 * window.stack) * int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize
    return int(np.clip(MOST_BYTES // (row * learner.rows_per_tick), 1, MOST_TICKS))


def join(parts: list[Part], samples: list[Sample]) -> TickBatch:
    """Join the parts of a request, in the order in which they were drawn."""
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
    """Select rows of an array, or of each array of a named tuple."""
    return type(thing)(*(column[mine] for column in thing)) if isinstance(thing, tuple) else thing[mine]
