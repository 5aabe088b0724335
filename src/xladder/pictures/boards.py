"""An epoch on a board: what is drawn of it, and as a scene that a page can replay.

Shapes: T turns, N agents, H rows, W columns, V cells in a view's picture, A actions.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from xladder.pictures.scenes import Board, data_uri, pack
from xladder.pictures.sprites import AGENT_COLOURS, GROUND, agent_sprite
from xladder.pictures.tiles import tile, visible
from xladder.worlds.entities import Cell

TILE = 72  # pixels of a sprite: sharp on a screen with two pixels per point


class Replay(NamedTuple):
    """What is drawn of an epoch."""

    codes: np.ndarray  # int [T, H, W]: the board at the end of each turn, without the agents
    places: np.ndarray  # int [T, N, 2]: row and column of each agent then
    cells: tuple[Cell, ...]
    """What the codes stand for."""
    kinds: tuple[str, ...]
    """All kinds of entity."""
    legend: tuple[Cell, ...]
    """What is explained next to the board."""
    action_names: tuple[str, ...]
    full_view: bool

    def sprite(self, size: int, cell: Cell) -> Image.Image:
        """What lies on a cell."""
        return tile(size, cell.kinds, self.kinds)


class Epoch(Protocol):
    """What the agents saw, expected, did and received."""

    @property
    def views(self) -> np.ndarray:
        """int8 [T, N, V]: codes."""

    @property
    def values(self) -> np.ndarray:
        """float32 [T, N, A]: of each action."""

    @property
    def actions(self) -> np.ndarray:
        """int [T, N]."""

    @property
    def rewards(self) -> np.ndarray:
        """float32 [T, N]."""


def make_scene(title: str, replay: Replay, starts: np.ndarray, played: Epoch, view_shape: tuple[int, int]) -> Board:
    """Make the scene.

    Args:
        title: title of the scene.
        replay: the epoch as it is drawn.
        starts: int [N, 2], row and column of each agent before the first turn.
        played: what the agents saw, expected, did and received.
        view_shape: rows and columns of a view.
    """
    views = played.views
    shown = list(dict.fromkeys(cell.kinds for cell in replay.cells if visible(cell.kinds)))  # codes may look alike
    numbers = np.array([1 + shown.index(cell.kinds) if cell.kinds in shown else 0 for cell in replay.cells], np.uint8)
    agents = len(starts)
    sprites = [tile(TILE, kinds, replay.kinds) for kinds in shown] + [agent_sprite(TILE, i) for i in range(agents)]
    return {
        "kind": "board",
        "title": title,
        "ground": list(GROUND),
        "sprites": [data_uri(sprite) for sprite in sprites],
        "cells": pack(numbers[replay.codes]),
        "actors": [
            {"name": f"agent {i + 1}", "colour": AGENT_COLOURS[i % len(AGENT_COLOURS)], "sprite": len(shown) + i}
            for i in range(agents)
        ],
        "positions": pack(np.concatenate([starts[None], replay.places]).astype(np.int16)),
        "actions": pack(played.actions.astype(np.uint8)),
        "action_names": list(replay.action_names),
        "rewards": pack(played.rewards.astype(np.float32)),
        "values": pack(played.values.astype(np.float32)),
        "views": pack(numbers[views].reshape(*views.shape[:2], *view_shape)),
        "whole": replay.full_view,
        "legend": [{"name": c.name, "sprite": shown.index(c.kinds), "value": float(c.value)} for c in replay.legend],
    }
