"""The hypergrid's settings: size and reward. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from xladder.errors import need
from xladder.worlds.flow_settings import MOST_STATES, FlowSettings

if TYPE_CHECKING:
    from xladder.worlds.hypergrid import Hypergrid
    from xladder.worlds.hypergrid_host import HostGrid

# R0, R1 and R2 of published rewards; `hypergrid_rewards` has the formulas.
REWARDS = {
    "easy": (1e-3, 0.5, 2.0),
    "hard": (1e-4, 1.0, 3.0),
    "torchgfn": (0.1, 0.5, 2.0),
    "cosine": (0.1, 0.5, 0.0),
    "sparse": (1e-12, 0.0, 1.0),
    "deceptive": (1e-5, 0.1, 2.0),
    "xor": (1e-3, 1.0, 110.0),
    "coprime": (1e-3, 0.0, 111.0),
}
TIERED = ("xor", "coprime")  # no products over coordinates: known by enumeration only
UNEVEN = ("sparse", "deceptive")  # coordinates are not all alike: their sums take D² · H numbers
MOST_UNEVEN = 100  # coordinates
MOST_STEPS = 2**15  # per trajectory: each is a row in the program


@dataclass(frozen=True)
class WorldConfig(FlowSettings):
    """The size and the reward of a hypergrid."""

    workload: ClassVar[str] = "hypergrid"
    all_complete: ClassVar[bool] = True
    dim: int = 2
    """Number of coordinates, D."""
    side: int = 8
    """Values per coordinate, H."""
    reward: str = "easy"
    """easy, hard, torchgfn, custom (r0, r1, r2): plateaus with peaks; corners: hills; cosine: waves; sparse: single
    cells; deceptive: peaks away from a plateau; xor, coprime: rules about whole numbers; several with + between them:
    their mean, or weighted by a condition; or your own, module:function."""
    r0: float = 1e-3
    """For a custom reward: the reward of every cell."""
    r1: float = 0.5
    """For a custom reward: added on plateaus."""
    r2: float = 2.0
    """For a custom reward: added on peaks."""

    @property
    def states(self) -> int:
        """Number of cells."""
        return self.side**self.dim

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""
        return self.dim * (self.side - 1) + 1

    @property
    def state_size(self) -> int:
        """Numbers in a state: the coordinates."""
        return self.dim

    @property
    def levels(self) -> tuple[float, float, float]:
        """R0, R1 and R2."""
        return REWARDS.get(self.reward, (self.r0, self.r1, self.r2))

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough cells for exact evaluation."""
        return self.states <= MOST_STATES

    @property
    def own_reward(self) -> bool:
        """Whether the reward is the user's own function."""
        return ":" in self.reward

    @property
    def terms(self) -> tuple[WorldConfig, ...]:
        """The same grid with each of several rewards; empty if there is one."""
        parts = self.reward.split("+")
        return tuple(replace(self, reward=part) for part in parts) if len(parts) > 1 else ()

    @property
    def num_terms(self) -> int:
        """Number of rewards that can be weighted; 0 if there is one."""
        return len(self.terms)

    @property
    def tiered(self) -> bool:
        """Whether the reward is one of those in tiers."""
        return self.reward in TIERED

    @property
    def closed_form(self) -> bool:
        """Whether log Z and marginals of the target are known for any size, as for most built-in rewards."""
        return not self.own_reward and not self.terms and not self.tiered

    @property
    def charted(self) -> bool:
        """Whether the target's marginals and log Z are known: in closed form, or by enumeration."""
        return self.enumerable or self.closed_form

    def check(self) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed."""
        need(self.dim >= 1, "world.dim", self.dim, "a grid has 1 or more coordinates")
        need(self.side >= 2, "world.side", self.side, "a coordinate needs 2 or more values")
        need(
            self.steps <= MOST_STEPS,
            "world.side",
            self.side,
            f"with {self.dim} coordinates a trajectory would have {self.steps} steps, but at most {MOST_STEPS} are "
            "supported: make the grid smaller",
        )
        need(self.dim <= 1000, "world.dim", self.dim, "at most 1000 coordinates are supported")
        known = (*REWARDS, "corners", "custom")
        if self.terms:
            for part in self.terms:
                need(
                    part.reward in known,
                    "world.reward",
                    self.reward,
                    f"those with + between them have to be of {', '.join(known)}",
                )
                part.check()
            return
        need(
            self.reward in known or self.own_reward,
            "world.reward",
            self.reward,
            f"it has to be one of {', '.join(known)}, or your own function, `module:function`",
        )
        need(
            self.reward not in UNEVEN or self.dim <= MOST_UNEVEN,
            "world.dim",
            self.dim,
            f"with the reward {self.reward} at most {MOST_UNEVEN} coordinates are supported",
        )
        need(
            0.0 < self.r0 < float("inf"),
            "world.r0",
            self.r0,
            "it has to be positive: the logarithm of every reward is taken",
        )
        for flag, more in [("world.r1", self.r1), ("world.r2", self.r2)]:
            need(0.0 <= more < float("inf"), flag, more, "it has to be a number, and cannot be negative")
        if self.own_reward:
            self.build().check_reward()

    def warnings(self) -> list[str]:
        """Say so if no cell is a mode."""
        if not self.closed_form:
            return []
        from xladder.worlds.hypergrid_rewards import num_mode_cells

        if num_mode_cells(self) != 0:
            return []
        why = "lies in the band" if self.reward != "cosine" else "is near enough to the top of a wave"
        more = " Sides 7 to 10 and from 12 on have some." if self.reward != "cosine" else ""
        return [
            f"No cell of this grid is a mode: with {self.side} values (`--world.side`), none {why} of the reward "
            f"{self.reward}.{more}"
        ]

    def size_in_words(self) -> str:
        """The number of cells, for messages."""
        return f"{self.side}^{self.dim} cells"

    def headline(self) -> str:
        """A short description of the grid."""
        return f"{self.size_in_words()}, reward {self.reward}"

    def build(self) -> Hypergrid:
        """The grid in JAX."""
        from xladder.worlds.hypergrid import build

        return build(self)

    def host(self) -> HostGrid:
        """The grid in NumPy."""
        from xladder.worlds.hypergrid_host import build

        return build(self)
