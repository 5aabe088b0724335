"""Pictures of a run: learning curves and the time per tick of each rung, as PNG.

Shapes: S seeds, T ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.runs.charts import BLUE, FAINT, INK, chart_style, new_figure
from xladder.runs.statistics import last_tenth, mean_and_interval, moving_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHER_COLOURS = ("#CC79A7", "#009E73", "#E69F00", "#56B4E9", "#000000")
ITEM_COLOURS = {"gem": "#0072B2", "bone": "#7f7f7f", "food": "#D55E00"}
MOST_ITEMS = 6  # lines in one panel that can still be told apart


def draw_curves(
    path: str | Path,
    columns: Mapping[str, np.ndarray],
    title: str,
    x_label: str,
    references: Mapping[str, float] | None = None,
    items: Sequence[str] = ("gem", "bone", "food"),
) -> None:
    """Draw how training went, 1600 pixels wide.

    `columns` are float [S, T] by name: "return", "loss", "epsilon" and those in `items` are drawn, others are not.
    `x_label` is what one tick is called ("epoch"); `references` become dashed lines across the returns.
    """
    measured = {name: np.atleast_2d(np.asarray(values, float)) for name, values in columns.items()}
    # Few lines that can be read beat many that cannot: keep the items that are found most often in the end.
    often = sorted(set(items) & set(measured), key=lambda name: -last_tenth(measured[name])[0])[:MOST_ITEMS]
    found = {name: measured[name] for name in items if name in often}
    small = [name for name in ("items", "loss", "epsilon") if (found if name == "items" else name in measured)]
    rows: list[Any] = ([["return"] * max(1, len(small))] if "return" in measured else []) + ([small] if small else [])
    if not rows:
        raise ValueError(f"Curves need a return, loss, epsilon or item, but there are only {list(columns)}.")
    seeds, ticks = measured[next(iter(found), rows[0][0])].shape
    window = max(1, round(0.02 * ticks))

    with chart_style():
        figure = new_figure(height=6.4 if len(rows) == 2 else 4.4)
        panels: dict[str, Axes] = figure.subplot_mosaic(rows, height_ratios=[1.5, 1.0][: len(rows)])
        for name, axes in panels.items():
            if name == "items":
                _draw_items(axes, found, window)
                axes.set_title(f"items collected per {x_label}")
            else:
                # Epsilon follows a rule: there is no noise to smooth away.
                _draw_line(axes, measured[name], 1 if name == "epsilon" else window, BLUE, raw=True)
            if name == "return":
                axes.set_title(f"return per {x_label}")
                axes.set_title(f"last tenth: {_number(*last_tenth(measured[name]))}", loc="right", color=BLUE)
                _keep_in_view(axes, [measured[name]], window)
                _draw_references(axes, references or {})
            elif name == "loss":
                axes.set_title("loss")
                _scale_loss(axes, measured[name], window)
            elif name == "epsilon":
                axes.set_title("ε (random actions)")
                axes.set_ylim(-0.03, 1.03)
            _mark_ticks(axes, ticks, x_label)
        _write_note(figure, seeds, window, x_label)
        figure.suptitle(title, x=0.008, ha="left")
        figure.savefig(path)


def draw_bars(path: str | Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the time per tick of each rung, in milliseconds, with its speed-up beside the bar.

    Each row has "rung", one "seconds_per_…" and, where it is known, "speedup".
    """
    if not rows:
        raise ValueError("Bars need one row or more, but there are none.")
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
                    bar.set_color("#8c959f")  # the row that the others are measured against
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


def _draw_line(
    axes: Axes, values: np.ndarray, window: int, colour: str, raw: bool = False, label: str | None = None
) -> None:
    x = np.arange(1, values.shape[1] + 1)
    mean, half_width = mean_and_interval(moving_mean(values, window))
    if raw and window > 1 and len(values) == 1:
        axes.plot(x, values[0], color=colour, alpha=0.22, linewidth=0.7)
    if len(values) > 1:
        axes.fill_between(x, mean - half_width, mean + half_width, color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, mean, color=colour, linewidth=2, label=label, marker="o" if len(x) == 1 else None)


