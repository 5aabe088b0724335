"""A remote object whose state survives the loss of its process, by replaying a log of its calls.

The calls since the last snapshot are replayed on the replacement process, so the object has to be deterministic and to
offer `save` and `load`. A new snapshot is taken once the log holds as many rows as the object itself, so snapshots cost
no more than the calls did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xladder.core.state import Arrays
from xladder.distributed.remote import Engine, Lost, Remote, RemoteFuture


class Call:
    """One method call on a remote object, and the future of its result."""

    def __init__(self, method: str, given: tuple[Any, ...], answers: int):
        self.method, self.given, self.answers = method, given, answers
        self.future: RemoteFuture = None


class LoggedRemote:
    """A remote object and a log of the calls that changed its state.

    Args:
        remote: the object.
        engine: the engine that runs it.
        restart: waits until a lost object has been started again, without its state.
        on_silence: makes the error to raise when the object does not answer.
        patience: seconds to wait for a result before that.
        most: calls in the log before a snapshot is taken.
        carried: whether the object's state can be saved; if not, a restarted object begins anew.
    """

    def __init__(
        self,
        remote: Remote,
        engine: Engine,
        restart: Callable[[Remote], None],
        on_silence: Callable[[Remote], Exception],
        patience: float,
        most: int,
        carried: bool,
    ):
        self.remote, self.engine, self.restart = remote, engine, restart
        self.on_silence, self.patience = on_silence, patience
        self.most, self.carried = most, carried
        self.copy: Arrays | None = None
        self.action_log: list[Call] = []
        self.replays = 0

    def call_logged(self, method: str, *given: Any, answers: int = 1) -> Call:
        """Call a method that changes the object's state, and log the call."""
        if len(self.action_log) >= self.most:
            self.copy = self.read(Call("save", (), 1)) if self.carried else None
            self.action_log = []
        call = self._send(Call(method, given, answers))
        self.action_log.append(call)
        return call

    def call(self, method: str, *given: Any) -> Call:
        """Call a method that does not change the object's state."""
        return self._send(Call(method, given, 1))

    def load(self, arrays: Arrays) -> None:
        """Restore a saved state, and begin a new log from it."""
        self.copy, self.action_log = arrays, []
        self.read(self.call("load", arrays))

    def read(self, call: Call, which: int = -1) -> Any:
        """Wait for the result of a call and return it, restarting the object as often as its process is lost.

        Args:
            call: what `call` or `call_logged` returned.
            which: which result, where the method returns several futures.
        """
        if call.future is None:
            self._send(call)
        while True:
            future = call.future[which] if call.answers > 1 else call.future
            try:
                if not self.engine.ready([future], self.patience):
                    raise self.on_silence(self.remote)
                return self.engine.get(future)
            except Lost:
                self._replay(call)

    def _replay(self, call: Call) -> None:
        self.restart(self.remote)
        self.replays += 1
        if self.copy is not None:
            self.remote.call("load", self.copy)
        for earlier in self.action_log:
            self._send(earlier)
        if call not in self.action_log:
            self._send(call)

    def _send(self, call: Call) -> Call:
        call.future = self.remote.call(call.method, *call.given, answers=call.answers)
        return call
