"""Which workers are there: those whose process was lost are reported, and admitted again when they can be.

Somebody who is there and does not answer is noticed, too. Only time in which somebody was looking counts: while the
learner saves or evaluates, answers lie and wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from xladder.distributed.remote import Lost, Remote, RemoteFuture
from xladder.distributed.workers import SILENT_SECONDS, STALL_SECONDS, WorkerGroup, gone, silent

PATIENCE = 0.2  # seconds between two attempts to admit somebody
GLANCE = 1.0  # seconds between two looks that count, at most


class Absence:
    """Somebody who was lost."""

    def __init__(self, remote: Remote, since: float):
        self.remote, self.since = remote, since
        self.future: RemoteFuture = None  # for being admitted again
        self.asked = 0.0


class HealthMonitor:
    """Who is missing, and who owes an answer."""

    def __init__(self, workers: WorkerGroup, on_loss: Callable[[Remote], None], on_return: Callable[[Remote], None]):
        self.workers, self.on_loss, self.on_return = workers, on_loss, on_return
        self.absent: dict[str, Absence] = {}
        self.owed: dict[RemoteFuture, tuple[Remote, float]] = {}
        """Since when, in seconds of looking."""
        self.watched, self.looked = 0.0, time.monotonic()

    def misses(self, remote: Remote) -> bool:
        """Whether somebody was lost and is not back."""
        return remote.name in self.absent

    def ask(self, remote: Remote, method: str, *given: Any) -> RemoteFuture:
        """Ask for something that has to be answered in time."""
        future = remote.ask(method, *given)
        self.expect(remote, future)
        return future

    def expect(self, remote: Remote, future: RemoteFuture) -> None:
        """Somebody has been asked for this."""
        self.owed[future] = remote, self.watched

    def forget(self, futures: Iterable[RemoteFuture]) -> None:
        """Nobody will ask for these answers."""
        for future in futures:
            self.owed.pop(future, None)

    def answer(self, remote: Remote, future: RemoteFuture, generation: int) -> Any:
        """What somebody has answered who was asked in that generation; None if they are lost.

        What was asked in an earlier generation was lost with it, and that is known already.
        """
        self.owed.pop(future, None)
        try:
            return self.workers.answer(remote, future)
        except Lost:
            if generation == remote.generation and not self.misses(remote):
                self.absent[remote.name] = Absence(remote, self.watched)
                self.on_loss(remote)
            return None

    def futures(self) -> list[RemoteFuture]:
        """What is waited for."""
        return [absence.future for absence in self.absent.values() if absence.future is not None]

    def look_round(self) -> None:
        """Admit those for whom there is a process again; raise `PeerLost` if that or an answer takes too long."""
        now = time.monotonic()
        self.watched += min(now - self.looked, GLANCE)
        self.looked = now
        for absence in list(self.absent.values()):
            if absence.future is None:
                if now - absence.asked > PATIENCE:
                    absence.future, absence.asked = absence.remote.admit(), now
            elif self.workers.engine.ready([absence.future], 0.0):
                self._admitted(absence)
        for absence in self.absent.values():
            if self.watched - absence.since > STALL_SECONDS:
                raise gone(absence.remote)
        for future, (remote, since) in list(self.owed.items()):
            if self.watched - since > SILENT_SECONDS and not self.misses(remote):
                if not self.workers.engine.ready([future], 0.0):
                    raise silent(remote)
                del self.owed[future]  # it was answered, and nobody has come to read it yet

    def _admitted(self, absence: Absence) -> None:
        """They may be back; or lost again, and have to be asked anew."""
        future, absence.future = absence.future, None
        try:
            self.workers.engine.get(future)
        except Lost:
            return
        del self.absent[absence.remote.name]
        self.workers.notify(f"{absence.remote.name} is back after {self.watched - absence.since:.1f} s.")
        self.on_return(absence.remote)
