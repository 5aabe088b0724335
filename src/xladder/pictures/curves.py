"""Charts of a run: learning curves, and time per tick of each rung, as PNG.

Shapes: S seeds, T ticks, M ticks at which something was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.statistics import episode_weights, join_gaps, last_tenth, mean_and_interval, moving_mean, tenths
from xladder.pictures.charts import (
    BLUE,
    FAINT,
    INK,
    chart_style,
    label_powers,
    new_figure,
    spans_powers,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHER_COLOURS = ("#CC79A7", "#009E73", "#E69F00", "#56B4E9", "#000000")
ITEM_COLOURS = {  # near those on the boards
    **{"gem": "#0072B2", "bone": "#7f7f7f", "food": "#D55E00"},
    **{"deck_a": "#CC79A7", "deck_b": "#D55E00", "deck_c": "#009E73", "deck_d": "#0072B2"},
    **{"apples": "#D55E00", "zapped": "#7f7f7f", "clean": "#009E73", "zap": "#CC79A7"},
}
MOST_LINES = 6  # per panel, so that they can be told apart
MOST_DOTS = 60  # per line, so that they do not overlap
FEW_SEEDS = 4  # a band over fewer would fill the chart, so each of them is drawn
MOST_POINTS = 3000  # per line: about two for every pixel


@dataclass(frozen=True)
class Panel:
    """One panel of the curves: its columns and how they are drawn."""

    columns: tuple[str, ...]
    """Columns to draw, with a legend if there are several; missing ones are skipped."""
    title: str
    """Title; {tick} is replaced by what a tick is called."""
    wide: bool = False
    """In its own row, with references and the mean of the last tenth. The other panels share the lowest row."""
    smooth: bool = True
    """Draw a moving mean. Not for schedules, nor for rare measurements where every point counts."""
    logarithmic: bool = False
    """Use a logarithmic axis, if no value is negative and they span more than a factor of three."""
    limits: tuple[float | None, float | None] = (None, None)
    """Limits of the axis, where they do not depend on the run."""


EPSILON = Panel(("epsilon",), "ε (random actions)", smooth=False, limits=(-0.03, 1.03))
LOSS = Panel(("loss",), "loss", logarithmic=True)


def board_panels(events: Sequence[str], title: str) -> tuple[Panel, ...]:
    """The panels of agents on a board, with the events that are counted there."""
    return (
        Panel(("return",), "return per {tick}", wide=True),
        Panel(tuple(events), title + " per {tick}", limits=(0.0, None)),
        LOSS,
        EPSILON,
    )


def flow_panels(
    exact: bool = True, charted: bool = True, texts: Mapping[str, str] = MappingProxyType({}), modes: int = 0
) -> tuple[Panel, ...]:
    """The panels of a GFlowNet.

    Args:
        exact: whether the distance to the target is exact, rather than estimated from samples.
        charted: whether the target is known; otherwise the correlation of probability and reward is shown.
        texts: metrics of the world's own → what each is.
        modes: number of modes of which those found are counted.
    """
    own = [Panel((name,), text, wide=True, smooth=False) for name, text in texts.items()]
    if modes:
        own.append(Panel(("modes_found",), f"modes found, of {modes}", wide=True, smooth=False, limits=(0.0, None)))
    if not exact and not charted:
        return (
            *own,
            Panel(("correlation",), "correlation of log-probability and log-reward", wide=True, smooth=False),
            LOSS,
            Panel(("elbo",), "lower bound of log Z", smooth=False),
            Panel(("length",), "length of a trajectory"),
        )
    distance = ("tv",) if exact else ("tv_marginal", "tv_floor")
    how = "exact" if exact else "of coordinates 1 and 2, estimated from samples"
    return (
        Panel(distance, f"total variation distance ({how})", wide=True, smooth=False, logarithmic=True),
        *own,
        LOSS,
        Panel(("logz_error",), "error of log Z (absolute)", smooth=False, logarithmic=True),
        Panel(("length",), "length of a trajectory"),
    )


def value_panels(evaluated: bool) -> tuple[Panel, ...]:
    """The panels of a value learner; `evaluated`: whether its greedy policy is evaluated during training.

    Episode metrics are NaN in ticks in which no episode ended.
    """
    greedy = "return of the greedy policy (periodic evaluation)"
    return (
        Panel(("return",), "return per episode", wide=True),
        *[Panel(("eval_return",), greedy, wide=True, smooth=False)] * evaluated,
        LOSS,
        EPSILON,
        Panel(("length",), "steps per episode"),
    )


def draw_curves(
    path: str | Path,
    columns: Mapping[str, np.ndarray],
    title: str,
    tick: str,
    panels: Sequence[Panel],
    references: Mapping[str, float] | None = None,
    unit: str | None = None,
    units_per_tick: int = 1,
) -> None:
    """Draw learning curves, 1600 pixels wide.

    Args:
        path: the PNG file.
        columns: float [S, T] by name, NaN where nothing was measured; those without a panel are not drawn.
        title: title of the figure.
        tick: what a tick is called, such as "epoch".
        panels: the panels.
        references: values drawn as dashed lines across the wide panels.
        unit: a finer unit for the horizontal axis, such as "steps".
        units_per_tick: how many of these a tick has.
    """
    wanted = [name for panel in panels for name in panel.columns]
    measured = {name: np.atleast_2d(np.asarray(columns[name], float)) for name in wanted if name in columns}
    shown = [panel for panel in panels if measured.keys() & set(panel.columns)]
    if not shown:
        raise ValueError(f"Curves need one of {wanted}, but there are only {list(columns)}.")
    seeds, ticks = next(iter(measured.values())).shape
    window = max(1, round(0.02 * ticks))
    small = [panel.title for panel in shown if not panel.wide]
    rows = [[panel.title] * max(1, len(small)) for panel in shown if panel.wide] + [small] * bool(small)
    heights = [3.8] * (len(rows) - bool(small)) + [2.6] * bool(small)

    with chart_style():
        figure = new_figure(height=max(4.4, sum(heights)))
        places: dict[str, Axes] = figure.subplot_mosaic(rows, height_ratios=heights)
        for panel in shown:
            axes, found = places[panel.title], {name: measured[name] for name in panel.columns if name in measured}
            axes.set_title(panel.title.format(tick=tick))
            weights = {name: episode_weights(name, columns) for name in found}
            _draw_panel(axes, panel, found, weights, window if panel.smooth else 1, units_per_tick)
            if panel.wide:
                _draw_references(axes, references or {})
            _mark_ticks(axes, ticks, units_per_tick, unit or tick)
        span = f"{window * units_per_tick:,} {unit or f'{tick}s'}"
        figure.supxlabel(_note(shown, seeds, window, span), x=0.008, ha="left", fontsize=9.5, color=FAINT)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)


def draw_bars(path: str | Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the time per tick of each rung, in milliseconds, with its speedup.

    Args:
        path: the PNG file.
        rows: each has "rung", one "seconds_per_…" and, where known, "speedup".
        title: title of the figure.
    """
    if not rows:
        raise ValueError("A bar chart needs at least one row.")
    key = next(name for name in rows[0] if name.startswith("seconds_per_"))
    times = [1e3 * float(row[key]) for row in rows]
    wide = max(times) > 30 * min(times) > 0
    with chart_style():
        figure = new_figure(height=1.5 + 0.55 * len(rows))
        axes = figure.add_subplot()
        bars = axes.barh([str(row["rung"]) for row in rows], times, height=0.62, color=BLUE)
        for place, (row, bar, time) in enumerate(zip(rows, bars, times, strict=True)):
            speedup = row.get("speedup")
            label = f"{_round(time)} ms"
            if speedup is not None and np.isfinite(speedup):
                label += f"   $\\bf{{{_round(speedup, 2)}}}$×"
                if speedup == 1:
                    bar.set_color("#8c959f")  # the reference row
            axes.annotate(label, (time, place), (8, 0), textcoords="offset points", va="center", fontsize=12)
        axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0, labelsize=13, labelcolor=INK)
        unit = key.removeprefix("seconds_per_")
        axes.set_xlabel(f"milliseconds per {unit}" + (", logarithmic" if wide else ""))
        if wide:
            axes.set_xscale("log")
            axes.set_xlim(10 ** np.floor(np.log10(min(times)) - 0.3), 10 ** (np.log10(max(times)) + 0.9))
        else:
            axes.set_xlim(0, 1.3 * max(times) or 1.0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)


