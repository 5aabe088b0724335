"""Settings of sets: their size and reward. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from xladder.errors import need
from xladder.worlds.flow_built_in import BuiltInSettings
from xladder.worlds.flow_counts import count_sets

if TYPE_CHECKING:
    from xladder.worlds.sets import Sets

MOST_ITEMS = 2000


@dataclass(frozen=True)
class WorldConfig(BuiltInSettings):
    """Sets to which items are added one by one."""

    workload: ClassVar[str] = "sets"
    items: int = 10
    """Number of items, n."""
    most: int = 5
    """The largest number of items in a set, k."""
    full: bool = False
    """Whether a set has to have that many items."""
    energy_seed: int = 0
    """Seed of the items' energies, which are uniform in [−1, 1]."""
    reward: str = "energies"
    """energies: log R is minus the sum of the items' energies; or your own, module:function, of 0 and 1 [n]."""

    @property
    def states(self) -> int:
        """Number of sets, incomplete ones included."""
        return count_sets(self.items, self.most)

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""
        return self.most + 1

    @property
    def state_size(self) -> int:
        """Numbers in a state: one per item."""
        return self.items

    @property
    def own_reward(self) -> bool:
        """Whether the reward is the user's own function."""
        return ":" in self.reward

    def check(self) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed."""
        need(1 <= self.items <= MOST_ITEMS, "world.items", self.items, f"1 to {MOST_ITEMS} items are possible")
        need(
            1 <= self.most <= self.items,
            "world.most",
            self.most,
            f"a set has 1 to {self.items} items (`--world.items`)",
        )
        need(self.energy_seed >= 0, "world.energy-seed", self.energy_seed, "it cannot be negative")
        need(
            self.reward == "energies" or self.own_reward,
            "world.reward",
            self.reward,
            "it has to be energies, or your own function, `module:function`",
        )
        if self.own_reward:
            from xladder.worlds.sets import check_reward

            check_reward(self)

    def headline(self) -> str:
        """A short description of the sets."""
        size = "exactly" if self.full else "at most"
        return f"sets of {size} {self.most} of {self.items} items, reward {self.reward}"

    def make(self) -> Sets:
        """The world."""
        from xladder.worlds.own_rewards import find_reward
        from xladder.worlds.sets import Sets

        reward = find_reward(self.reward) if self.own_reward else None
        return Sets(self.items, self.most, self.full, self.energy_seed, reward)
