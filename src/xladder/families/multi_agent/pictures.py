"""A replay: one epoch of the trained agents, drawn by the world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.multi_agent.evaluation import episode

if TYPE_CHECKING:
    from xladder.results import Result


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Write a GIF of a greedy epoch of the best seed's agents, if the run was evaluated. Returns the files."""
    if score is None:
        return {}
    best = int(np.nanargmax(np.nanmean(result.metrics["return"][:, -50:], axis=1)))
    played: Any = episode(result.config, pick(result.params, best), 0, compiled)
    path = folder / "replay.gif"
    result.config.world.draw(path, played.states, played.rows.rewards, title)
    return {"replay": path}