def _draw_panel(
    axes: Axes,
    panel: Panel,
    found: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray | None],
    window: int,
    each: int,
) -> None:
    if len(found) > MOST_LINES:
        # A few readable lines are better than many: keep those that end highest.
        highest = sorted(found, key=lambda name: -last_tenth(found[name], weights[name])[0])[:MOST_LINES]
        found = {name: values for name, values in found.items() if name in highest}
    curves = {name: _curve(values, window, weights[name]) for name, values in found.items()}
    if not any(x.size for x, _ in curves.values()):
        axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color=FAINT)
        axes.set_yticks([])
        return
    if panel.logarithmic and all(spans_powers(values) for values in found.values()):
        axes.set_yscale("log")
    several, others = len(panel.columns) > 1, iter(OTHER_COLOURS * len(found))
    for name, (x, values) in curves.items():
        colour = (ITEM_COLOURS.get(name) or next(others)) if several else BLUE
        if not several and window > 1 and len(values) == 1:
            at, measured = _curve(found[name], 1)
            _draw_line(axes, at * each, measured, color=colour, alpha=0.22, linewidth=0.7)
        dots: dict[str, Any] = {"marker": "o", "markersize": 5, "clip_on": False}  # not clipped at the edges
        few = len(x) == 1 or len(x) < min(found[name].shape[1], MOST_DOTS)
        _draw_line(axes, x * each, values, color=colour, linewidth=2, label=name, **dots if few else {})
    if len(next(iter(found.values()))) > 1:
        _keep_in_view(axes, [values for _, values in curves.values()])
    axes.set_ylim(*panel.limits)
    if several:
        # Above the lines, in extra room: a legend must not hide the data.
        per_row = 2 if len(curves) in (2, 4) else 3
        axes.set_ylim(top=axes.get_ylim()[1] * (1.12 + 0.14 * -(-len(curves) // per_row)))
        axes.legend(
            loc="upper left", ncols=per_row, handlelength=1, columnspacing=1, handletextpad=0.4, borderaxespad=0
        )
    elif panel.wide:
        name = panel.columns[0]
        at = np.flatnonzero(np.isfinite(found[name]).any(axis=0))
        weight = weights[name]
        late = found[name][:, at], None if weight is None else weight[:, at]
        text = _number(*last_tenth(*late))
        if 1 < len(found[name]) < FEW_SEEDS:
            text = ", ".join(_number(float(one), np.nan) for one in tenths(*late)[1] if np.isfinite(one))
        axes.set_title(f"last tenth: {text}", loc="right", color=BLUE)
    if axes.get_yscale() == "log":
        label_powers(axes)


def _curve(values: np.ndarray, window: int, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The ticks at which any seed was measured, int [M] from 1, and the moving mean there, [S, M]."""
    at = np.flatnonzero(np.isfinite(values).any(axis=0))
    if window == 1:
        return at + 1, values[:, at]
    if len(at) > MOST_POINTS:  # a moving mean has no spikes that could be missed
        at = at[np.linspace(0, len(at) - 1, MOST_POINTS).round().astype(int)]
    return at + 1, np.stack([join_gaps(line, window)[at] for line in moving_mean(values, window, weights)])


def _draw_line(axes: Axes, x: np.ndarray, values: np.ndarray, **look: Any) -> None:
    """Draw the mean of [S, M] over seeds, with its interval as a band, or with each seed if they are few."""
    mean, half_width = mean_and_interval(values)
    at = _outline(mean)
    x, mean, half_width = x[at], mean[at], half_width[at]
    if len(values) >= FEW_SEEDS:
        axes.fill_between(x, mean - half_width, mean + half_width, color=look["color"], alpha=0.2, linewidth=0)
    axes.plot(x, mean, **look)
    for one in values[:, at] if 1 < len(values) < FEW_SEEDS else ():
        known = np.isfinite(one)
        axes.plot(x[known], one[known], color=look["color"], alpha=0.45, linewidth=1)


def _outline(line: np.ndarray) -> np.ndarray:
    """Mask of the points of a line [M] that keep its look: all if it is short, else ends, maxima and minima."""
    if len(line) <= MOST_POINTS:
        return np.arange(len(line))
    step = -(-2 * len(line) // MOST_POINTS)
    blocks = np.pad(np.arange(len(line)), (0, -len(line) % step), mode="edge").reshape(-1, step)
    extremes = [blocks[np.arange(len(blocks)), pick(line[blocks], axis=1)] for pick in (np.argmin, np.argmax)]
    return np.unique([0, *extremes[0], *extremes[1], len(line) - 1])


def _keep_in_view(axes: Axes, drawn: list[np.ndarray]) -> None:
    """Fit the axis to the curves: bands over a few seeds can be much larger, and are clipped."""
    scale, least, share = axes.yaxis.get_transform(), -np.inf, 0.25
    if axes.get_yscale() == "log":
        # One seed that comes close to zero would stretch the axis by many powers of ten: only the means count.
        means = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
        drawn, least, share = [np.asarray(line.get_ydata()) for line in means], 0.0, 0.5
    curves = np.concatenate([values.ravel() for values in drawn])
    curves = curves[np.isfinite(curves) & (curves > least)]
    if len(np.unique(curves)) > 1:
        lowest, highest = scale.transform([curves.min(), curves.max()])
        room = share * (highest - lowest)
        lowest, highest = scale.inverted().transform([lowest - room, highest + room])
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, lowest), min(top, highest))


def _draw_references(axes: Axes, references: Mapping[str, float]) -> None:
    scale = axes.yaxis.get_transform()
    if axes.get_yscale() == "log":
        references = {name: value for name, value in references.items() if value > 0}
    heights = {name: float(scale.transform(value)) for name, value in references.items()}
    for value in references.values():
        axes.axhline(value, color=INK, linewidth=1.1, linestyle=(0, (5, 4)), zorder=1.5)
    bottom, top = scale.transform(axes.get_ylim())
    room = 0.1 * (top - bottom)  # what a label needs
    bottom = min([bottom, *(height - room for height in heights.values())])
    top = max([top, *(height + room for height in heights.values())])
    axes.set_ylim(*scale.inverted().transform([bottom, top]))
    below = -np.inf
    for name, height in sorted(heights.items(), key=lambda pair: pair[1]):
        # Of two close lines, the lower one's label goes below it.
        nearest = min((other - height for other in heights.values() if other > height), default=np.inf)
        hang = nearest < room < height - below
        below, label = height, f"{name}: {_round(references[name])}"
        text = axes.annotate(label, (1, references[name]), xycoords=("axes fraction", "data"), ha="right")
        text.set(position=(-4, -4 if hang else 4), anncoords="offset points", va="top" if hang else "bottom")
        text.set_bbox({"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1})


def _mark_ticks(axes: Axes, ticks: int, each: int, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    if ticks == 1:
        axes.set(xlim=(0.5 * each, 1.5 * each), xticks=[each])
    else:
        axes.set_xlim(each, ticks * each)
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if each == 1 else thousands(value))
    axes.set_xlabel(label)


def _note(shown: Sequence[Panel], seeds: int, window: int, span: str) -> str:
    note = f"Lines: moving mean over {span}" if window > 1 else "Lines: not smoothed"
    exact = [panel.title.split(" (")[0] for panel in shown if not panel.smooth]
    if window > 1 and exact:
        note += f" (not {', '.join(exact)})"
    note += "." if seeds == 1 else f", mean of {seeds} seeds."
    if 1 < seeds < FEW_SEEDS:
        note += " Thin: each of them."
    elif seeds > 1:
        note += ("\n" if len(note) > 100 else " ") + "Bands: 95 % interval of that mean (Student's t)."
    elif window > 1:
        note += " Faint: as measured."
    return note


def _number(mean: float, half_width: float) -> str:
    digits = 1 if mean == 0 or not np.isfinite(mean) else max(1, 2 - int(np.floor(np.log10(abs(mean)))))
    return f"{mean:.{digits}f}" if np.isnan(half_width) else f"{mean:.{digits}f} ± {half_width:.{digits}f}"


def _round(value: float, significant: int = 3) -> str:
    """Format with a number of significant digits, without powers of ten and with all digits before the point."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, significant - 1 - int(np.floor(np.log10(abs(value)))))}f}".replace("-", "\u2212")
