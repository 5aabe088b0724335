"""Pictures of a GFlowNet: the learned distribution next to the target over time, of the median and the worst seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.gflownet.evaluation import distribution, draw_states, log_target, target_picture
from xladder.families.gflownet.summaries import last_values, ranked_by
from xladder.pictures.distributions import Other, draw_distributions, draw_scatter, write_animation
from xladder.pictures.objects import draw_objects as draw_images
from xladder.pictures.scenes import MOST_MAPS, make_maps, pack

if TYPE_CHECKING:
    from xladder.pictures.scenes import Scene
    from xladder.results import Result, Snapshot

DRAWN = 16  # objects that are drawn
SCATTERS = (("scatter", "scatter.png"), ("worst", "scatter_worst.png"))
APART = 0.02  # in total variation: two seeds that differ by less agree


class Shown(NamedTuple):
    """A seed that pictures show."""

    seed: int
    words: str
    """Which of the seeds it is, such as "seed 3, the median of 8"."""


def choose_seeds(result: Result) -> list[Shown]:
    """The median seed by its last evaluation, and the worst one if it is far from that."""
    config, name = result.config, ranked_by(result.config)
    pictured = {seed for seed in result.seeds if result.snapshots_of(seed)} or set(result.seeds)
    known = result.metrics.get(name, np.full((len(result.seeds), 0), np.nan))
    errors = last_values(known) if name != "correlation" else -last_values(known)
    pairs = zip(errors.tolist(), result.seeds, strict=False)
    ranked = sorted((error, seed) for error, seed in pairs if np.isfinite(error) and seed in pictured)
    if len(result.seeds) == 1 or not ranked:
        return [Shown(result.seeds[0], f"seed {result.seeds[0]}")]
    of = f"{len(ranked)}" + (f" pictured, of {len(result.seeds)}" * (len(ranked) < len(result.seeds)))
    error, seed = ranked[(len(ranked) - 1) // 2]
    worst, other = ranked[-1]
    chosen = [Shown(seed, f"seed {seed}, {'the median' if len(ranked) > 2 else 'the better'} of {of}")]
    missed = {one.seed: one.missed for one in config.family.collapsed(config, result.metrics, result.seeds)}
    if worst - error > max(APART, abs(error)) or missed.get(other, 0) > missed.get(seed, 0):
        chosen.append(Shown(other, f"seed {other}, the worst of {of}"))
    return chosen


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Draw the median seed's sampler at every evaluation, and the worst one's if seeds disagree. Returns the files."""
    world, drawn, chosen = result.config.world.build(), {}, choose_seeds(result)
    target = target_picture(result.config, compiled)
    taken = [result.snapshots_of(one.seed) for one in chosen]
    if all(taken) and target is not None:
        captions = [_caption(result, target, one, shots[-1]) for one, shots in zip(chosen, taken, strict=True)]
        beside = Other(taken[1][-1].picture, chosen[1].words, captions[1]) if len(taken) > 1 else None
        caption = f"{world.chart_text} · {captions[0]}"
        drawn["sampled"] = folder / "distribution.png"
        draw_distributions(
            drawn["sampled"],
            target,
            taken[0][-1].picture,
            title,
            caption,
            world.chart_axes,
            chosen[0].words,
            beside,
        )
        drawn["movie"] = folder / "distribution.gif"
        frames = [(one.tick, one.picture, _frame_label(result, one)) for one in taken[0]]
        others = [(one.picture, _frame_label(result, one)) for one in taken[1]] if len(taken) > 1 else None
        write_animation(
            drawn["movie"],
            target,
            frames,
            title,
            labels=world.chart_axes,
            names=[one.words for one in chosen],
            others=others,
        )
    known = world.enumeration() if result.config.exact else None
    if known is not None:
        log_rewards, log_z = log_target(result.config, compiled)
        for one, (name, file) in zip(chosen, SCATTERS, strict=False):
            drawn[name] = folder / file
            log_p = distribution(result.config, pick(result.params, result.seeds.index(one.seed)), compiled)
            objects = known.terminal
            draw_scatter(drawn[name], log_rewards[objects], log_p[objects], log_z, title, f"Of {one.words}. ")
    if world.image(np.asarray(world.initial())) is not None:
        drawn["objects"] = folder / "objects.png"
        _draw_samples(result, chosen[0], drawn["objects"], title)
    return drawn


