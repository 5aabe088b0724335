"""A world under a condition: the same objects with other rewards. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from xladder.worlds.flow_settings import FlowSettings

if TYPE_CHECKING:
    from xladder.worlds.flow import BoundWorld, HostWorld


@dataclass(frozen=True)
class ConditionedSettings(FlowSettings):
    """A world whose reward is raised to a power, or whose reward terms are weighted."""

    base: FlowSettings
    condition: float | tuple[float, ...]
    scalarisation: str = "sum"

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
        return f"{self.base.headline()}, {self.words}"

    @property
    def words(self) -> str:
        """The condition, in words."""
        return format_condition(self.condition)

    def build(self) -> BoundWorld:
        """The world in JAX; the same object for equal settings."""
        return _build(self)

    def host(self) -> HostWorld:
        """The base world on the host, with its own rewards."""
        return self.base.host()


@lru_cache(maxsize=16)
def _build(settings: ConditionedSettings) -> BoundWorld:
    from xladder.worlds.flow_under import Conditioned

    return Conditioned(settings.base.build(), settings.condition, settings.scalarisation)


def format_condition(condition: float | tuple[float, ...]) -> str:
    """A condition as text: "β = 2", "weights 0.5, 0.5"."""
    if isinstance(condition, tuple):
        return f"weights {', '.join(f'{weight:.3g}' for weight in condition)}"
    return f"β = {condition:g}"
