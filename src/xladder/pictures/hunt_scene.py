"""An epoch of the treasure hunt as a scene that a page can replay.

Shapes: T turns, N agents, C cells of the flat board with its margin, V cells in a view, A actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.pictures.scenes import Board, data_uri, pack
from xladder.pictures.sprites import (
    AGENT_COLOURS,
    GROUND,
    agent_sprite,
    figure_sprite,
    item_sprite,
    wall_sprite,
)
from xladder.worlds.treasurehunt_host import FIRST_ITEM

if TYPE_CHECKING:
    from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

TILE = 72  # pixels of a sprite: sharp on a screen with two pixels per point
ACTIONS = ["up", "down", "left", "right"]
OTHER = "#8C959F"  # an agent in a view, where it has no number


def make_board(
    world: WorldConfig,
    title: str,
    boards: np.ndarray,
    positions: np.ndarray,
    starts: np.ndarray,
    views: np.ndarray,
    values: np.ndarray,
    actions: np.ndarray,
    rewards: np.ndarray,
) -> Board:
    """Make the scene.

    Args:
        world: the world's settings.
        title: title of the scene.
        boards: int8 [T, C], the board at the end of each turn.
        positions: int [T, N], the cell of each agent then, an index into the flat board.
        starts: int [N], the same before the first turn.
        views: int8 [T, N, V], what each agent saw when it chose.
        values: float [T, N, A], the values of its actions then.
        actions: int [T, N].
        rewards: float [T, N].
    """
    margin, stride = world.radius, world.width + 2 * world.radius
    cells = boards.reshape(len(boards), -1, stride)
    cells = cells[:, margin : margin + world.height, margin : margin + world.width]
    places = np.stack(np.divmod(np.concatenate([starts[None], positions]), stride), axis=-1) - margin
    agent_code = FIRST_ITEM + len(world.item_names)
    items = [item_sprite(TILE, name, i) for i, name in enumerate(world.item_names)]
    # In the order of the codes: wall, items, and an agent as others see it; then the agents themselves.
    sprites = [wall_sprite(TILE), *items, figure_sprite(TILE, OTHER)]
    sprites += [agent_sprite(TILE, i) for i in range(world.num_agents)]
    side = 2 * world.radius + 1
    return {
        "kind": "board",
        "title": title,
        "ground": list(GROUND),
        "sprites": [data_uri(sprite) for sprite in sprites],
        "cells": pack(np.where(cells == agent_code, 0, cells).astype(np.uint8)),
        "actors": [
            {"name": f"agent {i + 1}", "colour": AGENT_COLOURS[i % len(AGENT_COLOURS)], "sprite": agent_code + i}
            for i in range(world.num_agents)
        ],
        "positions": pack(places.astype(np.int16)),
        "actions": pack(actions.astype(np.uint8)),
        "action_names": ACTIONS,
        "rewards": pack(rewards.astype(np.float32)),
        "values": pack(values.astype(np.float32)),
        "views": pack(views.reshape(*views.shape[:2], side, side).astype(np.uint8)),
        "legend": [
            {"name": name, "sprite": FIRST_ITEM - 1 + i, "value": float(value)}
            for i, (name, value) in enumerate(zip(world.item_names, world.item_values, strict=True))
        ],
    }
