"""A world under a condition: the same objects with the reward raised to a power. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from xladder.worlds.flow_settings import FlowSettings

if TYPE_CHECKING:
    from xladder.worlds.flow import BoundWorld, HostWorld


@dataclass(frozen=True)
class ConditionedSettings(FlowSettings):
    """A world whose rewards are raised to the power `beta`."""

    base: FlowSettings
    beta: float

    @property
    def workload(self) -> str:
        """The name of the workload, as a user types it."""
        return self.base.workload

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""
        return self.base.steps

    @property
    def state_size(self) -> int:
        """Numbers in a state."""
        return self.base.state_size

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough states for exact evaluation."""
        return self.base.enumerable

    @property
    def charted(self) -> bool:
        """Whether samples can be compared with the target: its marginals are not known in closed form."""
        return False

    def check(self) -> None:
        """Raise a `UsageError` with the faults of the world."""
        self.base.check()

    def size_in_words(self) -> str:
        """The number of states, for messages."""
        return self.base.size_in_words()

    def headline(self) -> str:
        """A short description of the world."""
        return f"{self.base.headline()}, β = {self.beta:g}"

    def build(self) -> BoundWorld:
        """The world in JAX; the same object for equal settings."""
        return _build(self)

    def host(self) -> HostWorld:
        """The base world on the host: its rewards are those of β = 1."""
        return self.base.host()


@lru_cache(maxsize=16)
def _build(settings: ConditionedSettings) -> BoundWorld:
    from xladder.worlds.flow_tempered import Tempered

    return Tempered(settings.base.build(), settings.beta)
