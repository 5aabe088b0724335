"""Settings that all worlds on a walled board share: size, agents, view; how they are encoded, checked and drawn.

Shapes: T turns, N agents, C cells of a flat board with its margin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from xladder.core.encoding import Block, Encoding
from xladder.families.multi_agent.config import RESERVED, Need, Played
from xladder.worlds.entities import Cell, View, looks

if TYPE_CHECKING:
    from xladder.pictures.boards import Replay
    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Board

MOST_CODES = 127  # an int8


@dataclass(frozen=True)
class BoardSettings(ABC):
    """A board with a wall round it, and the agents on it."""

    jittable: ClassVar[bool] = True
    action_names: ClassVar[tuple[str, ...]] = ("up", "down", "left", "right")

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
    view: View = "onehot"
    """What a network is given for a cell. onehot: a channel per kind of entity. rgb: a colour per kind."""
    full_view: bool = False
    """Agents see the whole board instead of the cells around them."""
    observe: Literal["in_turn", "together"] = "in_turn"
    """in_turn: an agent sees earlier agents' moves of this turn. together: all observe, then all move in order."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """The kinds of entity that agents tell apart, without "empty", in the order of the channels."""

    @property
    @abstractmethod
    def event_names(self) -> tuple[str, ...]:
        """Metrics columns for the events that the world counts."""

    @abstractmethod
    def cells(self) -> tuple[Cell, ...]:
        """What every code of a view's picture stands for."""

    @property
    @abstractmethod
    def events_title(self) -> str:
        """What the counted events are together, for the title of a chart."""

    @property
    def margin(self) -> int:
        """Cells of the flat board beyond the map on each side."""
        return self.radius

    @property
    def view_shape(self) -> tuple[int, int]:
        """Rows and columns that an agent sees."""
        side = 2 * self.radius + 1
        return (self.height, self.width) if self.full_view else (side, side)

    def encoding(self) -> Encoding:
        """How a view becomes the inputs of a network."""
        return Encoding((self.picture(),))

    def picture(self) -> Block:
        """The part of a view that is a picture of the board."""
        rows, columns = self.view_shape
        return Block(rows * columns, looks([cell.kinds for cell in self.cells()], self.kinds, self.view))

    def check(self, need: Need) -> None:
        """Require a board with room for its agents."""
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

    def check_chances(self, need: Need, *names: str) -> None:
        """Require the settings of these names, numbers or tuples of them, to be probabilities."""
        for name in names:
            for value in np.ravel(getattr(self, name)).tolist():
                need(0.0 <= value <= 1.0, _flag(name), value, "it has to lie in [0, 1]")

    def check_finite(self, need: Need, *names: str) -> None:
        """Require the settings of these names, numbers or tuples of them, to be finite."""
        for name in names:
            for value in np.ravel(getattr(self, name)).tolist():
                need(abs(value) < float("inf"), _flag(name), value, "it has to be finite")

    def check_as_many(self, need: Need, of: str, *names: str) -> None:
        """Require the settings of these names to be as long as that of another."""
        count = len(getattr(self, of))
        for name in names:
            values = getattr(self, name)
            need(len(values) == count, _flag(name), values, f"there have to be as many as `--{_flag(of)}` ({count})")

    def check_names(self, need: Need, field: str, noun: str, most: int, *taken: str) -> None:
        """Require the names in a setting to be distinct words that are not columns of the metrics or other kinds."""
        names = getattr(self, field)
        need(1 <= len(names) <= most, _flag(field), names, f"there have to be 1 to {most} {noun}s")
        for name in names:
            free = name.isidentifier() and not name.startswith((*RESERVED, *taken))
            article = "an" if noun[0] in "aeiou" else "a"
            need(free, _flag(field), name, f"{article} {noun}'s name is a word, and not one of the metrics' own")
        need(len(set(names)) == len(names), _flag(field), names, f"every {noun} needs its own name")

    def panels(self) -> tuple[Panel, ...]:
        """The panels of the learning curves."""
        from xladder.pictures.curves import board_panels

        return board_panels(self.event_names, self.events_title)

    @abstractmethod
    def bare(self, states: Any) -> np.ndarray:
        """int [T, C]: codes of the cells at the end of each turn, without the agents."""

    def draw(self, path: Path, states: Any, rewards: np.ndarray, title: str) -> None:
        """Write an epoch as an animation: its states, leaves [T, …], and rewards, [T, N]."""
        from xladder.pictures.replay_gif import write_gif

        write_gif(path, self.replay(states), rewards, title)

    def board(self, title: str, start: Any, states: Any, played: Played) -> Board:
        """An epoch as a board that a page can replay."""
        from xladder.pictures.boards import make_scene

        starts = np.stack(np.divmod(start.positions, self.width + 2 * self.margin), axis=-1) - self.margin
        rows, columns = self.view_shape
        views = played.views[..., : rows * columns]
        return make_scene(title, self.replay(states), starts, played._replace(views=views), self.view_shape)

    def replay(self, states: Any) -> Replay:
        """What is drawn of an epoch."""
        from xladder.pictures.boards import Replay

        stride, m = self.width + 2 * self.margin, self.margin
        codes = self.bare(states).reshape(-1, self.height + 2 * m, stride)
        return Replay(
            codes=codes[:, m : m + self.height, m : m + self.width],
            places=np.stack(np.divmod(states.positions, stride), axis=-1) - m,
            cells=self.cells(),
            kinds=self.kinds,
            legend=self.legend(),
            action_names=self.action_names,
            full_view=self.full_view,
        )

    def legend(self) -> tuple[Cell, ...]:
        """The cells that are explained next to a replay: those that may be entered for a reward."""
        return tuple(cell for cell in self.cells() if cell.passable and cell.value)


def _flag(name: str) -> str:
    return f"world.{name.replace('_', '-')}"
