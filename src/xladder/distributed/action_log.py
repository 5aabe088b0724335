"""A remote object of which nothing is lost: the calls since its last copy are replayed on the one that follows.

It has to be deterministic, and `save` and `load` what it holds. A copy is made when there is as much to tell again as
an env holds, so that copying costs no more than telling did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xladder.core.state import Arrays
from xladder.distributed.remote import Engine, Lost, Remote, RemoteFuture


class Call:
    """Something that was asked."""

    def __init__(self, method: str, given: tuple[Any, ...], answers: int):
        self.method, self.given, self.answers = method, given, answers
        self.future: RemoteFuture = None


class LoggedRemote:
    """A remote object and the log of its calls."""

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
        self.action_log: list[Call] = []
        self.replays = 0

    def tell(self, method: str, *given: Any, answers: int = 1) -> Call:
        """Ask for something that changes it."""
        if len(self.action_log) >= self.most:
            self.copy = self.read(Call("save", (), 1)) if self.carried else None
            self.action_log = []
        call = self._ask(Call(method, given, answers))
        self.action_log.append(call)
        return call

    def ask(self, method: str, *given: Any) -> Call:
        """Ask for something that leaves it as it is."""
        return self._ask(Call(method, given, 1))

    def load(self, arrays: Arrays) -> None:
        """Go on from a state that was saved."""
        self.copy, self.action_log = arrays, []
        self.read(self.ask("load", arrays))

    def read(self, call: Call, which: int = -1) -> Any:
        """Wait for one of the answers of a call, whatever happens to the object."""
        if call.future is None:
            self._ask(call)
        while True:
            future = call.future[which] if call.answers > 1 else call.future
            try:
                if not self.engine.ready([future], self.patience):
                    raise self.on_silence(self.remote)
                return self.engine.get(future)
            except Lost:
                self._begin_again(call)

    def _begin_again(self, call: Call) -> None:
        self.readmit(self.remote)
        self.replays += 1
        if self.copy is not None:
            self.remote.ask("load", self.copy)
        for earlier in self.action_log:
            self._ask(earlier)
        if call not in self.action_log:
            self._ask(call)

    def _ask(self, call: Call) -> Call:
        call.future = self.remote.ask(call.method, *call.given, answers=call.answers)
        return call
