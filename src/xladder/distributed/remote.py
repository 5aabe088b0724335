"""What a run needs of an engine that runs objects in other processes. Ray is one; tests use one in this process.

Calls are asynchronous: `call` returns a future. If the process of an object is lost, the engine starts another one;
the object has to be started again there, without its state, before it can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

RemoteFuture = Any
"""The future of a result; it may be passed as an argument in place of the result."""


class Lost(Exception):
    """The process that was called is gone, along with its state."""


class Remote(Protocol):
    """An object in another process."""

    name: str
    generation: int
    """How often it has been started."""

    def call(self, method: str, *given: Any, answers: int = 1) -> Any:
        """Call a method of the object. Futures among the arguments are replaced by their results.

        Args:
            method: name of the method.
            given: its arguments.
            answers: the number of results.

        Returns:
            A future, or a sequence of `answers` futures if there are several.
        """

    def start(self) -> RemoteFuture:
        """Make the object, for the first time or after a loss; the future is ready when that is done."""


class Engine(Protocol):
    """Runs objects in other processes."""

    def spawn(self, name: str, make: Callable[..., Any], *given: Any) -> Remote:
        """Create a remote object that `make(*given)` makes; call its `start` before anything else."""

    def put(self, value: Any) -> RemoteFuture:
        """Store a value that several calls will be given; returns a future."""

    def get(self, future: RemoteFuture) -> Any:
        """Wait for a result. Raises `Lost` if the process was lost, or whatever the method raised."""

    def ready(self, futures: Sequence[RemoteFuture], seconds: float) -> list[RemoteFuture]:
        """The futures that have a result or were lost; waits up to `seconds` for the first."""

    def close(self) -> None:
        """End all processes that this engine started."""
