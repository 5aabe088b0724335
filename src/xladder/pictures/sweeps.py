"""A sweep as parallel coordinates: a line per trial, through its settings to its score.

Shapes: N trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xladder.pictures.charts import FAINT, INK, chart_style, new_figure

BEST = "#D55E00"
DIVERGED = -0.06  # where the line of a trial without a score ends


@dataclass(frozen=True)
class Coordinate:
    """One vertical axis."""

    name: str
    heights: np.ndarray
    """float [N]: where each trial is, from 0 to 1; nan if nowhere."""
    marks: Sequence[tuple[float, str]]
    """Heights and their labels."""


def draw_trials(
    path: Path, settings: Sequence[Coordinate], score: Coordinate, sign: int, stopped: np.ndarray, title: str
) -> None:
    """Draw all trials; the better one is, the lighter its line, and the best is orange.

    Args:
        path: the PNG file.
        settings: a coordinate per setting that varies; trials are in the order of their scores, best first.
        score: the coordinate of the score.
        sign: 1 if a larger score is better, −1 if a smaller one is.
        stopped: bool [N]: which trials were stopped before the end, and have the score of that moment.
        title: title of the figure.
    """
    from matplotlib import colormaps

    scored = np.isfinite(score.heights)
    good = np.where(scored, score.heights if sign > 0 else 1 - score.heights, 0.0)
    every = [*settings, score]
    with chart_style():
        figure = new_figure(height=5.2)
        plot = figure.add_subplot()
        for place in reversed(range(len(scored))):  # the best ones last, on top
            line = [coordinate.heights[place] for coordinate in every]
            look: dict[str, Any] = {"color": colormaps["viridis"](0.9 * good[place]), "alpha": 0.85, "linewidth": 1.4}
            if not scored[place]:
                line[-1], look = DIVERGED, {"color": FAINT, "alpha": 0.6, "linewidth": 1.0, "linestyle": ":"}
            elif stopped[place]:
                look |= {"alpha": 0.5, "linewidth": 1.0, "linestyle": "--"}
            elif place == 0:
                look |= {"color": BEST, "alpha": 1.0, "linewidth": 3.0}
            plot.plot(range(len(line)), line, **look)
        for i, coordinate in enumerate(every):
            plot.axvline(i, color=INK, linewidth=0.8)
            for height, label in coordinate.marks:
                plot.annotate(
                    label,
                    (i, height),
                    (6, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=10,
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
                )
        plot.set_xticks(range(len(every)), [coordinate.name for coordinate in every], fontsize=12)
        plot.set_yticks([])
        plot.set_xlim(-0.08, len(settings) + 0.25)
        plot.set_ylim(-0.1, 1.08)
        plot.grid(visible=False)
        for side in plot.spines.values():
            side.set_visible(False)
        note = "orange: the best trial" + "; dashed: stopped early, score of that moment" * bool(stopped.any())
        note += "" if scored.all() else "; dotted: no score"
        figure.supxlabel(note, x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)
