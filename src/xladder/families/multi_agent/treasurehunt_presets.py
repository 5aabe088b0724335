"""Treasure hunt as a workload: its settings, their checks, and the presets. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from xladder.families.multi_agent import config as settings
from xladder.families.multi_agent.board_settings import BoardSettings
from xladder.families.multi_agent.config import Need
from xladder.worlds.entities import Cell

if TYPE_CHECKING:
    from xladder.worlds.treasurehunt import TreasureHunt
    from xladder.worlds.treasurehunt_host import HostTreasureHunt

MOST_ITEMS = 100  # a code each


@dataclass(frozen=True)
class WorldConfig(BoardSettings):
    """The board and its rules."""

    spawn_prob: float = 0.02
    """Probability that an item appears in an empty cell at the start of a turn."""
    item_names: tuple[str, ...] = ("gem", "bone", "food")
    """Names of the items; all are equally likely."""
    item_values: tuple[float, ...] = (10.0, -10.0, 5.0)
    """Reward for each item, in the order of `item_names`."""
    wall_value: float = -1.0
    """Reward for walking into the wall."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the counted events: picking up each item."""
        return self.item_names

    @property
    def events_title(self) -> str:
        """What they are together."""
        return f"{'items' if len(self.item_names) > 1 else self.item_names[0]} collected"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entity that agents tell apart."""
        return ("wall", *self.item_names, "agent")

    def cells(self) -> tuple[Cell, ...]:
        """What every code stands for."""
        items = zip(self.item_names, self.item_values, strict=True)
        return (
            Cell("empty", passable=True),
            Cell("wall", ("wall",), self.wall_value),
            *(Cell(name, (name,), value, passable=True) for name, value in items),
            Cell("agent", ("agent",)),
        )

    def build(self) -> TreasureHunt:
        """The board in JAX."""
        from xladder.worlds.treasurehunt import TreasureHunt

        return TreasureHunt(self)

    def on_host(self) -> HostTreasureHunt:
        """The board in NumPy."""
        from xladder.worlds.treasurehunt_host import HostTreasureHunt

        return HostTreasureHunt(self)

    def check(self, need: Need) -> None:
        """Require a valid board and distinct items."""
        super().check(need)
        self.check_chances(need, "spawn_prob")
        self.check_names(need, "item_names", "item", MOST_ITEMS, "wall", "agent")
        self.check_as_many(need, "item_names", "item_values")
        self.check_finite(need, "item_values", "wall_value")

    def bare(self, states: Any) -> np.ndarray:
        """int [T, C]: codes of the cells without the agents."""
        agent = len(self.cells()) - 1
        return np.where(states.board == agent, 0, states.board)


@dataclass(frozen=True)
class Config(settings.Config):
    """Several IQN agents hunt treasure on one board."""

    name: ClassVar[str] = "treasurehunt"
    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config()
PRESETS = {
    "default": DEFAULT,
    # Smaller batches and less exploration: agents learn visibly within a minute on a laptop.
    "demo": replace(DEFAULT, learner=replace(DEFAULT.learner, batch_size=64, epsilon_decay=0.01), epochs=600),
    # The example in sorrel 1.6.0, which sees colours.
    "sorrel": replace(
        DEFAULT,
        world=replace(DEFAULT.world, height=21, width=21, spawn_prob=0.005, max_turns=100, num_agents=2, view="rgb"),
        learner=replace(DEFAULT.learner, epsilon=0.6, epsilon_decay=0.0005, batch_size=64),
    ),
}
ABOUT = {
    "default": "five IQN agents on 10 × 10 cells, with one-hot views",
    "demo": "learns visibly within a minute: smaller batches, less exploration",
    "sorrel": "the example in sorrel 1.6.0: two agents on 21 × 21 cells that see colours",
}
"""What each preset is."""
