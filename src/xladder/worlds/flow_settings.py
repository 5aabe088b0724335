"""Settings of GFlowNet worlds. Importing this module imports neither JAX nor the worlds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from xladder.worlds.flow import BoundWorld, HostWorld

MOST_STATES = 2**20  # that can be enumerated, for exact evaluation


@dataclass(frozen=True)
class FlowSettings:
    """What the GFlowNet family needs of a world's settings."""

    jittable: ClassVar[bool] = True

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""

    @property
    @abstractmethod
    def state_size(self) -> int:
        """Numbers in a state."""

    @property
    @abstractmethod
    def enumerable(self) -> bool:
        """Whether there are few enough states for exact evaluation."""

    @property
    @abstractmethod
    def charted(self) -> bool:
        """Whether sampled objects can be compared with the target: its marginals and log Z are known."""

    @abstractmethod
    def check(self) -> None:
        """Raise a `UsageError` that says what is wrong with these settings, or with the world they name."""

    @abstractmethod
    def size_in_words(self) -> str:
        """The number of states, for messages."""

    @abstractmethod
    def headline(self) -> str:
        """A short description of the world."""

    @abstractmethod
    def build(self) -> BoundWorld:
        """The world in JAX; the same object for equal settings."""

    @abstractmethod
    def host(self) -> HostWorld:
        """The world on the host."""
