"""Curves of several groups of runs in one chart. Shapes: S seeds, P points."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.statistics import mean_and_interval
from xladder.pictures.charts import (
    BLUE,
    FAINT,
    chart_style,
    label_powers,
    new_figure,
    spans_powers,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)))  # for more groups than colours
MOST_GROUPS = len(COLOURS) * len(DASHES)
FEWEST_SEEDS = 4  # for a mean with an interval: with fewer it is wider than the chart
MOST_DOTS = 60  # per line, so that they do not overlap
LEGEND_LETTERS = 125  # that fit in the width of the figure
LOGARITHMIC = frozenset({"loss", "tv", "l1", "kl", "jsd", "logz_error", "tv_marginal"})
TITLES: Mapping[str, str] = {
    "eval_return": "return of the greedy policy",
    "tv": "total variation distance",
    "logz_error": "error of log Z (absolute)",
}
AXIS_LABELS = {"steps": "environment steps", "seconds": "seconds of training", "frames": "frames"}


@dataclass(frozen=True)
class GroupCurve:
    """The curves of the seeds of one group, at common points."""

    label: str
    x: np.ndarray
    """float [P]"""
    lines: np.ndarray
    """float [S, P]; NaN before and after a seed's own curve."""
    runs: Sequence[str] = ()
    """The run of every line,"""
    seeds: Sequence[int] = ()
    """and its seed."""
    last: np.ndarray = field(default_factory=lambda: np.empty(0))
    """float [S]: the mean over the last tenth of each seed's training."""

    @property
    def has_mean(self) -> bool:
        """Whether there are enough seeds for a mean and its interval."""
        return len(self.lines) >= FEWEST_SEEDS

    def mean_and_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean over seeds [P] and half the width of its 95 % interval; NaN where too few seeds are left."""
        enough = np.isfinite(self.lines).sum(0) >= FEWEST_SEEDS
        mean, half_width = mean_and_interval(self.lines)
        return np.where(enough, mean, np.nan), np.where(enough, half_width, np.nan)


def draw_overlay(
    path: str | Path, curves: Sequence[GroupCurve], title: str, x: str, y: str, smoothed: bool = False
) -> None:
    """Draw the curves of several groups, 1600 pixels wide.

    Args:
        path: The file; its ending says which kind.
        curves: The groups, at most `MOST_GROUPS`.
        title: Title of the figure.
        x: The horizontal axis: steps, seconds or frames.
        y: The column that is drawn.
        smoothed: Whether the lines are moving means.
    """
    with chart_style():
        figure = new_figure(height=5.4)
        axes = figure.add_subplot()
        if y in LOGARITHMIC and all(spans_powers(curve.lines) for curve in curves):
            axes.set_yscale("log")
        handles = [_draw_group(axes, curve, *look(place)) for place, curve in enumerate(curves)]
        _fit(axes, curves)
        axes.set_xlabel(AXIS_LABELS.get(x, x))
        axes.xaxis.set_major_formatter(lambda value, _: thousands(value) if abs(value) >= 1000 else f"{value:g}")
        if axes.get_yscale() == "log":
            label_powers(axes)
        _add_legend(axes, handles, [f"{curve.label} ({count_seeds(curve)})" for curve in curves])
        figure.supxlabel(_note(curves, smoothed), x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(plain(f"{title}: {TITLES.get(y, y.replace('_', ' '))}"), x=0.008, ha="left")
        save(figure, path)


def look(place: int) -> tuple[str, Any]:
    """Colour and dashes of a group."""
    return COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]


def plain(text: str) -> str:
    """Text that matplotlib takes neither for a formula nor for something to hide."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def count_seeds(curve: GroupCurve) -> str:
    """How many seeds, in words."""
    return f"{len(curve.lines)} seed{'s' * (len(curve.lines) > 1)}"


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; letters that the font does not have are drawn as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(path)


def _add_legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend above the axes, in as many columns as fit: it must not hide the data."""
    columns = min(len(labels), max(1, LEGEND_LETTERS // (max(map(len, labels)) + 6)))
    axes.legend(
        handles,
        list(map(plain, labels)),
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        handlelength=1.8,
        borderaxespad=0.4,
        borderpad=0,
    )


def _draw_group(axes: Axes, curve: GroupCurve, colour: str, dashes: Any) -> Any:
    """Draw a mean with its band, or every seed by itself. Returns the line that stands for it in the legend."""
    if curve.has_mean:
        mean, half_width = curve.mean_and_interval()
        axes.fill_between(curve.x, mean - half_width, mean + half_width, color=colour, alpha=0.18, linewidth=0)
        return _draw_line(axes, curve.x, mean, color=colour, linestyle=dashes, linewidth=2.2)
    width = 2.0 if len(curve.lines) == 1 else 1.3
    drawn = [_draw_line(axes, curve.x, line, color=colour, linestyle=dashes, linewidth=width) for line in curve.lines]
    return drawn[0]


def _draw_line(axes: Axes, x: np.ndarray, y: np.ndarray, **how: Any) -> Any:
    measured = np.isfinite(y)
    dots: dict[str, Any] = {"marker": "o", "markersize": 4.5, "clip_on": False} if measured.sum() <= MOST_DOTS else {}
    return axes.plot(x[measured], y[measured], **how, **dots)[0]


def _fit(axes: Axes, curves: Sequence[GroupCurve]) -> None:
    """Fit the axes to the lines; bands that are much wider are clipped."""
    first, last = min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)
    if last > first:
        axes.set_xlim(min(first, 0.02 * last) if first >= 0 else first, last)
    heights = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    heights = heights[np.isfinite(heights) & ((heights > 0) | (axes.get_yscale() != "log"))]
    if len(np.unique(heights)) < 2:
        return
    scale = axes.yaxis.get_transform()
    lowest, highest = scale.transform([heights.min(), heights.max()])
    room = 0.25 * (highest - lowest)
    limits = scale.inverted().transform([lowest - room, highest + room])
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, limits[0]), min(top, limits[1]))


def _note(curves: Sequence[GroupCurve], smoothed: bool) -> str:
    parts = []
    if any(curve.has_mean for curve in curves):
        parts.append("Bands: 95 % interval of the mean over seeds (Student's t).")
    if any(1 < len(curve.lines) < FEWEST_SEEDS for curve in curves):
        parts.append(f"Groups of fewer than {FEWEST_SEEDS} seeds: one line per seed.")
    parts.append("Lines: moving mean over 2 % of the run." if smoothed else "Lines: not smoothed.")
    return " ".join(parts)
