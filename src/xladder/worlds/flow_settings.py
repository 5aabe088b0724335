"""Settings of worlds in which objects are built step by step. Reading them imports neither JAX nor the worlds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from xladder.worlds.flow import BoundWorld, HostWorld

MOST_STATES = 2**20  # that are enumerated, for exact answers


@dataclass(frozen=True)
class FlowSettings:
    """What the GFlowNet family asks the settings of a world."""

    jittable: ClassVar[bool] = True

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of the longest trajectory, stop included."""

    @property
    @abstractmethod
    def state_size(self) -> int:
        """Numbers in a state."""

    @property
    @abstractmethod
    def enumerable(self) -> bool:
        """Whether there are few enough states for exact answers."""

    @property
    @abstractmethod
    def charted(self) -> bool:
        """Whether sampled objects can be held against the target: its marginals and log Z are known."""

    @abstractmethod
    def check(self) -> None:
        """Raise a `UsageError` that says what is wrong with these settings, or with the world they name."""

    @abstractmethod
    def size_in_words(self) -> str:
        """How many states there are, for sentences."""

    @abstractmethod
    def headline(self) -> str:
        """The world in a few words."""

    @abstractmethod
    def build(self) -> BoundWorld:
        """The world in JAX; always the same object for the same settings."""

    @abstractmethod
    def host(self) -> HostWorld:
        """The world on the host."""
