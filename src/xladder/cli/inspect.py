"""`xladder inspect`: show what a rung compiles, what a tick costs, and how close that is to the machine's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from xladder.cli.main import split_workload
from xladder.cli.options import check_writable, parse_with_config, write_json_file
from xladder.devices import DeviceName
from xladder.errors import UsageError
from xladder.plans import plan as make_plan
from xladder.registry import RUNGS, find_workload


@dataclass(frozen=True)
class InspectOptions:
    """What to inspect, and where to write the results."""

    rung: str | None = None
    """torch, compiled, hybrid, sequential, parallel or fused (the default, where there is one): see `xladder rungs`."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """Number of seeds; `fused` runs them at once, on other rungs only the first is inspected."""
    json: Path | None = None
    """Write the facts as JSON to this file (- for standard output)."""
    jaxpr: Path | None = None
    """Write the jaxprs that JAX traced from the Python code to this file."""
    hlo: Path | None = None
    """Write XLA's optimised HLO to this file."""
    device: DeviceName | None = None
    """The device to use; the best one JAX finds if not given."""
    preset: str | None = None
    """The preset to start from: one of those above."""
    config: Path | None = None
    """The config.json of a run to start from."""


def run(words: Sequence[str]) -> int:
    """Inspect a workload on a rung and print the facts."""
    name, rest = split_workload(words, "inspect")
    workload = find_workload(name)
    about = f"Inspect {workload.name}: {workload.summary}."
    options, config = parse_with_config(InspectOptions, workload, rest, "xladder inspect", about)
    if options.rung in RUNGS and not RUNGS[options.rung].one_device:
        raise UsageError(
            f"`{options.rung}` runs on several devices or processes, and `inspect` shows the programs of one device: "
            "inspect `fused` or `parallel`, and see `--profile` of `xladder train`."
        )
    plan = make_plan(name, options.rung, seed=options.seed, seeds=options.seeds, device=options.device, config=config)
    texts = {"jaxpr": options.jaxpr, "hlo": options.hlo}
    for flag, path in texts.items():
        if path and RUNGS[plan.rung].in_pytorch:
            raise UsageError(f"`{plan.rung}` has no XLA program, and no text for `--{flag}`: use another rung.")
    for path in (options.json, *texts.values()):
        check_writable(path)

    from xladder.cli import startup

    startup.prepare(plan.device, cached=False)
    from xladder.runs.environment import versions
    from xladder.runs.inspection import inspect

    console = Console(stderr=str(options.json) == "-")
    with console.status(f"inspecting {workload.name}/{plan.rung}"):
        facts, found = inspect(plan)
    console.print(f"{workload.name} on {plan.rung}, on {facts['device']}", highlight=False, soft_wrap=True)
    console.print(table(facts))
    for line in remarks(facts):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for flag, path in texts.items():
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found[flag], encoding="utf-8")
            console.print(f"{flag:<6} {path}", highlight=False, soft_wrap=True)
    write_json_file(options.json, facts | {"versions": versions()})
    return 0


def table(facts: dict[str, Any]) -> Table:
    """Format the facts as a table, with units."""
    shown = Table(box=SIMPLE, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left"):
        shown.add_column(justify=justify)
    tick, programs = facts["tick"], facts["programs"]
    all_seeds = f" of all {facts['seeds']} seeds" if facts["seeds"] > 1 else ""
    shown.add_row(f"time per {tick}{all_seeds}", *scaled(facts["tick_seconds"], "s"))
    if facts["learning"]:
        for phase, seconds in facts["phases"].items():
            shown.add_row(f"  of it {phase}", *scaled(seconds, "s"))
    if not programs:
        return shown
    several = len(programs) > 1
    shown.add_row("programs", f"{len(programs)}", "compiled before the first tick" if several else "")
    for stage in ("trace", "lower", "compile"):
        shown.add_row(f"to {stage}", *scaled(sum(one[f"{stage}_seconds"] for one in programs), "s"))
    shown.add_row("traced again in a later call", str(facts["traced_again"]), "functions (0 is right)")
    shown.add_row("size", f"{sum(one['instructions'] for one in programs):,}", "HLO instructions")
    code = sum(one["memory"].get("code", 0) for one in programs)
    shown.add_row("generated code", *(scaled(code, "B") if code else ("–", "not reported by XLA here")))
    largest = max(programs, key=lambda one: one["memory"].get("peak", 0))
    of = f", {largest['name']}" if several else ""
    for kind, bytes_ in largest["memory"].items():
        if kind != "code":
            shown.add_row(f"memory: {kind}{of}", *scaled(bytes_, "B"))
    cost, share, limit = facts["per_tick"], facts["share"], facts["limits"]
    shown.add_row(f"arithmetic per {tick}", *scaled(cost["flops"], "FLOP"))
    shown.add_row("  each loop counted once, as XLA does", *scaled(cost["flops_loops_once"], "FLOP"))
    shown.add_row(f"traffic per {tick}", *scaled(cost["bytes_accessed"], "B"))
    shown.add_row("  each loop counted once, as XLA does", *scaled(cost["bytes_accessed_loops_once"], "B"))
    shown.add_row("this machine's matrix product", *scaled(limit["flops_per_second"], "FLOP/s"))
    shown.add_row("  reached", f"{100 * share['flops']:.1f}", "% of it")
    shown.add_row("this machine's copy", *scaled(limit["bytes_per_second"], "B/s"))
    shown.add_row("  reached", f"{100 * share['bytes']:.1f}", "% of it")
    return shown


def remarks(facts: dict[str, Any]) -> list[str]:
    """Remarks that help to read the table."""
    lines = [facts["note"]] if facts["note"] else []
    if not facts["learning"]:
        lines.append(f"Learning had not started after {facts['ticks_timed']:,} {facts['tick']}s: this is acting only.")
    for one in facts["programs"]:
        if one["calls_per_tick"] is not None and len(facts["programs"]) > 1:
            lines.append(f"{one['name']:<18} {one['calls_per_tick']:>5} calls per {facts['tick']}")
    cost = facts.get("per_tick")
    if cost and cost["loops_of_unknown_length"]:
        lines.append(
            f"{cost['loops_of_unknown_length']} loops have a length that depends on data. They are counted once, so "
            "arithmetic and traffic are larger than this."
        )
    if cost and cost["choices"]:
        lines.append(
            f"For {cost['choices']} conditionals the most expensive branch is counted, whether or not it was taken: "
            "arithmetic and traffic may be smaller than this."
        )
    if cost and facts["share"]["bytes"] > 1:
        lines.append("More than 100 % of a copy is possible because data stay in caches.")
    return lines


def scaled(value: float, unit: str) -> tuple[str, str]:
    """Format a number with four digits, and its unit with an SI prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")):
        if abs(value) >= factor:
            return f"{value / factor:.4g}", prefix + unit
    return f"{value:.4g}", unit
