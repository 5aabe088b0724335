"""The pictures of a treasure hunt: its curves' panels, and a replay of one epoch played by trained agents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.mapping import pick
from xladder.families.multi_agent.evaluation import episode
from xladder.pictures.curves import Panel, hunt_panels
from xladder.pictures.replay_gif import write_gif
from xladder.rungs.running import compiled

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config
    from xladder.results import Result


def panels(config: Config) -> tuple[Panel, ...]:
    """What the curves show."""
    return hunt_panels(config.world.item_names)


def references(score: Mapping[str, Any] | None) -> dict[str, float]:
    """Lines across the curves."""
    return {"random play": score["random_return"]} if score else {}


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Write a GIF of a greedy epoch of the best seed's agents, if the run was scored. Returns what was drawn."""
    if score is None:
        return {}
    best = int(np.nanargmax(np.nanmean(result.metrics["return"][:, -50:], axis=1)))
    played: Any = episode(result.config, pick(result.params, best), 0, compiled)
    path = folder / "replay.gif"
    write_gif(path, played.boards, played.rows.rewards, result.config.world, played.positions, title)
    return {"replay": path}
