"""Scores of several tasks in one number, with its uncertainty over a few seeds.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021. A mean is
dominated by a few easy tasks and a median ignores nearly half of them; the interquartile mean is between the two. Its
interval is a stratified bootstrap: the runs of every task are resampled by themselves.

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


def iqm(scores: Scores) -> Estimate:
    """Interquartile mean of the runs of all tasks together."""
    return _estimate(lambda drawn: interquartile_mean(np.concatenate(drawn, axis=-1)), [scores])


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


def probability_of_improvement(ours: Scores, theirs: Scores) -> Estimate:
    """How likely a run of ours beats one of theirs in a task, ties counting half: the mean over tasks.

    In a task this is the Mann–Whitney U statistic, divided by the number of pairs.
    """

    def wins(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> np.ndarray:
        return np.mean([_win_share(x, y) for x, y in zip(ours, theirs, strict=True)], axis=0)

    return _estimate(wins, [ours, theirs])


def _win_share(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Share of the pairs of runs [B, N] and [B, N'] that ours wins."""
    apart = ours[:, :, None] - theirs[:, None, :]
    return ((apart > 0) + 0.5 * (apart == 0)).mean((1, 2))


def _estimate(statistic: Callable[..., np.ndarray], methods: Sequence[Scores], seed: int = 0) -> Estimate:
    """A statistic of one or more methods and its interval, by percentiles of a stratified bootstrap.

    Args:
        statistic: Takes M arrays [B, N] per method, and returns an array [B, …].
        methods: The scores of every method.
        seed: Of the resampling, so that the same runs give the same numbers.
    """
    value = statistic(*([np.asarray(task, float)[None] for task in scores] for scores in methods))[0]
    if all(np.size(task) < 2 for scores in methods for task in scores):
        nothing = np.full_like(value, np.nan)
        return Estimate(value, nothing, nothing)
    rng = np.random.default_rng(seed)
    drawn = statistic(*([_resample(np.asarray(task, float), rng) for task in scores] for scores in methods))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Estimate(value, low, high)


def _resample(task: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return task[rng.integers(0, len(task), (RESAMPLES, len(task)))]


def normalise(scores: np.ndarray, random: float, best: float) -> np.ndarray:
    """Scores on a scale on which random play is 0 and `best`, such as a human's score, is 1.

    `best` has to be above random play.
    """
    return (np.asarray(scores, float) - random) / (best - random)