def _draw_samples(result: Result, one: Shown, path: Path, title: str) -> None:
    """Draw some objects that a seed's sampler builds."""
    world = result.config.world.build()
    params = pick(result.params, result.seeds.index(one.seed))
    states, log_rewards = draw_states(result.config, params, DRAWN, 0, compiled)
    images = np.stack([np.asarray(world.image(state)) for state in states])
    captions = [f"log R {value:.2f}" for value in log_rewards]
    draw_images(path, images, captions, title, f"{DRAWN} samples of {one.words}")


def _caption(result: Result, target: np.ndarray, one: Shown, last: Snapshot) -> str:
    """Which seed it is, how far it is from the target, and over what that is measured."""
    config, world = result.config, result.config.world
    collapsed = config.family.collapsed(config, result.metrics, result.seeds)
    missing = next((f"; misses {each.which}" for each in collapsed if each.seed == one.seed), "")
    if not config.exact or not _is_distribution(target):
        return f"{one.words}: {last.label}{missing}"
    whole = f"{last.label} over all {world.size_in_words()}"
    if target.size == config.world.build().enumeration().terminal.sum():
        return f"{one.words}: {whole}{missing}"
    own = np.abs(np.asarray(last.picture, float) - target).sum() / 2
    return f"{one.words}: TV {own:.3f} of what is shown, {whole}{missing}"


def _frame_label(result: Result, one: Snapshot) -> str:
    """The label of a frame, which says over what it is measured where that is not what is shown."""
    config = result.config
    if config.exact and config.world.state_size > 2:
        return f"{one.label} over all {config.world.size_in_words()}"
    return one.label


def _is_distribution(target: np.ndarray) -> bool:
    return bool(np.isclose(target.sum(), 1.0, atol=1e-3))


def scenes(result: Result) -> list[Scene]:
    """Target and learned distribution at every evaluation, as `draw` chooses seeds; none if the target is not known."""
    target = target_picture(result.config, compiled)
    if target is None:
        return []
    return [_scene(result, target, one) for one in choose_seeds(result) if result.snapshots_of(one.seed)]


def _scene(result: Result, target: np.ndarray, one: Shown) -> Scene:
    config, snapshots = result.config, result.snapshots_of(one.seed)
    every = np.linspace(0, len(snapshots) - 1, min(MOST_MAPS, len(snapshots))).round().astype(int)
    shown = [snapshots[i] for i in every]
    learned = make_maps(np.stack([np.asarray(each.picture, float) for each in shown]))
    unit = max(float(learned.max()), 1e-30) / 65535
    name = "tv" if config.exact else "tv_marginal"
    rows = result.metrics.get(name, np.full((len(result.seeds), 0), np.nan))
    values = rows[min(result.seeds.index(one.seed), len(rows) - 1)]
    distances = [float(values[each.tick - 1]) if 0 < each.tick <= len(values) else np.nan for each in shown]
    return {
        "kind": "maps",
        "title": f"sampler of {one.words}",
        "target": pack(make_maps(np.asarray(target, float)[None])[0].astype(np.float32)),
        "learned": pack(np.round(learned / unit).astype(np.uint16)),
        "unit": unit,
        "ticks": [each.tick for each in shown],
        "tick": result.plan.workload.tick,
        "distances": [value if np.isfinite(value) else None for value in distances],
        "distance": f"over all {config.world.size_in_words()}" if config.exact else "of what is shown, from samples",
        "caption": config.world.build().chart_text,
    }
