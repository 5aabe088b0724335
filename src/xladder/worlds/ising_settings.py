"""The Ising model's settings: size, coupling, temperature and the order of spins. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from xladder.errors import need
from xladder.worlds.flow_built_in import BuiltInSettings
from xladder.worlds.flow_counts import count_lattices, ising_blocks

if TYPE_CHECKING:
    from xladder.worlds.ising import Ising

MOST_SIDE = 64  # the longest trajectory has a step for every site
MOST_LOG_REWARD = 1e6  # beyond, float32 cannot tell a change of one bond from rounding


@dataclass(frozen=True)
class WorldConfig(BuiltInSettings):
    """An N × N torus of spins that attract or repel their neighbours."""

    workload: ClassVar[str] = "ising"
    side: int = 4
    """Sites in a row, N."""
    coupling: float = 1.0
    """J: neighbours prefer equal spins if it is positive, opposite ones if it is negative."""
    temperature: float = 2.5
    """T: the log-reward is −E / T. The critical temperature of a large lattice is 2.269 · J."""
    order: Literal["any", "rows", "sites"] = "rows"
    """any: spins are set in any order (as published); rows: row by row, in any order within; sites: one after another.
    Exact evaluation is possible up to a side of 3 in any order, and of 4 in the others."""

    @property
    def states(self) -> int:
        """Number of states, incomplete lattices included."""
        return count_lattices(self.side, self.order)

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""
        return self.side**2 + 1

    @property
    def state_size(self) -> int:
        """Numbers in a state: one per site."""
        return self.side**2

    def check(self) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed."""
        need(2 <= self.side <= MOST_SIDE, "world.side", self.side, f"a torus has 2 to {MOST_SIDE} sites in a row")
        need(abs(self.coupling) < float("inf"), "world.coupling", self.coupling, "it has to be a finite number")
        need(
            0.0 < self.temperature < float("inf"),
            "world.temperature",
            self.temperature,
            "it has to be a positive number",
        )
        need(
            self.order in ising_blocks(self.side),
            "world.order",
            self.order,
            f"it has to be one of {', '.join(ising_blocks(self.side))}",
        )
        strength = abs(self.coupling) / self.temperature
        need(
            2 * self.side**2 * strength < MOST_LOG_REWARD,
            "world.temperature",
            self.temperature,
            f"log-rewards would reach {2 * self.side**2 * strength:.3g}, and at most {MOST_LOG_REWARD:g} is supported: "
            "raise it, or lower `--world.coupling`",
        )

    def headline(self) -> str:
        """A short description of the lattice."""
        return f"{self.side} × {self.side} spins, J {self.coupling:g}, T {self.temperature:g}, order {self.order}"

    def make(self) -> Ising:
        """The world."""
        from xladder.worlds.ising import Ising

        return Ising(self.side, self.coupling, self.temperature, self.order)
