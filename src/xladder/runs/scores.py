"""Final scores of several methods over several worlds, on a common scale.

A world's scores are normalised so that random play is 0 and 1 is a human player where one is known (Atari), else the
best score among the runs that are compared. Where no run beats random play, the worst of them is −1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xladder.core import aggregates
from xladder.core.aggregates import Estimate
from xladder.errors import DamagedRun, UsageError, printable
from xladder.families.value import atari_scores
from xladder.families.value.atari_humans import TABLE57
from xladder.runs.groups import Group, same_experiment
from xladder.runs.listing import RunInfo
from xladder.runs.overlays import read_metrics
from xladder.runs.reading import Unreadable

LAST_EVALUATION = "eval_return"
MOST_THRESHOLDS = 200


@dataclass(frozen=True)
class Scale:
    """What 0 and 1 are in a world."""

    random: float
    one: float
    """The score that is 1."""
    anchor: Literal["human", "best", "worst"]
    """What else is on the scale: 1 is a human player or the best run, or −1 the worst, if none beats random play."""


@dataclass(frozen=True)
class Comparison:
    """Methods compared over several worlds."""

    labels: list[str]
    scales: dict[str, Scale]
    """By world."""
    scores: list[dict[str, np.ndarray]]
    """Of every method: normalised scores [N] by world."""
    iqms: list[Estimate]
    gaps: list[Estimate]
    """Optimality gaps: how far runs fall short of 1."""
    thresholds: np.ndarray
    """float [T]"""
    profiles: list[Estimate]
    """Share of runs above each threshold [T]."""
    improvements: dict[tuple[int, int], Estimate]
    """How likely the first method beats the second, by their places."""
    over_worlds: dict[str, list[Estimate]]
    """The same statistics (`iqm`, `gap`, `improvement`), with intervals over worlds and seeds; empty for one world."""
    skipped: list[str]
    """Sentences about runs and worlds that are left out."""


def compare_groups(groups: Sequence[Group]) -> Comparison:
    """Compare groups of runs by their final scores.

    Raises:
        UsageError: There are no scores, or no world in which every group has some.
    """
    skipped: list[str] = []
    raw = [_scores_by_world(group, skipped) for group in groups]
    kept = [place for place, found in enumerate(raw) if found]
    if not kept:
        raise UsageError(f"No run has an evaluation to compare. {' '.join(skipped)}".strip())
    skipped += [f"{groups[i].label} is left out: it has no scores." for i in range(len(groups)) if i not in kept]
    worlds = sorted(set().union(*(raw[i] for i in kept)))
    common = [world for world in worlds if all(world in raw[i] for i in kept)]
    for world in worlds:
        if world not in common:
            lacking = next(groups[i].label for i in kept if world not in raw[i])
            skipped.append(f"{printable(world)} is left out: {lacking} has no scores in it.")
    if not common:
        raise UsageError(f"There is no world in which every group has scores. {' '.join(skipped)}".strip())
    scales = {
        world: _scale(
            world, [run for i in kept for run in groups[i].runs if run.workload == world], [raw[i][world] for i in kept]
        )
        for world in common
    }
    scores = [
        {world: aggregates.normalise(raw[i][world], scales[world].random, scales[world].one) for world in common}
        for i in kept
    ]
    tasks = [list(found.values()) for found in scores]
    thresholds = _thresholds(tasks)
    pairs = [(a, b) for a in range(len(kept)) for b in range(len(kept)) if a > b]
    return Comparison(
        [groups[i].label for i in kept],
        scales,
        scores,
        [aggregates.iqm(task) for task in tasks],
        [aggregates.optimality_gap(task) for task in tasks],
        thresholds,
        [aggregates.performance_profile(task, thresholds) for task in tasks],
        {(a, b): aggregates.probability_of_improvement(tasks[a], tasks[b]) for a, b in pairs},
        {}
        if len(common) < 2
        else {
            "iqm": [aggregates.iqm(task, over_tasks=True) for task in tasks],
            "gap": [aggregates.optimality_gap(task, over_tasks=True) for task in tasks],
            "improvement": [
                aggregates.probability_of_improvement(tasks[a], tasks[b], over_tasks=True) for a, b in pairs
            ],
        },
        skipped,
    )


def seed_scores(run: RunInfo) -> dict[int, float]:
    """The final score of every seed of a run: of the evaluation at its end or, without one, of the last one before."""
    each = run.evaluation.get("per_seed")
    if run.evaluated is not None and len(run.seeds) == 1:
        return {run.seeds[0]: run.evaluated}
    if isinstance(each, list) and len(each) == len(run.seeds) and all(_is_finite(score) for score in each):
        return dict(zip(run.seeds, map(float, each), strict=True))
    table = read_metrics(run)
    column = table.columns.get(LAST_EVALUATION)
    found = {}
    for seed, row in zip(table.seeds, column, strict=True) if column is not None else ():
        measured = row[np.isfinite(row)]
        if len(measured):
            found[seed] = float(measured[-1])
    if not found:
        raise Unreadable("no evaluation tells its seeds apart")
    return found


def _scores_by_world(group: Group, skipped: list[str]) -> dict[str, np.ndarray]:
    """Scores [N] by world; the same seed of the same experiment counts once."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for run in group.runs:
        if "iterations" in run.settings:  # a GFlowNet that collapses onto the best object has the highest reward
            skipped.append(
                f"{printable(run.name)} is skipped: a GFlowNet is not scored by reward; draw `--y tv` instead."
            )
            continue
        try:
            scores = seed_scores(run)
        except (Unreadable, DamagedRun) as error:
            skipped.append(f"{printable(run.name)} is skipped: {printable(str(error).removesuffix('.'))}.")
            continue
        for seed, score in scores.items():
            found.setdefault(run.workload, {})[(same_experiment(run), seed)] = score
    return {world: np.array(list(scores.values())) for world, scores in found.items()}


