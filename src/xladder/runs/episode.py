"""A replay of one treasure hunt, played by trained agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladder.core.evaluation import episode, pick
from xladder.core.types import Params
from xladder.runs.replay_gif import write_gif

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import Config


def draw_episode(config: Config, params: Params, seed: int, path: Path, title: str) -> None:
    """Write a GIF of a greedy epoch of the agents of one seed; `params` has leaves [S, N, …]."""
    played: Any = episode(config, pick(params, seed))
    write_gif(path, played.boards, played.rows.rewards, config.world, played.positions, title)
