"""A remote object that nothing is lost of: what it was told since its last copy is told again to the one that follows.

It has to be deterministic, and `save` and `load` what it holds. A copy is made when there is as much to tell again as
a copy holds, so that copying costs no more than telling did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xladder.core.state import Arrays
from xladder.distributed.remote import Engine, Lost, Remote, Ticket


class Call:
    """Something that was asked."""

    def __init__(self, verb: str, given: tuple[Any, ...], answers: int):
        self.verb, self.given, self.answers = verb, given, answers
        self.ticket: Ticket = None


class Journalled:
    """A remote object and its journal."""

    def __init__(
        self,
        remote: Remote,
        engine: Engine,
        readmit: Callable[[Remote], None],
        on_silence: Callable[[Remote], Exception],
        patience: float,
        most: int,
        carried: bool,
    ):
        self.remote, self.engine, self.readmit = remote, engine, readmit
        self.on_silence, self.patience = on_silence, patience
        self.most, self.carried = most, carried
        self.copy: Arrays | None = None
        self.journal: list[Call] = []
        self.told_again = 0

    def tell(self, verb: str, *given: Any, answers: int = 1) -> Call:
        """Ask for something that changes it."""
        if len(self.journal) >= self.most:
            self.copy = self.read(Call("save", (), 1)) if self.carried else None
            self.journal = []
        call = self._ask(Call(verb, given, answers))
        self.journal.append(call)
        return call

    def ask(self, verb: str, *given: Any) -> Call:
        """Ask for something that leaves it as it is."""
        return self._ask(Call(verb, given, 1))

    def load(self, arrays: Arrays) -> None:
        """Go on from a state that was saved."""
        self.copy, self.journal = arrays, []
        self.read(self.ask("load", arrays))

    def read(self, call: Call, which: int = -1) -> Any:
        """Wait for one of the answers of a call, whatever happens to the object."""
        if call.ticket is None:
            self._ask(call)
        while True:
            ticket = call.ticket[which] if call.answers > 1 else call.ticket
            try:
                if not self.engine.ready([ticket], self.patience):
                    raise self.on_silence(self.remote)
                return self.engine.get(ticket)
            except Lost:
                self._begin_again(call)

    def _begin_again(self, call: Call) -> None:
        self.readmit(self.remote)
        self.told_again += 1
        if self.copy is not None:
            self.remote.ask("load", self.copy)
        for earlier in self.journal:
            self._ask(earlier)
        if call not in self.journal:
            self._ask(call)

    def _ask(self, call: Call) -> Call:
        call.ticket = self.remote.ask(call.verb, *call.given, answers=call.answers)
        return call
