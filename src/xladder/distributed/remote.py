"""What a run needs of an engine that runs objects in other processes: Ray is one, this process another.

Whoever is asked answers later: asking gives a future. Objects live in processes that can be lost; the engine starts
another in their place, which knows nothing and has to be admitted before it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

RemoteFuture = Any
"""What is given for an answer that is still to come, and may be passed on in its place."""


class Lost(Exception):
    """Whoever was asked is gone, and what they knew with them."""


class Remote(Protocol):
    """An object in another process."""

    name: str
    generation: int
    """How often it has been admitted."""

    def ask(self, method: str, *given: Any, answers: int = 1) -> Any:
        """Have it do something: a future, or as many as there are answers. Futures among `given` become answers."""

    def admit(self) -> RemoteFuture:
        """Make it, or make it anew after it was lost; answered once it is there."""


class Engine(Protocol):
    """Who runs them."""

    def spawn(self, name: str, make: Callable[..., Any], *given: Any) -> Remote:
        """An object that `make` makes; it has to be admitted."""

    def put(self, value: Any) -> RemoteFuture:
        """A future for something that several will be given."""

    def get(self, future: RemoteFuture) -> Any:
        """Wait for an answer; raises `Lost`, or what the object raised."""

    def ready(self, futures: Sequence[RemoteFuture], seconds: float) -> list[RemoteFuture]:
        """Those that are answered, or lost; waits until one is, but no longer than so many seconds."""

    def close(self) -> None:
        """End all processes that were begun."""
