"""Settings of GFlowNet worlds. Importing this module imports neither JAX nor the worlds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from xladder.worlds.flow import BoundWorld, HostWorld

MOST_STATES = 2**20  # that can be enumerated, for exact evaluation


@dataclass(frozen=True)
class FlowSettings:
    """What the GFlowNet family needs of a world's settings."""

    jittable: ClassVar[bool] = True
    all_complete: ClassVar[bool] = False
    """Whether every state is known to be an object, so that this need not be checked."""

    @property
    @abstractmethod
    def workload(self) -> str:
        """The name of the workload, as a user types it."""

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

    @property
    def knows_log_z(self) -> bool:
        """Whether log Z is known: by enumeration, unless a world says otherwise."""
        return self.enumerable or self.charted

    @property
    def modes_counted(self) -> int:
        """Number of modes of which training counts how many were found; 0: none."""
        return self.build().modes_counted

    @property
    def num_terms(self) -> int:
        """Number of reward terms that can be weighted; 0 if there is one reward."""
        return self.build().num_terms

    @property
    def metric_texts(self) -> Mapping[str, str]:
        """Published metrics of the world's own → what each is, in a few words."""
        return self.build().metric_texts()

    def warnings(self) -> list[str]:
        """What may surprise in a run with these settings, a sentence each."""
        return []

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
