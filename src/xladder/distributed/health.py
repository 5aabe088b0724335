"""Who of a fleet is there: those whose process was lost are missed, said to be, and admitted again when they can be.

Somebody who is there and does not answer is noticed, too. Only time in which somebody was looking counts: while the
learner saves or evaluates, answers lie and wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from xladder.distributed.remote import Lost, Remote, Ticket
from xladder.distributed.workers import SILENT_SECONDS, STALL_SECONDS, Fleet, gone, silent

PATIENCE = 0.2  # seconds between two attempts to admit somebody
GLANCE = 1.0  # seconds between two looks that count, at most


class Absence:
    """Somebody who was lost."""

    def __init__(self, remote: Remote, since: float):
        self.remote, self.since = remote, since
        self.ticket: Ticket = None  # for being admitted again
        self.asked = 0.0


class Attendance:
    """Who is missing, and who owes an answer."""

    def __init__(self, fleet: Fleet, on_loss: Callable[[Remote], None], on_return: Callable[[Remote], None]):
        self.fleet, self.on_loss, self.on_return = fleet, on_loss, on_return
        self.absent: dict[str, Absence] = {}
        self.owed: dict[Ticket, tuple[Remote, float]] = {}
        """Since when, in seconds of looking."""
        self.watched, self.looked = 0.0, time.monotonic()

    def misses(self, remote: Remote) -> bool:
        """Whether somebody was lost and is not back."""
        return remote.name in self.absent

    def ask(self, remote: Remote, verb: str, *given: Any) -> Ticket:
        """Ask for something that has to be answered in time."""
        ticket = remote.ask(verb, *given)
        self.expect(remote, ticket)
        return ticket

    def expect(self, remote: Remote, ticket: Ticket) -> None:
        """Somebody has been asked for this."""
        self.owed[ticket] = remote, self.watched

    def forget(self, tickets: Iterable[Ticket]) -> None:
        """Nobody will ask for these answers."""
        for ticket in tickets:
            self.owed.pop(ticket, None)

    def answer(self, remote: Remote, ticket: Ticket, life: int) -> Any:
        """What somebody has answered who was asked in that life; None if they are lost.

        What was asked in an earlier life was lost with it, and that is known already.
        """
        self.owed.pop(ticket, None)
        try:
            return self.fleet.answer(remote, ticket)
        except Lost:
            if life == remote.life and not self.misses(remote):
                self.absent[remote.name] = Absence(remote, self.watched)
                self.on_loss(remote)
            return None

    def tickets(self) -> list[Ticket]:
        """What is waited for."""
        return [absence.ticket for absence in self.absent.values() if absence.ticket is not None]

    def look_round(self) -> None:
        """Admit those for whom there is a process again; raise `PeerLost` if that or an answer takes too long."""
        now = time.monotonic()
        self.watched += min(now - self.looked, GLANCE)
        self.looked = now
        for absence in list(self.absent.values()):
            if absence.ticket is None:
                if now - absence.asked > PATIENCE:
                    absence.ticket, absence.asked = absence.remote.admit(), now
            elif self.fleet.engine.ready([absence.ticket], 0.0):
                self._admitted(absence)
        for absence in self.absent.values():
            if self.watched - absence.since > STALL_SECONDS:
                raise gone(absence.remote)
        for ticket, (remote, since) in list(self.owed.items()):
            if self.watched - since > SILENT_SECONDS and not self.misses(remote):
                if not self.fleet.engine.ready([ticket], 0.0):
                    raise silent(remote)
                del self.owed[ticket]  # it was answered, and nobody has come to read it yet

    def _admitted(self, absence: Absence) -> None:
        """They may be back; or lost again, and have to be asked anew."""
        ticket, absence.ticket = absence.ticket, None
        try:
            self.fleet.engine.get(ticket)
        except Lost:
            return
        del self.absent[absence.remote.name]
        self.fleet.say(f"{absence.remote.name} is back after {self.watched - absence.since:.1f} s.")
        self.on_return(absence.remote)
