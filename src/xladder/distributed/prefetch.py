"""Batches on their way from the shards to the learner's device, so that it need not wait for them.

Several ticks' are asked for at once: a message costs more than the rows of a small world.

Shapes: K updates per tick, B batch, M = K·B rows per tick, J shards.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from xladder.distributed.health import Attendance
from xladder.distributed.learner import Student
from xladder.distributed.remote import Remote, Ticket
from xladder.distributed.workers import Fleet
from xladder.replay.limiter import Limiter
from xladder.replay.packed import Strips, placed, weighted
from xladder.replay.shard import Held, Rows, Sample, apportion

PREFETCHED = 2  # messages under way while the answer to another is learned from
UNPACKED = 2  # answers that are on their way to the device, or there
MOST_TICKS = 8  # in a message
MOST_BYTES = 8 * 2**20  # of an answer


class Lesson(NamedTuple):
    """What a tick learns from."""

    batch: Strips  # leaves [M, …]
    rows: Rows  # leaves [M]
    shard: np.ndarray  # int [M]: whose rows these are
    chance: np.ndarray  # float32 [M]: how likely each was
    age: np.ndarray  # int [M]


class Part(NamedTuple):
    """What one shard was asked for."""

    shard: int
    place: np.ndarray  # int: which rows of the order
    share: float  # how likely a row was to be asked of it
    ticket: Ticket
    life: int  # of the shard, when it was asked


class Supply:
    """Lessons, in the order of their ticks."""

    def __init__(self, config: Any, fleet: Fleet, student: Student, limiter: Limiter, attendance: Attendance):
        self.config, self.fleet, self.student, self.limiter = config, fleet, student, limiter
        self.attendance, self.rows = attendance, student.rows_per_tick
        self.ticks = ticks_per_order(config, student)
        self.held = [Held(0, 0.0) for _ in fleet.shards]
        self.orders: deque[list[Part]] = deque()
        self.arriving: deque[Future[list[Lesson]]] = deque()
        self.lessons: deque[Lesson] = deque()
        self.told: dict[Ticket, tuple[Remote, Ticket, int]] = {}
        self.porter = ThreadPoolExecutor(1, "porter")
        self.drawn = 0  # the tick that the next order begins with
        window, copies = student.program.window, config.world.num_envs
        capacity = copies * (window.length - window.stack - window.n_step)
        self.enough = max(1, min(limiter.begins, capacity) // 2)
        """Rows without which nothing is learned, should others have been lost."""

    def restart(self, tick: int) -> None:
        """Forget what is under way; the next lesson is that of a tick."""
        self._cancel()
        self.arriving.clear()
        self.lessons.clear()
        self.drawn = tick

    def is_starved(self) -> bool:
        """Whether learning has begun, and so many rows were lost that there is too little to learn from."""
        return self.limiter.inserted >= self.limiter.begins and sum(held.starts for held in self.held) < self.enough

    def waiting(self) -> int:
        """Lessons that are there or under way."""
        return len(self.lessons) + (len(self.arriving) + len(self.orders)) * self.ticks

    def order(self) -> None:
        """Ask for what the limiter allows, if there is something to draw from."""
        while len(self.orders) <= PREFETCHED:
            masses = np.array([held.mass for held in self.held])
            ahead = (self.waiting() + self.ticks) * self.rows
            if not self.limiter.may_sample(ahead) or self.is_starved() or not masses.sum() > 0:
                return
            place, uniforms = apportion(self.student.draw(self.drawn, self.ticks), masses)
            parts = []
            for j in np.unique(place):
                where = np.flatnonzero(place == j)
                shard = self.fleet.shards[j]
                ticket = self.attendance.ask(shard, "sample", uniforms[where], self.config.learner.gamma)
                parts.append(Part(int(j), where, float(masses[j] / masses.sum()), ticket, shard.life))
            self.orders.append(parts)
            self.drawn += self.ticks

    def tickets(self) -> list[Ticket]:
        """What the next lesson waits for; nothing if it is there, or not ordered yet."""
        if self.lessons or self.arriving or not self.orders:
            return []
        return [part.ticket for part in self.orders[0]]

    def take(self) -> Lesson | None:
        """The next lesson, if it is there; call when the tickets are answered."""
        self.unpack()
        if not self.lessons and self.arriving:
            self.lessons.extend(self.arriving.popleft().result())
        return self.lessons.popleft() if self.lessons else None

    def unpack(self) -> None:
        """Have what the shards have answered made ready and brought to the device, while something is learned from."""
        while self.orders and len(self.arriving) < UNPACKED and self._is_answered(self.orders[0]):
            parts = self.orders.popleft()
            samples = [self.attendance.answer(self.fleet.shards[part.shard], part.ticket, part.life) for part in parts]
            if any(sample is None for sample in samples):  # lost, with what was to come of later orders
                self.drawn -= (len(self.orders) + 1) * self.ticks
                self._cancel()
                return
            self.arriving.append(self.porter.submit(self._lessons, parts, samples))

    def _cancel(self) -> None:
        """Nothing of what was ordered is wanted any more."""
        self.attendance.forget(part.ticket for parts in self.orders for part in parts)
        self.orders.clear()

    def _is_answered(self, parts: list[Part]) -> bool:
        tickets = [part.ticket for part in parts]
        return len(self.fleet.engine.ready(tickets, 0.0)) == len(tickets)

    def _lessons(self, parts: list[Part], samples: list[Sample]) -> list[Lesson]:
        """In a thread of its own: joining and copying take as long as learning does."""
        whole = join(parts, samples)
        places = [slice(i * self.rows, (i + 1) * self.rows) for i in range(self.ticks)]
        lessons = [Lesson(*(_cut(column, mine) for column in whole)) for mine in places]
        return [lesson._replace(batch=self.student.bring(lesson.batch)) for lesson in lessons]

    def close(self) -> None:
        """Nothing more will be wanted."""
        self.porter.shutdown(cancel_futures=True)

    def weighted(self, lesson: Lesson, beta: float) -> Strips:
        """The batch, with importance weights where rows have priorities."""
        if not self.config.learner.prioritised:
            return lesson.batch
        return weighted(lesson.batch, lesson.chance, self.config.updates_per_tick, beta)

    def rate(self, lesson: Lesson, errors: np.ndarray) -> None:
        """Tell the shards how far off predictions were; whether they have taken it in is looked at the next time."""
        done = self.fleet.engine.ready(list(self.told), 0.0) if self.told else []
        for ticket in done:
            self.attendance.answer(*self.told.pop(ticket))
        for j, shard in enumerate(self.fleet.shards):
            mine = lesson.shard == j
            if mine.any() and not self.attendance.misses(shard):
                ticket = self.attendance.ask(shard, "rate", _cut(lesson.rows, mine), errors[mine])
                self.told[ticket] = shard, ticket, shard.life


def ticks_per_order(config: Any, student: Student) -> int:
    """As many as make a message of some size."""
    view, window = student.program.view, student.program.window
    row = min(window.stack + window.n_step, 2 * window.stack) * int(np.prod(view.shape)) * np.dtype(view.dtype).itemsize
    return int(np.clip(MOST_BYTES // (row * student.rows_per_tick), 1, MOST_TICKS))


def join(parts: list[Part], samples: list[Sample]) -> Lesson:
    """What several shards have answered, in the order that it was drawn in."""
    order = np.argsort(np.concatenate([part.place for part in parts]), kind="stable")

    def joined(columns: Any) -> np.ndarray:
        return np.concatenate(columns)[order] if len(parts) > 1 else columns[0]

    return Lesson(
        placed([(part.place, sample.batch) for part, sample in zip(parts, samples, strict=True)], len(order)),
        Rows(*(joined(column) for column in zip(*(sample.rows for sample in samples), strict=True))),
        joined([np.full(len(part.place), part.shard) for part in parts]),
        joined([sample.chance * np.float32(part.share) for part, sample in zip(parts, samples, strict=True)]),
        joined([sample.age for sample in samples]),
    )


def _cut(thing: Any, mine: Any) -> Any:
    """Some rows of an array, or of each of several."""
    return type(thing)(*(column[mine] for column in thing)) if isinstance(thing, tuple) else thing[mine]
