"""Iowa as a workload: its settings, their checks, and the presets. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from xladder.families.multi_agent import config as settings
from xladder.families.multi_agent.board_settings import BoardSettings
from xladder.families.multi_agent.config import LearnerConfig, Need
from xladder.worlds.entities import Cell

if TYPE_CHECKING:
    from xladder.worlds.iowa import Iowa
    from xladder.worlds.iowa_host import HostIowa

MOST_DECKS = 40  # three codes each


@dataclass(frozen=True)
class WorldConfig(BoardSettings):
    """The board and its decks."""

    height: int = 20
    """Rows of the board, including the wall."""
    width: int = 20
    """Columns of the board, including the wall."""
    num_agents: int = 2
    """Number of agents; each has its own network and replay memory."""
    max_turns: int = 100
    """Turns per epoch."""
    spawn_prob: float = 0.01
    """Probability that a deck appears in an empty cell at the start of a turn."""
    deck_names: tuple[str, ...] = ("deck_a", "deck_b", "deck_c", "deck_d")
    """Names of the decks; all are equally likely."""
    deck_gains: tuple[float, ...] = (1.1, 1.1, 0.6, 0.6)
    """Reward for a card, in the order of `deck_names`."""
    deck_losses: tuple[float, ...] = (2.5, 12.5, 0.5, 2.5)
    """What is taken off when a card loses."""
    loss_probs: tuple[float, ...] = (0.5, 0.1, 0.5, 0.1)
    """How often a card loses."""
    wall_value: float = -1.0
    """Reward for walking into the wall."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the counted events: a card from each deck."""
        return self.deck_names

    @property
    def events_title(self) -> str:
        """What they are together."""
        return "cards taken"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entity that agents tell apart."""
        return ("wall", "sand", *self.deck_names, "agent")

    def cells(self) -> tuple[Cell, ...]:
        """What every code stands for."""
        decks = []
        for name, gain, loss in zip(self.deck_names, self.deck_gains, self.deck_losses, strict=True):
            for outcome, value in (("new", 0.0), ("gain", gain), ("loss", gain - loss)):
                decks.append(Cell(f"{name} {outcome}", ("sand", name), value, passable=True))
        return (
            Cell("nothing"),
            Cell("empty", ("sand",), passable=True),
            Cell("wall", ("wall", "wall"), self.wall_value),
            Cell("outside", ("wall",)),
            *decks,
            Cell("agent", ("sand", "agent")),
        )

    def build(self) -> Iowa:
        """The board in JAX."""
        from xladder.worlds.iowa import Iowa

        return Iowa(self)

    def on_host(self) -> HostIowa:
        """The board in NumPy."""
        from xladder.worlds.iowa_host import HostIowa

        return HostIowa(self)

    def check(self, need: Need) -> None:
        """Require a valid board and distinct decks."""
        super().check(need)
        self.check_names(need, "deck_names", "deck", MOST_DECKS, "wall", "sand", "agent")
        self.check_as_many(need, "deck_names", "deck_gains", "deck_losses", "loss_probs")
        self.check_chances(need, "spawn_prob", "loss_probs")
        self.check_finite(need, "deck_gains", "deck_losses", "wall_value")

    def bare(self, states: Any) -> np.ndarray:
        """int [T, C]: codes of the cells without the agents."""
        names = [cell.name for cell in self.cells()]
        return np.where(states.board == names.index("agent"), names.index("empty"), states.board)

    def legend(self) -> tuple[Cell, ...]:
        """The decks, with the mean value of a card."""
        decks = zip(self.deck_names, self.deck_gains, self.deck_losses, self.loss_probs, strict=True)
        return tuple(Cell(name, ("sand", name), gain - chance * loss) for name, gain, loss, chance in decks)


@dataclass(frozen=True)
class Config(settings.Config):
    """Several IQN agents gamble on one board."""

    name: ClassVar[str] = "iowa"
    world: WorldConfig = field(default_factory=WorldConfig)
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(lr=1e-3, batch_size=64, epsilon=0.5, epsilon_decay=0.0005)
    )
    epochs: int = 5000
    """Training length in epochs."""


DEFAULT = Config()  # the example in sorrel 1.6.0
PRESETS = {
    "default": DEFAULT,
    "sorrel": DEFAULT,
    # Smaller steps, larger batches and more decks in reach: agents learn visibly within minutes.
    "demo": replace(
        DEFAULT,
        world=replace(DEFAULT.world, height=11, width=11, spawn_prob=0.03),
        learner=replace(DEFAULT.learner, lr=2.5e-4, batch_size=256, memory=4096, epsilon_decay=0.005),
        epochs=1000,
    ),
}
ABOUT = {
    "default": "the example in sorrel 1.6.0: two agents on 20 × 20 cells",
    "sorrel": "the example in sorrel 1.6.0",
    "demo": "learns within minutes: 11 × 11 cells with more decks, larger batches",
}
"""What each preset is."""
