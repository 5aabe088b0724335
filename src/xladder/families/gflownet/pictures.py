"""Pictures of a GFlowNet: the learned distribution next to the target over time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.gflownet.evaluation import distribution, draw_objects, log_target, target_picture
from xladder.pictures.distributions import draw_distributions, draw_scatter, write_animation
from xladder.pictures.objects import draw_objects as draw_images
from xladder.pictures.scenes import MOST_MAPS, make_maps, pack

if TYPE_CHECKING:
    from xladder.pictures.scenes import Scene
    from xladder.results import Result

DRAWN = 16  # objects that are drawn


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Draw the first seed's sampler at every evaluation. Returns the files."""
    world, drawn = result.config.world.build(), {}
    target = target_picture(result.config, compiled)
    if result.snapshots and target is not None:
        last = result.snapshots[-1]
        drawn["sampled"] = folder / "distribution.png"
        caption = f"{world.chart_text} · {last.label}"
        draw_distributions(drawn["sampled"], target, last.picture, title, caption, world.chart_axes)
        drawn["movie"] = folder / "distribution.gif"
        frames = [(snapshot.tick, snapshot.picture, snapshot.label) for snapshot in result.snapshots]
        write_animation(drawn["movie"], target, frames, title, labels=world.chart_axes)
    known = world.enumeration() if result.config.exact else None
    if known is not None:
        drawn["scatter"] = folder / "scatter.png"
        log_p = distribution(result.config, pick(result.params, 0), compiled)
        objects = known.terminal
        log_rewards, log_z = log_target(result.config, compiled)
        draw_scatter(drawn["scatter"], log_rewards[objects], log_p[objects], log_z, title)
    if world.image(np.asarray(world.initial())) is not None:
        drawn["objects"] = folder / "objects.png"
        _draw_samples(result, drawn["objects"], title)
    return drawn


def _draw_samples(result: Result, path: Path, title: str) -> None:
    """Draw some objects that the first seed's sampler builds."""
    world = result.config.world.build()
    table = draw_objects(result.config, pick(result.params, 0), DRAWN, 0, compiled)
    states = np.stack([table[f"{world.state_name}_{d + 1}"] for d in range(world.state_size)], axis=1)
    images = np.stack([np.asarray(world.image(state)) for state in states])
    captions = [f"log R {value:.2f}" for value in table["log_reward"]]
    draw_images(path, images, captions, f"{title}: {DRAWN} samples of seed {result.seeds[0]}")


def scenes(result: Result) -> list[Scene]:
    """Target and learned distribution of the first seed at every evaluation; none if the target is not known."""
    config, world = result.config, result.config.world.build()
    target = target_picture(config, compiled)
    if not result.snapshots or target is None:
        return []
    every = np.linspace(0, len(result.snapshots) - 1, min(MOST_MAPS, len(result.snapshots))).round().astype(int)
    shown = [result.snapshots[i] for i in every]
    learned = make_maps(np.stack([np.asarray(one.picture, float) for one in shown]))
    unit = max(float(learned.max()), 1e-30) / 65535
    name = "tv" if config.exact else "tv_marginal"
    values = result.metrics.get(name, np.full((1, 0), np.nan))[0]
    distances = [float(values[one.tick - 1]) if 0 < one.tick <= len(values) else np.nan for one in shown]
    return [
        {
            "kind": "maps",
            "title": f"sampler of seed {result.seeds[0]}",
            "target": pack(make_maps(np.asarray(target, float)[None])[0].astype(np.float32)),
            "learned": pack(np.round(learned / unit).astype(np.uint16)),
            "unit": unit,
            "ticks": [one.tick for one in shown],
            "tick": result.plan.workload.tick,
            "distances": [value if np.isfinite(value) else None for value in distances],
            "distance": "exact" if config.exact else "of coordinates 1 and 2, from samples",
            "caption": world.chart_text,
        }
    ]
