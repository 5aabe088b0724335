"""Scores of several tasks in one number, with its uncertainty over a few seeds.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021. A mean is
dominated by a few easy tasks and a median ignores nearly half of them; the interquartile mean is between the two. Its
interval is a stratified bootstrap: the runs of every task are resampled by themselves. It says how other seeds would
have come out in the same tasks. With `over_tasks`, tasks are resampled as well, and the runs of each: how other tasks
would have come out.

Shapes: M tasks, each with N runs of its own; B resamples, T thresholds. Scores are normalised, higher is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Scores = Sequence[np.ndarray]
"""M arrays [N], the normalised scores of one method: one array per task, one number per run."""
RESAMPLES = 2000
LEVEL = 0.95
TRIMMED = 0.25  # cut from each end


class Estimate(NamedTuple):
    """A statistic and its 95 % interval; NaN where no task has two runs that could differ."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis: a quarter of the values, rounded down, is cut from each end."""
    values = np.sort(values, axis=-1)
    cut = int(TRIMMED * values.shape[-1])
    return values[..., cut : values.shape[-1] - cut].mean(-1)


def iqm(scores: Scores, over_tasks: bool = False) -> Estimate:
    """Interquartile mean of the runs of all tasks together."""
    return _estimate(lambda drawn: interquartile_mean(np.concatenate(drawn, axis=-1)), [scores], over_tasks)


def optimality_gap(scores: Scores, over_tasks: bool = False) -> Estimate:
    """How far runs fall short of 1, such as a human player: the mean of max(1 − score, 0); lower is better."""

    def gap(drawn: Sequence[np.ndarray]) -> np.ndarray:
        return np.mean([np.maximum(1.0 - task, 0.0).mean(-1) for task in drawn], axis=0)

    return _estimate(gap, [scores], over_tasks)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> Estimate:
    """Share of runs that score more than each threshold, float [T]: the mean over tasks of the share in each."""

    def above(drawn: Sequence[np.ndarray]) -> np.ndarray:
        # Sorted, the number of runs above a threshold is a position. `drawn` is [B, N] per task.
        shares = [
            np.stack([1 - np.searchsorted(row, thresholds, side="right") / row.size for row in np.sort(task, axis=-1)])
            for task in drawn
        ]
        return np.mean(shares, axis=0)

    return _estimate(above, [scores])


def probability_of_improvement(ours: Scores, theirs: Scores, over_tasks: bool = False) -> Estimate:
    """How likely a run of ours beats one of theirs in a task, ties counting half: the mean over tasks.

    In a task this is the Mann–Whitney U statistic, divided by the number of pairs.
    """

    def wins(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> np.ndarray:
        return np.mean([_win_share(x, y) for x, y in zip(ours, theirs, strict=True)], axis=0)

    return _estimate(wins, [ours, theirs], over_tasks)


def _win_share(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Share of the pairs of runs [B, N] and [B, N'] that ours wins."""
    apart = ours[:, :, None] - theirs[:, None, :]
    return ((apart > 0) + 0.5 * (apart == 0)).mean((1, 2))


def _estimate(
    statistic: Callable[..., np.ndarray], methods: Sequence[Scores], over_tasks: bool = False, seed: int = 0
) -> Estimate:
    """A statistic of one or more methods and its interval, by percentiles of a stratified bootstrap.

    Args:
        statistic: Takes M arrays [B, N] per method, and returns an array [B, …].
        methods: The scores of every method.
        over_tasks: Whether to resample tasks as well, the same ones for all methods.
        seed: Of the resampling, so that the same runs give the same numbers.
    """
    value = statistic(*([np.asarray(task, float)[None] for task in scores] for scores in methods))[0]
    tasks, rng = len(methods[0]), np.random.default_rng(seed)
    if (over_tasks and tasks < 2) or (
        not over_tasks and all(np.size(task) < 2 for scores in methods for task in scores)
    ):
        nothing = np.full_like(value, np.nan)
        return Estimate(value, nothing, nothing)
    if over_tasks:
        drawn = np.stack(
            [statistic(*_resample_tasks(methods, rng.integers(0, tasks, tasks), rng))[0] for _ in range(RESAMPLES)]
        )
    else:
        drawn = statistic(*([_resample(np.asarray(task, float), rng) for task in scores] for scores in methods))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Estimate(value, low, high)


def _resample_tasks(methods: Sequence[Scores], chosen: np.ndarray, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """The runs [1, N] of the chosen tasks, resampled, of every method."""
    return [[rng.choice(np.asarray(scores[i], float), (1, np.size(scores[i]))) for i in chosen] for scores in methods]


def _resample(task: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return task[rng.integers(0, len(task), (RESAMPLES, len(task)))]


def normalise(scores: np.ndarray, random: float, best: float) -> np.ndarray:
    """Scores on a scale on which random play is 0 and `best`, such as a human's score, is 1.

    `best` has to be above random play.
    """
    return (np.asarray(scores, float) - random) / (best - random)
