"""Tag as a workload: its settings, their checks, and the presets. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from xladder.core.encoding import Block, Encoding
from xladder.families.multi_agent import config as settings
from xladder.families.multi_agent.board_settings import BoardSettings
from xladder.families.multi_agent.config import LearnerConfig, Need
from xladder.worlds.entities import Cell

if TYPE_CHECKING:
    from xladder.worlds.tag import Tag
    from xladder.worlds.tag_host import HostTag


@dataclass(frozen=True)
class WorldConfig(BoardSettings):
    """The board and its rules."""

    height: int = 11
    """Rows of the board, including the wall."""
    width: int = 11
    """Columns of the board, including the wall."""
    radius: int = 4
    """View radius: an agent sees (2·radius + 1)² cells."""
    max_turns: int = 20
    """Turns per epoch."""
    free_reward: float = 10.0
    """Reward per turn for an agent that is not it at the end of its move."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the counted events."""
        return ("tags",)

    @property
    def events_title(self) -> str:
        """What they are together."""
        return "tags"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entity that agents tell apart."""
        return ("wall", "it", "not_it")

    def cells(self) -> tuple[Cell, ...]:
        """What every code stands for."""
        return (Cell("empty", passable=True), *(Cell(kind, (kind,)) for kind in self.kinds))

    def encoding(self) -> Encoding:
        """The cells, then one number that says whether the agent itself is it."""
        return Encoding((self.picture(), Block(1, ((0.0,), (1.0,)))))

    def build(self) -> Tag:
        """The board in JAX."""
        from xladder.worlds.tag import Tag

        return Tag(self)

    def on_host(self) -> HostTag:
        """The board in NumPy."""
        from xladder.worlds.tag_host import HostTag

        return HostTag(self)

    def check(self, need: Need) -> None:
        """Require a valid board and somebody to tag."""
        super().check(need)
        need(self.num_agents >= 2, "world.num-agents", self.num_agents, "tag takes two or more")
        self.check_finite(need, "free_reward")

    def bare(self, states: Any) -> np.ndarray:
        """int [T, C]: codes of the cells without the agents; the cell of the one that is it stays marked."""
        not_it = len(self.cells()) - 1
        return np.where(states.board == not_it, 0, states.board)


@dataclass(frozen=True)
class Config(settings.Config):
    """Several IQN agents play tag on one board."""

    name: ClassVar[str] = "tag"
    world: WorldConfig = field(default_factory=WorldConfig)
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(batch_size=64, epsilon=0.7, epsilon_decay=0.0001)
    )


DEFAULT = Config()  # the example in sorrel 1.6.0
PRESETS = {
    "default": DEFAULT,
    "sorrel": DEFAULT,
    # Exploration that ends, and a memory of more than a few epochs: agents learn to run within minutes.
    "demo": replace(DEFAULT, learner=replace(DEFAULT.learner, memory=4096, epsilon_decay=0.005), epochs=1000),
}
ABOUT = {
    "default": "the example in sorrel 1.6.0: five agents on 11 × 11 cells",
    "sorrel": "the example in sorrel 1.6.0",
    "demo": "learns to run within minutes: a longer memory, exploration that ends",
}
"""What each preset is."""
