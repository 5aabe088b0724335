"""`xladder plot`: draw the curves of several runs in one picture, or compare their scores over several worlds."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

from xladder.cli.options import check_writable, parse, write_json_file
from xladder.core.aggregates import Estimate
from xladder.core.statistics import mean_and_interval
from xladder.errors import UsageError, printable
from xladder.pictures.overlay import FEWEST_SEEDS, MOST_GROUPS, GroupCurve, count_seeds, draw_overlay
from xladder.runs.groups import Group, collect, group_runs, mixed
from xladder.runs.overlays import Axis, Overlay, read_overlay
from xladder.runs.scores import Scale

ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class PlotOptions:
    """Which runs to draw, and how."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")] = ()
    """Run directories, or folders of runs."""
    by: str | None = None
    """Group runs by this config field, such as learner.lr, rung or tags; several with commas. If not given, runs that
    differ only in seed are a group."""
    x: Axis = "steps"
    """The horizontal axis."""
    y: str = "return"
    """The metric: return, eval_return, loss, tv or another column of metrics.csv."""
    scores: bool = False
    """Compare final scores over several worlds instead: interquartile mean, performance profiles and probability of
    improvement."""
    out: Path = Path("plot.png")
    """The picture; .png, .svg or .pdf."""
    json: Path | None = None
    """Write what is drawn as JSON to this file (- for standard output)."""


def run(words: Sequence[str]) -> int:
    """Draw runs."""
    options = parse(
        PlotOptions,
        words,
        "xladder plot",
        "Draw the curves of several runs in one picture: a mean with its 95 % interval for four seeds or more, single "
        "lines for fewer. With `--scores`, compare final scores over several worlds.",
    )
    if not options.runs:
        raise UsageError("`xladder plot` needs runs, or folders of runs: xladder plot runs")
    if options.out.suffix.lower() not in ENDINGS:
        raise UsageError(f"`--out` is {options.out}, but it has to end in {', '.join(ENDINGS)}.")
    check_writable(options.out)
    check_writable(options.json)
    found = collect(options.runs)
    groups = group_runs(found.runs, [name for name in (options.by or "").split(",") if name])
    if len(groups) > MOST_GROUPS:
        raise UsageError(
            f"There are {len(groups)} groups, and {MOST_GROUPS} can be told apart: name fewer runs, or a field that "
            "groups them with `--by`."
        )
    console = Console(stderr=str(options.json) == "-", highlight=False, markup=False)
    warn(found.skipped)
    if also := mixed(groups):
        more = f" and {len(also) - 3} more" if len(also) > 3 else ""
        warn([f"Runs of a group also differ in {', '.join(map(printable, also[:3]))}{more}."])
    data = (compare_scores if options.scores else overlay)(groups, options, console)
    console.print(f"picture  {printable(options.out)}", soft_wrap=True)
    write_json_file(options.json, data)
    return 0


def overlay(groups: Sequence[Group], options: PlotOptions, console: Console) -> dict[str, Any]:
    """Draw curves. Returns them JSON-ready."""
    found = read_overlay(groups, options.x, options.y)
    warn(found.skipped)
    workload = printable(groups[0].runs[0].workload)
    title = f"{workload} · {found.curves[0].label}" if len(groups) == 1 and options.by else workload
    with writing(options.out):
        draw_overlay(options.out, found.curves, title, found.x, found.y, found.smoothed)
    for curve in found.curves:
        console.print(f"{curve.label}: {describe(curve)}", soft_wrap=True)
    return as_json(found)


def compare_scores(groups: Sequence[Group], options: PlotOptions, console: Console) -> dict[str, Any]:
    """Draw scores over several worlds, and print them. Returns them JSON-ready."""
    from xladder.pictures.scores import draw_scores
    from xladder.runs import scores

    found = scores.compare_groups(groups)
    warn(found.skipped)
    worlds = ", ".join(map(printable, found.scales))
    scale = describe_scales(found.scales)
    note = f"Scores: {scale}. Bands: 95 % interval (stratified bootstrap over seeds)."
    with writing(options.out):
        draw_scores(
            options.out,
            found.labels,
            found.iqms,
            found.thresholds,
            found.profiles,
            found.improvements,
            f"{len(found.scales)} world{'s' * (len(found.scales) > 1)}: {worlds}"[:110],
            "\n".join(textwrap.wrap(note, 150)),
        )
    second = ", and then over worlds and seeds" if found.over_worlds else ""
    console.print(f"{scale}; in brackets the 95 % interval over seeds{second}.", soft_wrap=True)

    def estimates(what: str, i: int, estimate: Estimate) -> str:
        wider = f" {format_interval(found.over_worlds[what][i])}" if found.over_worlds else ""
        return format_estimate(estimate) + wider

    for i, (label, iqm, gap, runs) in enumerate(zip(found.labels, found.iqms, found.gaps, found.scores, strict=True)):
        count = sum(len(values) for values in runs.values())
        line = f"interquartile mean {estimates('iqm', i, iqm)}, optimality gap {estimates('gap', i, gap)}"
        console.print(f"{label}: {line} of {count} scores", soft_wrap=True)
    for i, ((a, b), chance) in enumerate(found.improvements.items()):
        line = f"{found.labels[a]} beats {found.labels[b]} with probability {estimates('improvement', i, chance)}"
        console.print(line, soft_wrap=True)
    return scores.as_json(found)


def describe_scales(scales: Mapping[str, Scale]) -> str:
    """What the numbers on the common scale mean."""
    words = {"human": "1 a human", "best": "1 the best run", "worst": "−1 the worst run, where none beats it,"}
    parts = ["0 is random play"]
    for anchor, text in words.items():
        worlds = [printable(world) for world, scale in scales.items() if scale.anchor == anchor]
        parts += [f"{text} ({', '.join(worlds)})"] * bool(worlds)
    return ", ".join(parts)


def describe(curve: GroupCurve) -> str:
    """How many seeds, and the mean over the last tenth of training, as `train` and `report` give it."""
    mean, half_width = mean_and_interval(curve.last)
    count = int(np.isfinite(curve.last).sum())
    interval = f" ± {half_width:.3g}" if count >= FEWEST_SEEDS else ""
    return f"{count_seeds(curve)}, {mean:.4g}{interval} over the last tenth"


def format_estimate(estimate: Estimate) -> str:
    """A value and its interval."""
    return f"{estimate.value:.2f} {format_interval(estimate)}".rstrip()


def format_interval(estimate: Estimate) -> str:
    """An interval, or an empty string if there is none."""
    return f"[{estimate.low:.2f}, {estimate.high:.2f}]" if np.isfinite(estimate.low) else ""


def as_json(found: Overlay) -> dict[str, Any]:
    """Convert curves to JSON-ready data: every group has its mean and interval, or its lines."""
    groups = []
    for curve in found.curves:
        lines = [{"run": run, "seed": seed} for run, seed in zip(curve.runs, curve.seeds, strict=True)]
        group: dict[str, Any] = {"label": curve.label, "x": curve.x.tolist(), "lines": lines}
        if curve.has_mean:
            mean, half_width = curve.mean_and_interval()
            low, high = mean - half_width, mean + half_width
            group |= {"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}
        else:
            for line, values in zip(lines, curve.lines, strict=True):
                line["y"] = values.tolist()
        groups.append(group)
    return {"x": found.x, "y": found.y, "groups": groups}


def warn(lines: Sequence[str]) -> None:
    """Print what was left out on standard error."""
    for line in lines:
        print(f"xladder: {line}", file=sys.stderr)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors about the file into a sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error.strerror or error}.") from None