def _draw_items(axes: Axes, found: Mapping[str, np.ndarray], window: int) -> None:
    others = iter(OTHER_COLOURS * len(found))
    for name, values in found.items():
        _draw_line(axes, values, window, ITEM_COLOURS.get(name) or next(others), label=name)
    _keep_in_view(axes, list(found.values()), window)
    axes.set_ylim(bottom=0)
    # Above the lines, in room made for it: a legend must not hide what it explains.
    axes.set_ylim(top=axes.get_ylim()[1] * (1.12 + 0.14 * ((len(found) + 2) // 3)))
    axes.legend(loc="upper left", ncols=3, handlelength=1, columnspacing=1, handletextpad=0.4, borderaxespad=0)


def _keep_in_view(axes: Axes, drawn: list[np.ndarray], window: int) -> None:
    """Bands over two or three seeds can dwarf the curves: fit the axis to the curves, let the bands run out."""
    curves = np.concatenate([moving_mean(values, window).ravel() for values in drawn])
    curves = curves[np.isfinite(curves)]
    if len(drawn[0]) > 1 and len(np.unique(curves)) > 1:
        room = 0.25 * np.ptp(curves)
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, curves.min() - room), min(top, curves.max() + room))


def _draw_references(axes: Axes, references: Mapping[str, float]) -> None:
    for value in references.values():
        axes.axhline(value, color=INK, linewidth=1.1, linestyle=(0, (5, 4)), zorder=1.5)
    bottom, top = axes.get_ylim()
    room = 0.1 * (top - bottom)  # what a label needs
    bottom = min([bottom, *(value - room for value in references.values())])
    top = max([top, *(value + room for value in references.values())])
    axes.set_ylim(bottom, top)
    below = -np.inf
    for name, value in sorted(references.items(), key=lambda pair: pair[1]):
        # Of two lines close together, the lower one's label hangs under its line.
        nearest = min((other - value for other in references.values() if other > value), default=np.inf)
        hang = nearest < room < value - below
        below = value
        text = axes.annotate(f"{name}: {_round(value)}", (1, value), xycoords=("axes fraction", "data"), ha="right")
        text.set(position=(-4, -4 if hang else 4), anncoords="offset points", va="top" if hang else "bottom")
        text.set_bbox({"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1})


def _scale_loss(axes: Axes, loss: np.ndarray, window: int) -> None:
    measured = loss[np.isfinite(loss)]
    if not measured.size:
        axes.text(0.5, 0.5, "no update yet", transform=axes.transAxes, ha="center", color=FAINT)
        axes.set_yticks([])
        return
    logarithmic = measured.min() > 0 and measured.max() > 3 * measured.min()  # within less, both look the same
    if logarithmic:
        axes.set_yscale("log")
    _keep_in_view(axes, [loss], window)
    if logarithmic:
        bottom, top = axes.get_ylim()
        # Powers of ten alone label too little of a short axis.
        labelled = "23456789" if top < 2.5 * bottom else "2346" if top < 20 * bottom else ""
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in labelled else "")


def _mark_ticks(axes: Axes, ticks: int, x_label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    if ticks == 1:
        axes.set(xlim=(0.5, 1.5), xticks=[1])
    else:
        axes.set_xlim(1, ticks)
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(x_label)


def _write_note(figure: Figure, seeds: int, window: int, x_label: str) -> None:
    smooth = f"moving mean over {window} {x_label}s" if window > 1 else "not smoothed"
    note = f"Lines: {smooth}" + ("." if seeds == 1 else f", mean of {seeds} seeds.")
    if seeds > 1:
        note += " Bands: 95 % interval of that mean (Student's t)."
    elif window > 1:
        note += " Faint: as measured."
    figure.supxlabel(note, x=0.008, ha="left", fontsize=9.5, color=FAINT)


def _number(mean: float, half_width: float) -> str:
    return f"{mean:.1f}" if np.isnan(half_width) else f"{mean:.1f} ± {half_width:.1f}"


def _round(value: float, significant: int = 3) -> str:
    """So many significant digits, without powers of ten and with every digit before the point."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, significant - 1 - int(np.floor(np.log10(abs(value)))))}f}".replace("-", "\u2212")
