"""`xladder compare`: run the same experiment on several rungs; writes a table, a bar chart and JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from xladder.cli.main import split_workload
from xladder.cli.options import check_writable, parse_with_config, print_line, write_json_file
from xladder.cli.signals import cleaned_up
from xladder.core.packages import install_line
from xladder.core.statistics import signed
from xladder.devices import DeviceName
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.protocols import Config
from xladder.registry import RUNGS, Workload, find_rung, find_workload, options_of
from xladder.runs.folders import RUNS, file_name, new_file


@dataclass(frozen=True)
class CompareOptions:
    """What to compare, and where to write the results."""

    rungs: str | None = None
    """Rungs separated by commas, for example torch,fused; all single-device rungs of the workload if not given."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """Number of seeds; times are per seed."""
    mesh: str | None = None
    """The device mesh of the `mesh` rung, such as data=2."""
    json: Path | None = None
    """Write the table as JSON to this file (- for standard output)."""
    chart: Path | None = None
    """The bar chart; runs/compare-WORKLOAD-TIME.png if not given."""
    device: DeviceName | None = None
    """The device to use; the best one JAX finds if not given."""
    preset: str | None = None
    """The preset to start from: one of those above."""
    config: Path | None = None
    """The config.json of a run to start from."""


def run(words: Sequence[str]) -> int:
    """Compare the rungs, print the table and write the chart."""
    name, rest = split_workload(words, "compare")
    workload = find_workload(name)
    about = f"Compare rungs on {workload.name}: {workload.summary}."
    options, config = parse_with_config(CompareOptions, workload, rest, "xladder compare", about, compared=True)
    rungs = chosen_rungs(options.rungs, workload, config, options.mesh)
    chosen: dict[str, Any] = {"seed": options.seed, "seeds": options.seeds, "device": options.device, "config": config}
    # All plans are checked before anything is printed or written.
    plans = [plan(name, rung, options=options_of(rung, options.mesh), **chosen) for rung in rungs]
    check_writable(options.json)
    console = Console(stderr=str(options.json) == "-")
    stamp = f"{file_name(workload.name)}-{time.strftime('%Y%m%d-%H%M%S')}"
    chart = options.chart or RUNS / f"compare-{stamp}.png"
    if chart.suffix != ".png" or chart.is_dir():
        raise UsageError(f"`--chart` is {chart}, but it has to be a file that ends in .png.")
    try:
        chart.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"`{chart.parent}` cannot be written: {error.strerror or error}.") from None
    check_writable(chart)

    from xladder.pictures.curves import draw_bars
    from xladder.runs.compare import compare, rungs_without_package, summarise

    print_line(console, headline(workload, config, options.seeds))
    if options.rungs is None and (lacking := rungs_without_package()):
        line = install_line(str(RUNGS[lacking[0]].extra))
        print_line(console, f"Without the rungs {', '.join(lacking)}, which need PyTorch: {line}")
    # On a signal, the measuring process has to end as well, not only this one.
    with cleaned_up(), console.status(f"measuring {rungs[0]}") as status:
        rows: list[dict[str, Any]] = []

        def write_rows() -> None:
            measured = {row["rung"] for row in rows}
            left = [rung for rung in rungs if rung not in measured]
            write_json_file(options.json, summarise(plans[0], rows) | ({"not_measured": left} if left else {}))

        def on_row(row: dict[str, Any]) -> None:
            if config.units_per_tick > 1:
                row["steps_per_second"] = config.per_tick / row[time_key]
            rows.append(row)
            if str(options.json) != "-":  # a rung may take hours, and the next one may fail
                write_rows()
            print_line(console, f"{row['rung']} done: {row[time_key] * 1000:.1f} ms per {workload.tick}. {row['note']}")
            follow(row["rung"])

        def on_left_out(rung: str, why: str) -> None:
            print_line(console, f"`{rung}` is left out. {why}")
            follow(rung)

        def follow(rung: str) -> None:
            waiting = rungs[rungs.index(rung) + 1 :]
            status.update(f"measuring {waiting[0]}" if waiting else "drawing")

        time_key = f"seconds_per_{workload.tick}"
        try:
            given = None if options.rungs is None else rungs
            found = compare(name, given, on_row, options.mesh, on_left_out=on_left_out, **chosen)
        except BaseException:
            if str(options.json) == "-" and rows:
                write_rows()
            elif options.json and rows:
                print_line(console, f"{options.json} has the rows so far.")
            raise
        chart = options.chart or new_file(chart)  # another comparison may have begun in the same second
        draw_bars(chart, found["rows"], f"{workload.name}: time per {workload.tick}")
    console.print(table(found, workload))
    for line in describe_seeds(found, workload):
        print_line(console, line)
    if found["reference"] == "compiled":
        print_line(console, "speed-up: against `compiled`, which is faster than `torch` here.")
    if not all(row["learning"] for row in found["rows"]):
        print_line(
            console,
            "The run was too short to time learning: it had not begun, or only just, and whole is mostly the time of "
            f"acting and warm-up. Give more {workload.length}.",
        )
    if any(row["update_seconds"] is None for row in found["rows"]):
        print_line(
            console,
            f"–: sampling, timed by itself, took longer than one {workload.tick}, so an update cannot be told from it.",
        )
    print_line(console, f"chart {chart}")
    write_json_file(options.json, found)
    return 0


def chosen_rungs(text: str | None, workload: Workload, config: Config, mesh: str | None = None) -> list[str]:
    """The rungs the user names, or all that can run this config here."""
    if text is None:
        from xladder.runs.compare import default_rungs

        names = default_rungs(workload, config, mesh)
    else:
        names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"`--rungs` is empty. There are: {', '.join(RUNGS)}.")
    return [find_rung(name, workload).name for name in names]


def headline(workload: Workload, config: Config, seeds: int) -> str:
    """One line on what is run."""
    what = workload.family.headline(config)
    length = f"{config.ticks * config.units_per_tick:,} {workload.length}"
    text = f"{workload.name}, {length} on each rung, one after another, {what}"
    return text + (f", {seeds} seeds" if seeds > 1 else "")


def table(found: dict[str, Any], workload: Workload) -> Table:
    """Format the comparison as a table of at most 80 columns."""
    per_seed = " and seed" if found["seeds"] > 1 else ""
    measured = [name for name in workload.family.last_measured if found["rows"][0][name] is not None]
    title = f"{workload.name} on {found['device']}: milliseconds per {workload.tick}{per_seed}"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    shown.add_column("rung", no_wrap=True)
    # An exact measurement says more than the returns during training.
    reached = measured or ["return"]
    steps = ["steps/s"] if "steps_per_second" in found["rows"][0] else []
    for head in ("whole", "sampling", "update", *steps, "speed-up", "compile s", *reached, "peak MB"):
        shown.add_column(head.replace("_", " "), justify="right", no_wrap=True)
    for row in found["rows"]:
        first, last = row["return_first"], row["return_last"]
        # A comparison has few steps, so a long episode may not have ended.
        digits = 0 if max(abs(first), abs(last)) >= 10 else 1
        returns = f"{signed(first, digits)} → {signed(last, digits)}" if isfinite(first) and isfinite(last) else "–"
        shown.add_row(
            row["rung"],
            f"{row[f'seconds_per_{workload.tick}'] * 1000:.2f}",
            *(
                "–" if row[part] is None else f"{row[part] * 1000:.2f}"
                for part in ("sampling_seconds", "update_seconds")
            ),
            *[short(row["steps_per_second"]) for _ in steps],
            "–" if row["speedup"] is None else f"{row['speedup']:.2f}×",
            f"{row['compile_seconds']:.1f}" if row["compile_seconds"] else "–",
            *([f"{row[name]:.3f}" for name in measured] or [returns]),
            f"{row['peak_memory_mb']:.0f}",
        )
    return shown


def describe_seeds(found: dict[str, Any], workload: Workload) -> list[str]:
    """Lines that give what each rung reached with its 95 % interval over seeds; a few seeds are listed one by one."""
    if found["seeds"] == 1:
        return []
    names = [name for name in workload.family.last_measured if found["rows"][0][name] is not None] or ["return_last"]
    few = found["seeds"] < 4  # a mean of so few would hide one that is far off
    lines = []
    for name in names:
        digits = 1 if name == "return_last" else 3
        texts = []
        for row in found["rows"]:
            each = [signed(one, digits) if isfinite(one) else "–" for one in row[f"{name}_per_seed"]]
            middle, width = row[name], row[f"{name}_ci95"]
            interval = f"{signed(middle, digits)} ± {width:.{digits}f}" if isfinite(width) else "–"
            texts.append(f"{row['rung']} {', '.join(each) if few else interval}")
        what = "return, last tenth" if name == "return_last" else name.replace("_", " ")
        how = "one by one" if few else "mean ± 95 %"
        lines.append(f"{what}, {found['seeds']} seeds, {how}: {'; '.join(texts)}")
    return lines


def short(rate: float) -> str:
    """Format a rate in at most seven characters."""
    return f"{rate:,.0f}" if rate < 999_999 else f"{rate / 1e6:.2f}M"
