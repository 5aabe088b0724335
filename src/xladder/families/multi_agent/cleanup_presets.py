"""Cleanup as a workload: its settings, their checks, and the presets. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from xladder.core.encoding import Block, Encoding
from xladder.families.multi_agent import config as settings
from xladder.families.multi_agent.board_settings import MOST_CODES, BoardSettings
from xladder.families.multi_agent.config import LearnerConfig, Need
from xladder.worlds.entities import Cell

if TYPE_CHECKING:
    from xladder.worlds.cleanup import Cleanup
    from xladder.worlds.cleanup_host import HostCleanup


@dataclass(frozen=True)
class WorldConfig(BoardSettings):
    """The board and its rules."""

    action_names: ClassVar[tuple[str, ...]] = ("up", "down", "left", "right", "clean", "zap")

    height: int = 21
    """Rows of the board, including the wall."""
    width: int = 31
    """Columns of the board, including the wall."""
    num_agents: int = 10
    """Number of agents; each has its own network and replay memory."""
    radius: int = 5
    """View radius: an agent sees (2·radius + 1)² cells."""
    max_turns: int = 100
    """Turns per epoch."""
    mode: Literal["default", "apple"] = "default"
    """default: river above, orchard below, sand between. apple: an orchard everywhere."""
    pollution_threshold: float = 0.5
    """Share of the river that may be polluted; above it no apples grow."""
    pollution_prob: float = 0.009
    """Probability that a cell of clean river becomes polluted at the start of a turn."""
    apple_prob: float = 0.002
    """Probability that a tree bears an apple at the start of a turn."""
    initial_apples: int = 20
    """Apples at the start of an epoch."""
    apple_value: float = 1.0
    """Reward for an apple."""
    zap_value: float = -1.0
    """Reward for moving towards, or firing from, a cell with a zapping beam."""
    beam_radius: int = 3
    """Length of a beam."""
    embedding: int = 3
    """Frequencies by which an agent is told its row and its column: a sine and a cosine of each."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the counted events."""
        return ("apples", "zapped", "clean", "zap")

    @property
    def events_title(self) -> str:
        """What they are together."""
        return "apples and beams"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entity that agents tell apart."""
        return ("wall", "river", "pollution", "tree", "apple", "clean", "zap", "agent")

    def cells(self) -> tuple[Cell, ...]:
        """What every code stands for: beam, then agent, then ground, the last of which changes first."""
        grounds = ((), ("river",), ("pollution",), ("tree",), ("apple",), ("wall",) * 3, ("wall",))
        beams = ((), ("clean",), ("clean",), ("zap",), ("zap",))
        stacks = [
            ground if "wall" in ground else ground + agent + beam  # nothing else is ever there
            for beam in beams
            for agent in ((), ("agent",))
            for ground in grounds
        ]
        return tuple(Cell(" ".join(dict.fromkeys(kinds)), kinds) for kinds in stacks)

    @property
    def margin(self) -> int:
        """Cells of the flat board beyond the map on each side: beams may reach beyond it as well as views."""
        return max(self.radius, self.beam_radius)

    def encoding(self) -> Encoding:
        """The cells, then the row and the column of the agent."""
        return Encoding((self.picture(), Block(1, self._waves(self.height)), Block(1, self._waves(self.width))))

    def _waves(self, size: int) -> tuple[tuple[float, ...], ...]:
        """Sines and cosines for every place along a side; none for the first, which is wall."""
        places = np.arange(size)[:, None] * (2 * np.pi * 2.0 ** np.arange(self.embedding) / size)
        waves = np.stack([np.sin(places), np.cos(places)], axis=-1).reshape(size, -1)
        waves[0] = 0.0
        return tuple(tuple(float(x) for x in row) for row in waves)

    def most_pollution(self, river: int) -> int:
        """How many of `river` cells may be polluted while apples still grow."""
        return max((n for n in range(river + 1) if n / max(river, 1) <= self.pollution_threshold), default=-1)

    def build(self) -> Cleanup:
        """The board in JAX."""
        from xladder.worlds.cleanup import Cleanup

        return Cleanup(self)

    def on_host(self) -> HostCleanup:
        """The board in NumPy."""
        from xladder.worlds.cleanup_host import HostCleanup

        return HostCleanup(self)

    def check(self, need: Need) -> None:
        """Require a valid board with room for agents and apples."""
        super().check(need)
        for flag, size in [("world.height", self.height), ("world.width", self.width)]:
            need(size <= MOST_CODES, flag, size, f"it has to be {MOST_CODES} or less")
        self.check_chances(need, "pollution_threshold", "pollution_prob", "apple_prob")
        for flag, count in [("world.beam-radius", self.beam_radius), ("world.embedding", self.embedding)]:
            need(1 <= count <= MOST_CODES, flag, count, f"it has to be 1 to {MOST_CODES}")
        self.check_finite(need, "apple_value", "zap_value")
        spawns, trees = self._room()
        need(
            self.num_agents <= spawns,
            "world.num-agents",
            self.num_agents,
            f"a {self.height} × {self.width} board has {spawns} cells on which agents may start",
        )
        need(
            0 <= self.initial_apples <= trees,
            "world.initial-apples",
            self.initial_apples,
            f"a {self.height} × {self.width} board has {trees} trees, so it has to lie in 0 … {trees}",
        )

    def _room(self) -> tuple[int, int]:
        """Cells on which agents may start, and trees that may bear the first apples."""
        if self.mode == "apple":
            spawns = ((self.height - 2) // 2) * ((self.width - 2) // 2)  # of even row and column
            return spawns, (self.height - 2) * (self.width - 2) - spawns
        third, stem = self.height // 3, self.width // 3
        rows = range(1, self.height - 1)
        inside = [column for column in range(1, self.width - 1) if column in (stem, stem + 1)]
        trees = sum(row > self.height - 1 - third for row in rows if row >= third) * (self.width - 2)
        sand = [row for row in rows if third <= row <= self.height - 1 - third]
        return len(sand) * (self.width - 2) - sum(row < 2 * third - 1 for row in sand) * len(inside), trees

    def bare(self, states: Any) -> np.ndarray:
        """int [T, C]: codes of the cells without the agents."""
        return states.ground + 14 * states.beams

    def legend(self) -> tuple[Cell, ...]:
        """What pays and what costs."""
        return (Cell("apple", ("apple",), self.apple_value), Cell("zap", ("zap",), self.zap_value))


@dataclass(frozen=True)
class Config(settings.Config):
    """Several IQN agents share an orchard and a river."""

    name: ClassVar[str] = "cleanup"
    world: WorldConfig = field(default_factory=WorldConfig)
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(batch_size=64, epsilon=0.8, epsilon_decay=0.0001)
    )
    epochs: int = 5000
    """Training length in epochs."""


DEFAULT = Config()  # the example in sorrel 1.6.0
PRESETS = {
    "default": DEFAULT,
    "sorrel": DEFAULT,
    # Fewer agents on a smaller board where apples grow faster, and exploration that ends.
    "demo": replace(
        DEFAULT,
        world=replace(DEFAULT.world, height=15, width=15, num_agents=4, radius=3, apple_prob=0.02, initial_apples=10),
        learner=replace(DEFAULT.learner, batch_size=128, memory=4096, epsilon=1.0, epsilon_decay=0.005),
        epochs=1000,
    ),
}
ABOUT = {
    "default": "the example in sorrel 1.6.0: ten agents on 21 × 31 cells",
    "sorrel": "the example in sorrel 1.6.0",
    "demo": "learns within minutes: four agents on 15 × 15 cells, more apples",
}
"""What each preset is."""
