"""A replay: one epoch of the trained agents, drawn by the world, as a GIF or for a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.multi_agent.config import Played
from xladder.families.multi_agent.evaluation import episode, episode_start, episode_values

if TYPE_CHECKING:
    from xladder.pictures.scenes import Scene
    from xladder.results import Result

EPISODES = 2  # that a page can replay


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Write a GIF of a greedy epoch of the best seed's agents, if the run was evaluated. Returns the files."""
    if score is None:
        return {}
    best = best_seed(result)
    played: Any = episode(result.config, pick(result.params, best), 0, compiled)
    path = folder / "replay.gif"
    result.config.world.draw(path, played.states, played.rows.rewards, title)
    return {"replay": path}


def scenes(result: Result) -> list[Scene]:
    """Greedy epochs of the best seed's agents, with what each saw and what it expected of its actions."""
    best, config = best_seed(result), result.config
    params, found = pick(result.params, best), []
    for number in range(EPISODES):
        played: Any = episode(config, params, 0, compiled, number)
        values = episode_values(config, params, 0, compiled, number, played)
        title = f"epoch {number + 1}, agents of seed {result.seeds[best]}, greedy"
        told = Played(played.rows.frames, values, played.rows.actions, played.rows.rewards)
        found.append(config.world.board(title, episode_start(config, 0, compiled, number), played.states, told))
    return found


def best_seed(result: Result) -> int:
    """The place of the seed with the highest return in the end; the first if there are no metrics."""
    returns = result.metrics.get("return")
    if returns is None or not np.isfinite(returns[:, -50:]).any():
        return 0
    measured = np.isfinite(returns[:, -50:])
    means = np.where(measured, returns[:, -50:], 0.0).sum(1) / np.maximum(measured.sum(1), 1)
    return int(np.argmax(np.where(measured.any(1), means, -np.inf)))
