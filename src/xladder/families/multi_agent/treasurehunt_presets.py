"""Treasure hunt as a workload: its settings, their checks, and the presets. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xladder.families.multi_agent import config as settings
from xladder.families.multi_agent.config import RESERVED, Need, Played

if TYPE_CHECKING:
    import numpy as np

    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Board
    from xladder.worlds.treasurehunt import TreasureHunt
    from xladder.worlds.treasurehunt_host import HostTreasureHunt


@dataclass(frozen=True)
class WorldConfig:
    """The board and its rules."""

    jittable: ClassVar[bool] = True

    height: int = 10
    """Rows of the board, including the wall."""
    width: int = 10
    """Columns of the board, including the wall."""
    num_agents: int = 5
    """Number of agents; each has its own network and replay memory."""
    radius: int = 2
    """View radius: an agent sees (2·radius + 1)² cells."""
    max_turns: int = 50
    """Turns per epoch."""
    spawn_prob: float = 0.02
    """Probability that an item appears in an empty cell at the start of a turn."""
    item_names: tuple[str, ...] = ("gem", "bone", "food")
    """Names of the items; all are equally likely."""
    item_values: tuple[float, ...] = (10.0, -10.0, 5.0)
    """Reward for each item, in the order of `item_names`."""
    wall_value: float = -1.0
    """Reward for walking into the wall."""
    observe: Literal["in_turn", "together"] = "in_turn"
    """in_turn: an agent sees earlier agents' moves of this turn. together: all observe, then all move in order."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the counted events: picking up each item."""
        return self.item_names

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
        for flag, size in [("world.height", self.height), ("world.width", self.width)]:
            need(size >= 3, flag, size, "a board needs 3 or more: two rows of wall and something between them")
        need(self.radius >= 0, "world.radius", self.radius, "a view cannot be smaller than radius 0")
        free = (self.height - 2) * (self.width - 2)
        need(
            self.num_agents <= free,
            "world.num-agents",
            self.num_agents,
            f"a {self.height} × {self.width} board has only {free} cells inside its wall",
        )
        need(0.0 <= self.spawn_prob <= 1.0, "world.spawn-prob", self.spawn_prob, "it has to lie in [0, 1]")
        names, values = self.item_names, self.item_values
        need(1 <= len(names) <= 100, "world.item-names", names, "there have to be 1 to 100 items")
        for name in names:
            free_name = name.isidentifier() and not name.startswith(RESERVED)
            need(free_name, "world.item-names", name, "an item's name is a word, and not one of the metrics' own")
        need(len(set(names)) == len(names), "world.item-names", names, "every item needs its own name")
        need(
            len(names) == len(values),
            "world.item-values",
            values,
            f"there have to be as many as `--world.item-names` ({len(names)})",
        )
        for reward in (*values, self.wall_value):
            need(abs(reward) < float("inf"), "world.item-values", reward, "rewards have to be finite")

    def panels(self) -> tuple[Panel, ...]:
        """The panels of the learning curves."""
        from xladder.pictures.curves import hunt_panels

        return hunt_panels(self.item_names)

    def draw(self, path: Path, states: Any, rewards: np.ndarray, title: str) -> None:
        """Write an epoch as an animation: its states, leaves [T, …], and rewards, [T, N]."""
        from xladder.pictures.replay_gif import write_gif

        write_gif(path, states.board, rewards, self, states.positions, title)

    def board(self, title: str, start: Any, states: Any, played: Played) -> Board:
        """An epoch as a board that a page can replay."""
        from xladder.pictures.hunt_scene import make_board

        return make_board(self, title, states.board, states.positions, start.positions, *played)


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
    # The settings of the example in sorrel 1.6.0.
    "sorrel": replace(
        DEFAULT,
        world=replace(DEFAULT.world, height=21, width=21, spawn_prob=0.005, max_turns=100, num_agents=2),
        learner=replace(DEFAULT.learner, epsilon=0.6, epsilon_decay=0.0005, batch_size=64),
    ),
}
