"""Curves reduced to what a screen can show, however long the run.

Shapes: S seeds, T ticks, M points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xladder.core.statistics import episode_weights, join_gaps, mean_and_interval, moving_mean, weighted_mean
from xladder.pictures.curves import MOST_LINES, Panel

MOST_POINTS, FEWEST_POINTS = 2000, 80  # of a line
FEWEST_SEEDS = 4  # of an interval: with two or three it is so wide that it hides the curves
MOST_SEEDS = 24  # that have a line of their own; mean and interval are always of all
WINDOW = 0.02  # of the run: ticks of a moving mean
DIGITS = 5
TIMES = 400  # points that relate ticks to seconds
LAST = 0.1  # of the ticks: the mean that is shown as a number


def points_per_line(panels: Sequence[Panel], seeds: int, numbers: int) -> int:
    """How many points a line may have, so that all lines of a run have about `numbers` numbers."""
    lines = sum(min(len(panel.columns), MOST_LINES) for panel in panels) * (min(seeds, MOST_SEEDS) + 4)
    return max(FEWEST_POINTS, min(MOST_POINTS, numbers // max(lines, 1)))


def make_panels(
    panels: Sequence[Panel], columns: Mapping[str, np.ndarray], seeds: Sequence[int], tick: str, each: int, most: int
) -> list[dict[str, Any]]:
    """The panels of a run with their lines.

    Args:
        panels: The panels.
        columns: Float [S, T] by name; NaN where nothing was measured.
        seeds: The seeds of the rows.
        tick: The name of a tick.
        each: Units of length per tick, by which the horizontal axis counts.
        most: Points per line.
    """
    found = []
    for panel in panels:
        lines = [
            {"name": name, **reduced}
            for name in panel.columns[:MOST_LINES]
            if name in columns
            and (reduced := make_line(columns[name], episode_weights(name, columns), panel.smooth, seeds, each, most))
        ]
        if lines:
            low, high = panel.limits
            found.append(
                {
                    "title": panel.title.replace("{tick}", tick),
                    "wide": panel.wide,
                    "logarithmic": panel.logarithmic,
                    "limits": [low, high],
                    "several": len(panel.columns) > 1,
                    "lines": lines,
                }
            )
    return found


def make_line(
    values: np.ndarray, weights: np.ndarray | None, smooth: bool, seeds: Sequence[int], each: int, most: int
) -> dict[str, Any]:
    """One column as a line per seed, their mean and a band; empty if nothing was measured.

    The band is the 95 % interval of the mean over seeds, or the range of two or three. With a single seed it is the
    range of the values that the moving mean smooths.
    """
    count, ticks = values.shape
    at = np.flatnonzero(np.isfinite(values).any(axis=0))
    if not len(at):
        return {}
    window = max(1, round(WINDOW * ticks)) if smooth else 1
    stops = _stops(at, most)
    starts = np.concatenate([[at[0]], stops[:-1] + 1])
    if window > 1:
        lines = np.stack([join_gaps(line, window)[stops] for line in moving_mean(values, window, weights)])
    elif len(at) > most:
        lines = np.stack(
            [
                weighted_mean(values[:, a : b + 1], None if weights is None else weights[:, a : b + 1], axis=1)
                for a, b in zip(starts, stops, strict=True)
            ],
            axis=1,
        )
    else:
        lines = values[:, stops]
    mean, half_width = mean_and_interval(lines)
    if count >= FEWEST_SEEDS:
        low, high = mean - half_width, mean + half_width
    elif count > 1:
        low, high = np.fmin.reduce(lines), np.fmax.reduce(lines)
    elif window > 1 or len(at) > most:
        # Of everything that the mean at a point is of.
        begin = np.minimum(starts, np.maximum(stops - (window - 1) // 2, 0))
        pairs = np.stack([begin, np.minimum(stops + window // 2, ticks - 1) + 1], axis=1).ravel()
        padded = np.append(values[0], np.nan)  # so that the last stop is an index, too
        low, high = (ufunc.reduceat(padded, pairs)[::2] for ufunc in (np.fmin, np.fmax))
    else:
        low = high = np.full(len(stops), np.nan)
    late = at[at >= (1 - LAST) * ticks]
    late = late if len(late) else at[-1:]
    last = weighted_mean(values[:, late], None if weights is None else weights[:, late], axis=1)
    last_mean, last_interval = mean_and_interval(last)
    named = range(min(count, MOST_SEEDS))
    return {
        "x": ((stops + 1) * each).tolist(),
        "mean": numbers(mean),
        "low": numbers(low) if np.isfinite(low).any() else [],
        "high": numbers(high) if np.isfinite(high).any() else [],
        "seeds": [{"seed": int(seeds[s]), "y": numbers(lines[s])} for s in named] if count > 1 else [],
        "interval": count >= FEWEST_SEEDS,
        "window": window * each if window > 1 else 0,
        "sparse": bool(len(at) < min(ticks, 60)),
        "last": numbers(np.array([last_mean, last_interval])),
    }


def make_times(columns: Mapping[str, np.ndarray], each: int) -> dict[str, Any]:
    """Seconds of training by units of length, of the first seed."""
    seconds = columns.get("seconds")
    if seconds is None or not np.isfinite(seconds[0]).any():
        return {"x": [], "seconds": []}
    at = np.flatnonzero(np.isfinite(seconds[0]))
    stops = at[np.unique(np.linspace(0, len(at) - 1, min(TIMES, len(at))).round().astype(int))]
    return {"x": ((stops + 1) * each).tolist(), "seconds": numbers(seconds[0, stops])}


def numbers(values: np.ndarray) -> list[float | None]:
    """JSON numbers with a few digits; None for nan and infinity."""
    return [float(f"{value:.{DIGITS}g}") if abs(value) < np.inf else None for value in values.tolist()]


def _stops(at: np.ndarray, most: int) -> np.ndarray:
    """The last tick of each of at most `most` buckets of the ticks `at`."""
    if len(at) <= most:
        return at
    return at[np.linspace(0, len(at), most + 1).round().astype(int)[1:] - 1]
