"""A sweep as parallel coordinates: a line per trial, through its settings to its score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.pictures.charts import FAINT, INK, chart_style, new_figure

if TYPE_CHECKING:
    from xladder.sweeps.space import Axis


def draw_trials(
    path: Path, rows: Sequence[Mapping[str, Any]], axes: Sequence[Axis], metric: str, sign: int, title: str
) -> None:
    """Draw all trials; the better one is, the darker its line.

    Args:
        path: the PNG file.
        rows: a mapping per trial, best first, with its settings and its score.
        axes: the settings that vary.
        metric: the name of the score.
        sign: 1 if a larger score is better, −1 if a smaller one is.
        title: title of the figure.
    """
    from matplotlib import colormaps

    from xladder.sweeps.space import Range

    scores = np.array([float(row[metric]) for row in rows])
    finite = np.isfinite(scores)
    low, high = (scores[finite].min(), scores[finite].max()) if finite.any() else (0.0, 1.0)
    heights = [_heights([row[axis.name] for row in rows], axis) for axis in axes]
    heights.append(np.where(finite, (scores - low) / (high - low) if high > low else 0.5, np.nan))
    good = np.where(finite, np.nan_to_num(heights[-1]) if sign > 0 else 1 - np.nan_to_num(heights[-1]), 0.0)
    colours = colormaps["viridis"]
    with chart_style():
        figure = new_figure(height=5.2)
        plot = figure.add_subplot()
        for place in reversed(range(len(rows))):  # the best ones last, on top
            line = [height[place] for height in heights]
            look: dict[str, Any] = {"color": colours(0.9 * good[place]), "alpha": 0.85, "linewidth": 1.4}
            if not finite[place]:
                line[-1], look = -0.06, {"color": FAINT, "alpha": 0.6, "linewidth": 1.0, "linestyle": ":"}
            if place == 0:
                look |= {"color": "#D55E00", "alpha": 1.0, "linewidth": 3.0}
            plot.plot(range(len(line)), line, **look)
        for i, axis in enumerate(axes):
            plot.axvline(i, color=INK, linewidth=0.8)
            for height, label in _marks(axis) if isinstance(axis, Range) else _listed(axis):
                plot.annotate(label, (i, height), (5, 0), textcoords="offset points", va="center", fontsize=10)
        plot.axvline(len(axes), color=INK, linewidth=0.8)
        for height, value in ((0.0, low), (0.5, (low + high) / 2), (1.0, high)):
            label = f"{value:.3g}"
            plot.annotate(label, (len(axes), height), (5, 0), textcoords="offset points", va="center", fontsize=10)
        names = [axis.name for axis in axes]
        plot.set_xticks(range(len(axes) + 1), [*names, metric], fontsize=12)
        plot.set_yticks([])
        plot.set_xlim(-0.08, len(axes) + 0.25)
        plot.set_ylim(-0.1, 1.08)
        plot.grid(visible=False)
        for side in plot.spines.values():
            side.set_visible(False)
        note = "orange: the best trial; dotted: diverged" if not finite.all() else "orange: the best trial"
        figure.supxlabel(note, x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)


def _heights(values: Sequence[Any], axis: Axis) -> np.ndarray:
    """Where values lie on an axis, from 0 to 1."""
    from xladder.sweeps.space import Range

    if not isinstance(axis, Range):
        most = max(len(axis.values) - 1, 1)
        return np.array([axis.values.index(value) / most for value in values])
    scale = np.log if axis.logarithmic else np.asarray
    low, high = scale(axis.low), scale(axis.high)
    return (scale(np.array(values, float)) - low) / (high - low)


def _marks(axis: Any) -> list[tuple[float, str]]:
    """Heights and labels along a range."""
    shares = np.linspace(0.0, 1.0, 4)
    if axis.logarithmic:
        values = np.exp(np.log(axis.low) + shares * (np.log(axis.high) - np.log(axis.low)))
    else:
        values = axis.low + shares * (axis.high - axis.low)
    return [(float(share), f"{value:.2g}") for share, value in zip(shares, values, strict=True)]


def _listed(axis: Any) -> list[tuple[float, str]]:
    most = max(len(axis.values) - 1, 1)
    return [(i / most, str(value)) for i, value in enumerate(axis.values)]