def _scale(world: str, runs: Sequence[RunInfo], scores: Sequence[np.ndarray]) -> Scale:
    game = atari_scores.GAMES.get(atari_scores.key_of(world), "") if world.startswith("atari/") else ""
    if human := TABLE57.get(game):
        return Scale(human.random, human.human, "human")
    by_chance = [run.evaluation.get("random_return") for run in runs]
    known = [score for score in by_chance if _is_finite(score)]
    if not known:
        raise UsageError(f"No run of `{printable(world)}` has a score of random play, which is 0 on the common scale.")
    random, every = float(np.mean(np.array(known, float))), np.concatenate(scores)
    if every.max() > random:
        return Scale(random, float(every.max()), "best")
    return Scale(random, random + (random - float(every.min()) or 1.0), "worst")


def _thresholds(tasks: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Thresholds from below the lowest score, or random play, to the highest."""
    every = np.concatenate([scores for task in tasks for scores in task])
    low, high = min(0.0, float(every.min())), max(1.0, float(every.max()))
    return np.linspace(low, high + 0.02 * (high - low), MOST_THRESHOLDS)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def as_json(found: Comparison) -> dict[str, Any]:
    """Convert a comparison to JSON-ready data."""

    def interval(estimate: Estimate) -> Mapping[str, Any]:
        return {name: np.asarray(values).tolist() for name, values in estimate._asdict().items()}

    return {
        "scales": {
            world: {"random": scale.random, "one": scale.one, "anchor": scale.anchor}
            for world, scale in found.scales.items()
        },
        "thresholds": found.thresholds.tolist(),
        "groups": [
            {
                "label": label,
                "scores": {world: values.tolist() for world, values in found.scores[i].items()},
                "iqm": interval(found.iqms[i]),
                "optimality_gap": interval(found.gaps[i]),
                "profile": interval(found.profiles[i]),
                "over_worlds": {
                    name: interval(found.over_worlds[name][i]) for name in ("iqm", "gap") if found.over_worlds
                },
            }
            for i, label in enumerate(found.labels)
        ],
        "probability_of_improvement": [
            {
                "of": found.labels[a],
                "over": found.labels[b],
                **interval(estimate),
                "over_worlds": interval(found.over_worlds["improvement"][i]) if found.over_worlds else {},
            }
            for i, ((a, b), estimate) in enumerate(found.improvements.items())
        ],
    }
