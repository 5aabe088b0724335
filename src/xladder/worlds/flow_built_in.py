"""Settings of built-in GFlowNet worlds that are written as a `FlowWorld`. Imports nothing heavy."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from xladder.worlds.flow_counts import in_words
from xladder.worlds.flow_settings import MOST_STATES, FlowSettings

if TYPE_CHECKING:
    from xladder.worlds.flow import FlowWorld, HostWorld
    from xladder.worlds.flow_own import OwnWorld


@dataclass(frozen=True)
class BuiltInSettings(FlowSettings):
    """Settings of a built-in world that is a `FlowWorld`. A subclass has its flags as fields, and says the rest."""

    @property
    @abstractmethod
    def states(self) -> int:
        """Number of states, incomplete objects included."""

    @abstractmethod
    def make(self) -> FlowWorld:
        """The world. If it has more than 65,536 states that are to be enumerated, it has to list them."""

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough states for exact evaluation."""
        return self.states <= MOST_STATES

    @property
    def charted(self) -> bool:
        """Whether samples can be compared with the target by marginals: only those of grids are known."""
        return False

    @property
    def knows_log_z(self) -> bool:
        """Whether log Z is known: to the world, or by enumeration."""
        return self.enumerable or self.build().world.known_log_z() is not None

    def size_in_words(self) -> str:
        """How many states there are."""
        return f"{in_words(self.states)} states"

    def build(self) -> OwnWorld:
        """The world in JAX."""
        return _build(self)

    def host(self) -> HostWorld:
        """Its twin in NumPy, or the JAX world stepped from the host."""
        return _host(self)


@lru_cache(maxsize=16)
def _build(settings: BuiltInSettings) -> OwnWorld:
    from xladder.worlds.flow_own import bind

    return bind(settings.make())


@lru_cache(maxsize=16)
def _host(settings: BuiltInSettings) -> HostWorld:
    from xladder.worlds.flow_own import host_of

    world = _build(settings)
    return host_of(world)
