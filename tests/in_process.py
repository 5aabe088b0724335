"""An engine for `actors` without other processes: whoever is asked answers at once, and can be lost or stopped."""

import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from xladder.distributed.remote import Lost


class Ticket:
    def __init__(self, value: Any = None, error: Exception | None = None, pending: bool = False):
        self.value, self.error, self.pending = value, error, pending


class Remote:
    def __init__(self, name: str, make, given):
        self.name, self.make, self.given = name, make, given
        self.life, self.thing = 0, None
        self.stopped = False  # it is there, and does nothing

    def admit(self) -> Ticket:
        self.life += 1
        self.thing = self.make(*self.given)
        return Ticket(self.life)

    def lose(self) -> None:
        self.thing = None

    def ask(self, verb: str, *given: Any, answers: int = 1) -> Any:
        if self.stopped:
            return [Ticket(pending=True) for _ in range(answers)] if answers > 1 else Ticket(pending=True)
        if self.thing is None:
            tickets = [Ticket(error=Lost()) for _ in range(answers)]
            return tickets if answers > 1 else tickets[0]
        # Copies, as between processes: whoever answers may change what it has afterwards.
        given = [deepcopy(one.value if isinstance(one, Ticket) else one) for one in given]
        answer = deepcopy(getattr(self.thing, verb)(*given))
        return [Ticket(one) for one in answer] if answers > 1 else Ticket(answer)


class InProcess:
    def __init__(self) -> None:
        self.remotes: list[Remote] = []

    def hire(self, name: str, make, *given: Any) -> Remote:
        self.remotes.append(Remote(name, make, given))
        return self.remotes[-1]

    def put(self, value: Any) -> Ticket:
        return Ticket(value)

    def get(self, ticket: Ticket) -> Any:
        assert not ticket.pending, "this would wait for ever"
        if ticket.error:
            raise ticket.error
        return ticket.value

    def ready(self, tickets: Sequence[Ticket], seconds: float) -> list[Ticket]:
        ready = [ticket for ticket in tickets if not ticket.pending]
        if not ready:
            time.sleep(min(seconds, 0.01))
        return ready

    def close(self) -> None:
        self.remotes = []
