"""Scores of several methods over several worlds: interquartile means, performance profiles, who beats whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.aggregates import Estimate
from xladder.pictures.charts import FAINT, INK, chart_style, new_figure
from xladder.pictures.overlay import look, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PAIRS = 15  # of methods, so that their labels can be read


def draw_scores(
    path: str | Path,
    labels: Sequence[str],
    iqms: Sequence[Estimate],
    thresholds: np.ndarray,
    profiles: Sequence[Estimate],
    improvements: Mapping[tuple[int, int], Estimate],
    title: str,
    note: str,
) -> None:
    """Draw a comparison, 1600 pixels wide.

    Args:
        path: The file; its ending says which kind.
        labels: The methods.
        iqms: Their interquartile means.
        thresholds: Normalised scores, float [T].
        profiles: Share of runs above each threshold [T], by method.
        improvements: How likely one method beats another, by their places.
        title: Title of the figure.
        note: What the scores mean.
    """
    pairs = dict(list(improvements.items())[:MOST_PAIRS])
    rows = [["iqm", "profile"]] + [["pairs", "profile"]] * bool(pairs)
    heights = [1.1 + 0.42 * len(labels), *[1.1 + 0.42 * len(pairs)] * bool(pairs)]
    with chart_style():
        figure = new_figure(height=max(4.8, 1.4 + sum(heights)))
        places: dict[str, Any] = figure.subplot_mosaic(rows, height_ratios=heights, width_ratios=[1, 1.25])
        _draw_estimates(places["iqm"], iqms, [look(i)[0] for i in range(len(labels))])
        places["iqm"].set_title("interquartile mean")
        places["iqm"].set_yticks(range(len(labels)), [plain(_short(label)) for label in labels], fontsize=11)
        for place, tick in enumerate(places["iqm"].get_yticklabels()):
            tick.set_color(look(place)[0])
        places["iqm"].set_xlabel("normalised score")
        if pairs:
            _draw_estimates(places["pairs"], list(pairs.values()), [INK] * len(pairs))
            places["pairs"].set_title("probability of improvement")
            names = [f"{_short(labels[a])} over {_short(labels[b])}" for a, b in pairs]
            places["pairs"].set_yticks(range(len(pairs)), list(map(plain, names)), fontsize=9.5)
            places["pairs"].axvline(0.5, color=FAINT, linewidth=1.1, linestyle=(0, (5, 4)))
            places["pairs"].set_xlim(-0.02, 1.02)
        _draw_profiles(places["profile"], thresholds, profiles)
        figure.supxlabel(plain(note), x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(plain(title), x=0.008, ha="left")
        save(figure, path)


def _draw_estimates(axes: Axes, estimates: Sequence[Estimate], colours: Sequence[str]) -> None:
    """One row per estimate: its interval as a bar, and the value as a line in it."""
    for place, (estimate, colour) in enumerate(zip(estimates, colours, strict=True)):
        if np.isfinite(estimate.low):
            axes.barh(place, estimate.high - estimate.low, left=estimate.low, height=0.5, color=colour, alpha=0.35)
        axes.plot([estimate.value] * 2, [place - 0.25, place + 0.25], color=colour, linewidth=2.4)
    axes.use_sticky_edges = False
    axes.margins(x=0.06)
    axes.set_ylim(len(estimates) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _draw_profiles(axes: Axes, thresholds: np.ndarray, profiles: Sequence[Estimate]) -> None:
    for place, profile in enumerate(profiles):
        colour, dashes = look(place)
        if np.isfinite(profile.low).all():
            axes.fill_between(thresholds, profile.low, profile.high, color=colour, alpha=0.15, linewidth=0, step="post")
        axes.step(thresholds, profile.value, where="post", color=colour, linestyle=dashes, linewidth=2)
    axes.set(xlim=(thresholds[0], thresholds[-1]), ylim=(-0.02, 1.02))
    axes.set_title("performance profiles")
    axes.set_xlabel("normalised score τ")
    axes.set_ylabel("share of runs above τ")


def _short(label: str, most: int = 24) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
