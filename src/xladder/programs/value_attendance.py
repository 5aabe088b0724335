"""Who of a fleet is there: those whose process was lost are missed, said to be, and admitted again when they can be."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from xladder.core.remote import Lost, Remote, Ticket
from xladder.programs.value_fleet import STALL_SECONDS, Fleet, gone, silent

PATIENCE = 0.2  # seconds between two attempts to admit somebody


class Absence:
    """Somebody who was lost."""

    def __init__(self, remote: Remote):
        self.remote, self.since = remote, time.monotonic()
        self.ticket: Ticket = None  # for being admitted again
        self.asked = 0.0


class Attendance:
    """Who is missing."""

    def __init__(self, fleet: Fleet, on_loss: Callable[[Remote], None], on_return: Callable[[Remote], None]):
        self.fleet, self.on_loss, self.on_return = fleet, on_loss, on_return
        self.absent: dict[str, Absence] = {}
        self.last_answer = time.monotonic()

    def misses(self, remote: Remote) -> bool:
        """Whether somebody was lost and is not back."""
        return remote.name in self.absent

    def answer(self, remote: Remote, ticket: Ticket, life: int) -> Any:
        """What somebody has answered who was asked in that life; None if they are lost.

        What was asked in an earlier life was lost with it, and that is known already.
        """
        try:
            said = self.fleet.engine.get(ticket)
        except Lost:
            if life == remote.life and not self.misses(remote):
                self.absent[remote.name] = Absence(remote)
                self.on_loss(remote)
            return None
        self.last_answer = time.monotonic()
        return said

    def tickets(self) -> list[Ticket]:
        """What is waited for."""
        return [absence.ticket for absence in self.absent.values() if absence.ticket is not None]

    def look_round(self) -> None:
        """Admit those for whom there is a process again; raise `PeerLost` if that takes too long."""
        now = time.monotonic()
        for absence in list(self.absent.values()):
            if absence.ticket is None:
                if now - absence.asked > PATIENCE:
                    absence.ticket, absence.asked = absence.remote.admit(), now
            elif self.fleet.engine.ready([absence.ticket], 0.0):
                self._admitted(absence)
            if now - absence.since > STALL_SECONDS:
                raise gone(absence.remote)
        if now - self.last_answer > STALL_SECONDS:
            raise silent("None of the actors and shards has")

    def _admitted(self, absence: Absence) -> None:
        """They may be back; or lost again, and have to be asked anew."""
        ticket, absence.ticket = absence.ticket, None
        try:
            self.fleet.engine.get(ticket)
        except Lost:
            return
        del self.absent[absence.remote.name]
        self.last_answer = time.monotonic()
        self.fleet.say(f"{absence.remote.name} is back after {time.monotonic() - absence.since:.1f} s.")
        self.on_return(absence.remote)
