"""Pictures of a GFlowNet: the panels of its curves, and the learned distribution next to the target over time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.gflownet.evaluation import distribution
from xladder.pictures.curves import Panel, flow_panels
from xladder.pictures.distributions import draw_distributions, draw_scatter, write_animation

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig
    from xladder.results import Result


def panels(config: GFlowNetConfig) -> tuple[Panel, ...]:
    """The panels of the learning curves."""
    return flow_panels(config.exact, config.world.charted)


def references(score: Mapping[str, Any] | None) -> dict[str, float]:
    """Reference lines for the curves."""
    return {"noise floor": score["tv_floor"]} if score and "tv_floor" in score else {}


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Draw the first seed's sampler at every evaluation. Returns the files."""
    world, drawn = result.config.world.build(), {}
    target = world.target_picture(result.config.exact)
    if result.snapshots and target is not None:
        last = result.snapshots[-1]
        shown = "all cells" if world.state_size <= 2 else "marginal of coordinates 1 and 2"
        drawn["sampled"] = folder / "distribution.png"
        draw_distributions(drawn["sampled"], target, last.picture, title, f"{shown} · {last.label}")
        drawn["movie"] = folder / "distribution.gif"
        frames = [(snapshot.tick, snapshot.picture, snapshot.label) for snapshot in result.snapshots]
        write_animation(drawn["movie"], target, frames, title)
    known = world.enumeration() if result.config.exact else None
    if known is not None:
        drawn["scatter"] = folder / "scatter.png"
        log_p = distribution(result.config, pick(result.params, 0), compiled)
        objects = known.terminal
        draw_scatter(drawn["scatter"], known.log_rewards[objects], log_p[objects], world.log_z(), title)
    return drawn
