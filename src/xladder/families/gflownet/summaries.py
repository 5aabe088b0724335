"""How a GFlowNet run went, in sentences: every seed by itself where there are few, and which seeds miss modes.

A mean over seeds hides a collapsed one: three samplers at 0.01 and one at 0.5 are 0.13 on average, which none of them
is. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from xladder.families.gflownet import conditions
from xladder.families.gflownet.conditions import Condition
from xladder.families.gflownet.config import GFlowNetConfig
from xladder.worlds.flow_conditioned import ConditionedSettings, format_condition
from xladder.worlds.flow_settings import FlowSettings

FEW = 4  # with fewer seeds than this, each is listed
LARGE = 1e6  # from which on numbers are written with an exponent
MOST_NAMED = 8  # seeds that miss modes, one line each
MARGINAL = "total variation of coordinates 1 and 2"
DISTANCES = {"tv": "total variation", "tv_marginal": MARGINAL}  # columns, the better one first


class Collapse(NamedTuple):
    """A seed whose sampler gives some modes less than half of their probability."""

    seed: int
    missed: int
    """How many modes it misses,"""
    modes: int
    """of how many."""
    distance: float
    """Its total variation from the target, or that of the first two coordinates if it was sampled."""
    measure: str = DISTANCES["tv"]
    condition: Condition | None = None
    """Under which condition, if the sampler has one."""

    def __str__(self) -> str:
        where = "" if self.condition is None else f" at {format_condition(self.condition)}"
        return f"seed {self.seed} misses {self.which}{where}: {self.measure} {self.distance:.2f}"

    @property
    def which(self) -> str:
        """What it misses, in words."""
        return "the only mode" if self.modes == 1 else f"{self.missed} of {self.modes} modes"


def collapsed(score: Mapping[str, Any]) -> list[Collapse]:
    """The seeds that miss modes, the worst first, from an evaluation (see `name_seeds` for how they are called).

    With a condition: under each condition by itself, so that a seed may be named several times.
    """
    if "conditions" in score:
        named = {"seed_numbers": score.get("seed_numbers")}
        each = [(one["condition"], collapsed({**one, **named})) for one in score["conditions"]]
        return _worst_first([one._replace(condition=at) for at, found in each for one in found])
    measure = next((name for name in DISTANCES if f"{name}_per_seed" in score), None)
    total = score.get("num_modes")
    if not total or measure is None or "modes_per_seed" not in score:
        return []
    seeds = _seeds(score)
    rows = zip(seeds, score["modes_per_seed"], score[f"{measure}_per_seed"], strict=True)
    return _worst_first(
        [
            Collapse(seed, int(total - modes), total, distance, DISTANCES[measure])
            for seed, modes, distance in rows
            if modes is not None and modes == modes and modes < total
        ]
    )


def _worst_first(found: list[Collapse]) -> list[Collapse]:
    return sorted(found, key=lambda one: (-one.missed, -one.distance))


def collapsed_in(config: GFlowNetConfig, metrics: Mapping[str, np.ndarray], seeds: Sequence[int]) -> list[Collapse]:
    """The seeds that miss modes at the last evaluation during training."""
    if "modes" not in metrics:
        return []
    if config.conditional:
        each = [
            _last_score(ConditionedSettings(config.world, at, config.learner.scalarisation), metrics, at)
            | {"condition": at}
            for at in config.conditions
        ]
        return collapsed({"conditions": each, "seed_numbers": list(seeds[: len(metrics["modes"])])})
    return collapsed(_last_score(config.world, metrics) | {"seed_numbers": list(seeds[: len(metrics["modes"])])})


def _last_score(
    world: FlowSettings, metrics: Mapping[str, np.ndarray], condition: Condition | None = None
) -> dict[str, Any]:
    """What the last evaluation during training says of distances and modes, under the names of a score."""
    end = "" if condition is None else f"_{conditions.label(condition)}"
    names = [name for name in (*DISTANCES, "modes") if f"{name}{end}" in metrics]
    last = {f"{name}_per_seed": last_values(metrics[f"{name}{end}"]).tolist() for name in names}
    return last | {"num_modes": world.build().num_modes()}


def name_seeds(score: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """An evaluation with the numbers of its seeds, and which of them miss modes."""
    named = {**score, "seed_numbers": list(seeds[: score["seeds"]])}
    facts = ["seed", "missed", "modes", "distance", *["condition"] * ("conditions" in score)]
    return named | {"collapsed": [{name: getattr(one, name) for name in facts} for one in collapsed(named)]}


def warnings(found: Sequence[Collapse], seeds: int) -> list[str]:
    """A line for each seed that misses modes, and how many more there are."""
    lines = [str(one) for one in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        missing = len({one.seed for one in found})
        lines.append(f"and {len(found) - MOST_NAMED} more: {missing} of {seeds} seeds miss modes")
    return lines


def label(values: Mapping[str, np.ndarray], place: int = 0) -> str:
    """A short label of an evaluation, for one of its seeds; of a conditional one, at the condition that is pictured."""
    values = conditions.at_the_middle(values)
    if "tv" in values:
        return f"TV {values['tv'][place]:.3f}"
    if "tv_marginal" not in values:
        return f"correlation {values['correlation'][place]:.3f}"
    return f"TV {values['tv_marginal'][place]:.3f} (noise floor {values['tv_floor'][place]:.3f})"


def summary(config: GFlowNetConfig, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """Lines that summarise the training run."""
    name = ranked_by(config)
    how = DISTANCES.get(name, "correlation of log-probability and log-reward")
    values = metrics[name]
    known = np.flatnonzero(np.isfinite(values).any(0))
    if not len(known):
        return config.world.warnings()
    first, last = values[:, known[0]], last_values(values)
    lines = [f"{how}: {_format_values(first, 3)} at the first evaluation, {_format_values(last, 4)} at the last"]
    if config.conditional:
        each = {at: last_values(metrics[f"{name}_{conditions.label(at)}"]) for at in config.conditions}
        lines += [f"at {format_condition(at)}: {_format_values(found, 4)}" for at, found in each.items()]
    for own, text in config.metric_texts.items():
        if np.isfinite(metrics[own]).any():
            lines.append(f"{text}: {_format_values(last_values(metrics[own]), 4)}")
    if config.world.modes_counted:
        found = _format_values(metrics["modes_found"][:, -1], 0)
        lines.append(f"modes found while training: {found} of {config.world.modes_counted}")
    return lines + config.world.warnings()


def ranked_by(config: GFlowNetConfig) -> str:
    """The column that says how good a sampler is."""
    return "tv" if config.exact else "tv_marginal" if config.charted else "correlation"


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """Lines that describe an evaluation."""
    if "conditions" in score:
        return [*conditions.describe(score), *warnings(collapsed(score), score["seeds"])]
    seeds = score["seeds"]

    def show(name: str, digits: int = 4) -> str:
        each = score.get("per_seed" if name == "mean_return" else f"{name}_per_seed")
        if each and 1 < len(each) < FEW:
            return _listed(each, digits)
        interval = score.get("ci95" if name == "mean_return" else f"{name}_ci95", np.nan)
        return _number(score[name], digits) + (f" ± {_number(interval, digits)}" if interval == interval else "")

    own = [f"{text}: {show(name)}" for name, text in score.get("texts", {}).items()]
    several = ""
    if seeds > 1:
        listed = seeds < FEW and "mean_return" in score and "per_seed" in score
        several = f", {_names(_seeds(score))}" if listed else f", mean of {seeds} seeds ± 95 %"
    rewards = f"mean reward {show('mean_return', 3)}; with random steps {_number(score['random_return'], 3)}"
    if score["exact"]:
        first = [
            f"total variation {show('tv')} (exact{several}{_extremes(score, 'tv')})",
            f"L1 {show('l1')}  KL {show('kl')}  JSD {show('jsd')}  "
            f"correlation(log p, {_target(score)}) {show('correlation')}",
        ]
    elif "tv_marginal" in score:
        first = [
            f"{MARGINAL}: {show('tv_marginal')} from {score['episodes']:,} samples"
            f"{several}{_extremes(score, 'tv_marginal')}; a perfect sampler would show {show('tv_floor')}",
        ]
        if not score["enumerable"]:
            first.append("There are too many states for an exact value.")
    else:
        return [
            f"correlation(log p, {_target(score)}) {show('correlation')}, estimated from {score['episodes']:,} samples"
            f"{several}",
            *own,
            f"log Z {score['log_z']:.4f}: error {show('logz_error')}, ELBO {show('elbo')}"
            if "logz_error" in score
            else f"log Z is at least about {show('elbo')}; its exact value is unknown",
            rewards,
        ]
    if score["num_modes"] and np.isfinite(score.get("modes", np.nan)):
        first.append(
            f"modes found {show('modes', 0 if seeds < FEW else 1)} of {score['num_modes']}{_cells(score, show)}"
        )
    return [
        *first,
        *own,
        f"log Z {score['log_z']:.4f}: error {show('logz_error')}, between ELBO {show('elbo')} and EUBO {show('eubo')}",
        rewards,
        *warnings(collapsed(score), seeds),
    ]


def _cells(score: Mapping[str, Any], show: Any) -> str:
    """What the number of modes means, and how many cells they have if that is another number."""
    meaning = " (at least half of their probability"
    total = score.get("num_mode_cells")
    if not total or total == score["num_modes"] or "mode_cells" not in score:
        return f"{meaning})"
    return f"{meaning}; cells {show('mode_cells', 0 if score['seeds'] < FEW else 1)} of {total})"


def _target(score: Mapping[str, Any]) -> str:
    return "log prior·R" if score.get("loss") == "rtb" else "log R"


def _extremes(score: Mapping[str, Any], name: str) -> str:
    """Median and worst of the seeds, where a mean is shown."""
    each = score.get(f"{name}_per_seed") or []
    if len(each) < FEW:
        return ""
    worst = int(np.argmax(each))
    return f"; median {np.median(each):.4f}, worst {each[worst]:.4f} of seed {_seeds(score)[worst]}"


def _seeds(score: Mapping[str, Any]) -> list[int]:
    """The numbers of the seeds of an evaluation, or their places if it does not know them."""
    return list(score.get("seed_numbers") or range(score["seeds"]))


def _names(seeds: Sequence[int]) -> str:
    return f"seeds {', '.join(map(str, seeds[:-1]))} and {seeds[-1]}"


def _listed(values: Sequence[float], digits: int) -> str:
    return ", ".join(_number(value, digits) for value in values)


def _number(value: float, digits: int) -> str:
    """A number as text; "–" for nan, such as a correlation with rewards that are all equal."""
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "more than 3e+38" if value > 0 else "less than −3e+38"  # all that float32 can say
    return f"{value:.{digits}f}" if abs(value) < LARGE else f"{value:.3g}"


def _format_values(values: np.ndarray, digits: int) -> str:
    """Values of some seeds: each of a few, median and range of many."""
    if len(values) < FEW:
        return _listed(values.tolist(), digits)
    low, middle, high = (_number(each(values), digits) for each in (np.nanmin, np.nanmedian, np.nanmax))
    return f"{middle} (median of {len(values)} seeds, {low} to {high})"


def last_values(values: np.ndarray) -> np.ndarray:
    """float [S]: the last finite entry of each row [S, T]; nan if there is none."""
    return np.array([row[np.isfinite(row)][-1] if np.isfinite(row).any() else np.nan for row in values])
