"""Health of the workers: lost processes are reported and restarted, and hanging ones raise an error.

Timeouts count only time during which the monitor was polled: while the learner saves or evaluates, results may wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from xladder.distributed.remote import Lost, Remote, RemoteFuture
from xladder.distributed.workers import SILENT_SECONDS, STALL_SECONDS, WorkerGroup, gone, silent

PATIENCE = 0.2  # seconds between two attempts to restart a worker
ANSWER_SECONDS = 1.0  # for the engine to say that a result is there: with no time at all, Ray may say that it is not
GLANCE = 1.0  # seconds between two checks that count towards a timeout, at most


class Absence:
    """A worker that was lost and is not back yet."""

    def __init__(self, remote: Remote, since: float):
        self.remote, self.since = remote, since
        self.future: RemoteFuture = None  # of its restart
        self.asked = 0.0


class HealthMonitor:
    """Tracks which workers are lost and which calls are unanswered.

    Args:
        workers: the workers to watch.
        on_loss: called when a worker is lost.
        on_return: called when it has been restarted.
    """

    def __init__(self, workers: WorkerGroup, on_loss: Callable[[Remote], None], on_return: Callable[[Remote], None]):
        self.workers, self.on_loss, self.on_return = workers, on_loss, on_return
        self.absent: dict[str, Absence] = {}
        self.owed: dict[RemoteFuture, tuple[Remote, float]] = {}
        """Unanswered calls: the worker, and when it was called on the monitor's clock."""
        self.watched, self.looked = 0.0, time.monotonic()

    def is_lost(self, remote: Remote) -> bool:
        """Whether a worker is lost and not back yet."""
        return remote.name in self.absent

    def call(self, remote: Remote, method: str, *given: Any) -> RemoteFuture:
        """Call a method and watch for its result; returns a future."""
        future = remote.call(method, *given)
        self.expect(remote, future)
        return future

    def expect(self, remote: Remote, future: RemoteFuture) -> None:
        """Watch for the result of a call that was made elsewhere."""
        self.owed[future] = remote, self.watched

    def forget(self, futures: Iterable[RemoteFuture]) -> None:
        """Stop watching for these results."""
        for future in futures:
            self.owed.pop(future, None)

    def answer(self, remote: Remote, future: RemoteFuture, generation: int) -> Any:
        """The result of a call, or None if the worker was lost.

        Args:
            remote: the worker.
            future: the future of the call.
            generation: the worker's generation when it was called; the loss of an earlier one is known already.
        """
        self.owed.pop(future, None)
        try:
            return self.workers.answer(remote, future)
        except Lost:
            if generation == remote.generation and not self.is_lost(remote):
                self.absent[remote.name] = Absence(remote, self.watched)
                self.on_loss(remote)
            return None

    def futures(self) -> list[RemoteFuture]:
        """The futures of restarts in progress."""
        return [absence.future for absence in self.absent.values() if absence.future is not None]

    def check(self) -> None:
        """Restart lost workers where possible; raise `PeerLost` if a restart or a result takes too long."""
        now = time.monotonic()
        self.watched += min(now - self.looked, GLANCE)
        self.looked = now
        for absence in list(self.absent.values()):
            if absence.future is None:
                if now - absence.asked > PATIENCE:
                    absence.future, absence.asked = absence.remote.start(), now
            elif self.workers.engine.ready([absence.future], 0.0):
                self._finish_restart(absence)
        for absence in self.absent.values():
            if self.watched - absence.since > STALL_SECONDS:
                raise gone(absence.remote)
        self._check_answers()

    def _check_answers(self) -> None:
        """Raise `PeerLost` if a worker has not answered for too long. A shard may wait for the rows of an actor that
        hangs, so actors are looked at first."""
        overdue = [
            (future, remote)
            for future, (remote, since) in self.owed.items()
            if self.watched - since > SILENT_SECONDS and not self.is_lost(remote)
        ]
        for future, remote in sorted(overdue, key=lambda one: one[1] not in self.workers.actors):
            if not self.workers.engine.ready([future], ANSWER_SECONDS):
                raise silent(remote)
            del self.owed[future]  # answered, just not read yet

    def _finish_restart(self, absence: Absence) -> None:
        """Handle the end of a restart: the worker is back, or was lost again and needs another one."""
        future, absence.future = absence.future, None
        try:
            self.workers.engine.get(future)
        except Lost:
            return
        del self.absent[absence.remote.name]
        self.workers.notify(f"{absence.remote.name} is back after {self.watched - absence.since:.1f} s.")
        self.on_return(absence.remote)
