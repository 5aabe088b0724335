"""The curves of several runs on one axis: read, smoothed, and with a mean over seeds where there are enough.

Shapes: S seeds of a group, T ticks of a run, P points that are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from xladder.core.statistics import episode_weights, moving_mean, tenths
from xladder.errors import DamagedRun, UsageError, printable, unknown
from xladder.families.value.atari_presets import FRAMES_PER_STEP
from xladder.pictures.overlay import GroupCurve
from xladder.runs.groups import Group, same_experiment
from xladder.runs.listing import RunInfo
from xladder.runs.metrics import Table, read_table
from xladder.runs.reading import Unreadable, is_regular, read_bytes
from xladder.runs.upgrades import add_steps

Axis = Literal["steps", "seconds", "frames"]
AXES: tuple[Axis, ...] = get_args(Axis)
MOST_POINTS = 1000  # per line: fewer than pixels, and after smoothing nothing is missed
SMOOTHED = 0.02  # of a run's ticks


class Line(NamedTuple):
    """The curve of one seed."""

    run: str
    seed: int
    x: np.ndarray  # float [T], increasing
    y: np.ndarray  # float [T], all measured
    last: float
    """The mean over the last tenth of its ticks, weighted by episodes."""
    slack: float = 0.0
    """How far its ends may be held: seeds whose episodes end in different ticks end together."""


@dataclass(frozen=True)
class Overlay:
    """What a plot shows."""

    x: str
    """The name of the horizontal axis."""
    y: str
    curves: list[GroupCurve]
    skipped: list[str]
    """Sentences about runs that could not be used."""
    smoothed: bool
    """Whether lines are moving means."""


def read_overlay(groups: Sequence[Group], x: Axis, y: str) -> Overlay:
    """Read the curves of groups of runs.

    Args:
        groups: The groups, of one workload.
        x: The horizontal axis.
        y: The column of metrics.csv.
    """
    refuse_several_workloads(groups)
    frames = frames_per_step([run for group in groups for run in group.runs]) if x == "frames" else 1
    skipped: list[str] = []
    columns: set[str] = set()
    curves: list[GroupCurve] = []
    repeated: dict[tuple[str, str], list[int]] = {}
    smoothed = False
    for group in groups:
        lines: dict[tuple[str, int], Line] = {}
        for run in group.runs:
            try:
                table = read_metrics(run)
            except (Unreadable, DamagedRun) as error:
                skipped.append(f"{printable(run.name)} is skipped: {printable(str(error).removesuffix('.'))}.")
                continue
            columns |= table.columns.keys()
            if y not in table.columns:
                skipped.append(f"{printable(run.name)} is skipped: it has no column {printable(y)}.")
                continue
            if x != "seconds" and not np.isfinite(table.columns["steps"]).any():
                skipped.append(f"{printable(run.name)} is skipped: it has no numbers of steps, so use `--x seconds`.")
                continue
            values, smooth = smooth_column(table, y)
            smoothed |= smooth
            for line in _lines(run, table, y, values, x, frames, SMOOTHED if smooth else 0.0):
                key = same_experiment(run), line.seed
                if key in lines:  # the same seed again is not another sample
                    repeated.setdefault((lines[key].run, line.run), []).append(line.seed)
                if key not in lines or line.x[-1] > lines[key].x[-1]:
                    lines[key] = line
        if lines:
            curves.append(_curve(group.label, list(lines.values())))
    for (one, other), seeds in repeated.items():
        both, several = f"{printable(one)} and {printable(other)}", len(seeds) > 1
        which = f"{len(seeds)} seeds are" if several else f"Seed {seeds[0]} is"
        skipped.append(f"{which} in {both}: the longer {'ones are' if several else 'one is'} used.")
    if not curves:
        if columns and y not in columns:
            raise unknown("column", printable(y), map(printable, columns))
        why = f"`{printable(y)}` has no values yet" if y in columns else "no run has metrics that can be read"
        raise UsageError(f"There is nothing to draw: {why}. {' '.join(skipped)}".strip())
    iterations = x == "steps" and all("iterations" in run.settings for group in groups for run in group.runs)
    return Overlay("iterations" if iterations else x, y, curves, skipped, smoothed)


def refuse_several_workloads(groups: Sequence[Group]) -> None:
    """Raise a `UsageError` if there is more than one workload."""
    workloads = sorted({printable(run.workload) for group in groups for run in group.runs})
    if len(workloads) > 1:
        raise UsageError(
            f"These are runs of {len(workloads)} workloads ({', '.join(workloads)}), whose curves have no common "
            "scale: name runs of one, or compare scores with `--scores`."
        )


def frames_per_step(runs: Sequence[RunInfo]) -> int:
    """Frames of an environment step; a `UsageError` for a world that has none."""
    for run in runs:
        if "frames" not in run.settings:
            raise UsageError(
                f"`--x frames` needs a world with frames, and `{printable(run.workload)}` has none: use steps."
            )
    return FRAMES_PER_STEP


def read_metrics(run: RunInfo) -> Table:
    """Read the metrics of a run, also one that is being written."""
    file = run.path / "metrics.csv"
    if not is_regular(file):
        raise Unreadable("it has no metrics yet")
    try:
        header = read_bytes(file, 0, 4096).partition(b"\n")[0].decode("ascii", "replace").strip().split(",")
    except OSError as error:
        raise Unreadable(f"metrics.csv cannot be read ({error.strerror or error})") from None
    table = read_table(file, header[1] if len(header) > 1 else "")
    if not table.seeds:
        raise Unreadable("it has no metrics yet")
    add_steps(table.columns, table.ends, run.settings)
    if not set(table.seeds) <= set(run.seeds):
        raise Unreadable("metrics.csv has seeds that config.json does not have")
    return table


def smooth_column(table: Table, name: str) -> tuple[np.ndarray, bool]:
    """A column [S, T] with a moving mean, weighted by episodes; as it is if it is measured rarely.

    Returns:
        The column, and whether it is a moving mean.
    """
    values, weights = table.columns[name], episode_weights(name, table.columns)
    window = round(SMOOTHED * values.shape[1])
    rare = weights is None and np.isfinite(values).mean() < 0.5  # an evaluation now and then: every point counts
    if rare or window < 2:
        return values, False
    return moving_mean(values, window, weights), True


def _lines(run: RunInfo, table: Table, name: str, values: np.ndarray, x: Axis, frames: int, slack: float) -> list[Line]:
    places = elapsed(table.columns["seconds"]) if x == "seconds" else table.columns["steps"] * frames
    last = tenths(table.columns[name], episode_weights(name, table.columns))[1]
    found = []
    for seed, at, line, late in zip(table.seeds, places, values, last, strict=True):
        measured = np.isfinite(line) & np.isfinite(at)
        if measured.any():
            mean = float(late if np.isfinite(late) else line[measured][-1])  # measured rarely: the last value
            found.append(Line(run.name, seed, at[measured], line[measured], mean, slack * float(np.nanmax(at))))
    return found


def elapsed(seconds: np.ndarray) -> np.ndarray:
    """The time that each seed has trained at each tick, from `seconds` [S, T] of metrics.csv.

    There, rows of a chunk have the time at its end, and seeds that are trained one after another count on.
    """
    found, before = np.full_like(seconds, np.nan), 0.0
    for s, row in enumerate(seconds):
        ticks = np.flatnonzero(np.isfinite(row))
        if not len(ticks):
            continue
        times = row[ticks]
        begin = before if times[0] > before else 0.0  # else all seeds at once
        ends = np.flatnonzero(np.append(np.diff(times) > 0, True))
        found[s, ticks] = np.interp(np.arange(len(ticks)), [-1, *ends], [0.0, *(times[ends] - begin)])
        before = max(before, times[-1])
    return found


def _curve(label: str, lines: Sequence[Line]) -> GroupCurve:
    points = np.unique(np.concatenate([line.x for line in lines]))
    if len(points) > MOST_POINTS:
        points = np.linspace(points[0], points[-1], MOST_POINTS)
    drawn = np.stack([_at(points, line) for line in lines])
    runs, seeds = [line.run for line in lines], [line.seed for line in lines]
    return GroupCurve(label, points, drawn, runs, seeds, np.array([line.last for line in lines]))


def _at(points: np.ndarray, line: Line) -> np.ndarray:
    """The values of a line at these points [P]; NaN where it has not begun or has ended."""
    inside = (points >= line.x[0] - line.slack) & (points <= line.x[-1] + line.slack)
    return np.where(inside, np.interp(points, line.x, line.y), np.nan)
