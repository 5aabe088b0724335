"""`xladder resume`: go on with a run that was stopped, killed or unplugged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from xladder.cli import hosts
from xladder.cli.hosts import HostOptions
from xladder.cli.options import parse
from xladder.cli.tools import ToolOptions, Tools
from xladder.cli.train import see_through
from xladder.errors import UsageError
from xladder.registry import RUNGS, check_rung, find_rung, options_for
from xladder.results import Plan
from xladder.rungs import layout
from xladder.runs.checkpoints import Checkpoint
from xladder.runs.directory import AGENTS, RunDirectory
from xladder.trainer import Past
from xladder.training import seed_groups

Ready = Callable[[int | None, bool], None]
EXCHANGEABLE = ("sequential", "parallel", "fused", "mesh", "hosts")  # rungs whose state is the same


@dataclass(frozen=True)
class ResumeOptions:
    """Which run, and where it goes on."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    rung: str | None = None
    """Go on on another rung: any of sequential, parallel, fused, mesh and hosts may take over from another of them."""
    mesh: str | None = None
    """Go on on devices that lie otherwise, such as data=2 (implies `--rung mesh`)."""
    tools: Annotated[ToolOptions, tyro.conf.arg(name="")] = field(default_factory=ToolOptions)
    meeting: Annotated[HostOptions, tyro.conf.arg(name="")] = field(default_factory=HostOptions)


def run(words: Sequence[str]) -> int:
    """Take the directory over and go on."""
    options = parse(ResumeOptions, words, "xladder resume", "Go on with a run where its last checkpoint left it.")
    if hosts.asked_for(options.meeting, options.rung):
        among = hosts.membership(options.meeting)
        hosts.refuse_tools(options.tools)

        def take_up_together(directory: RunDirectory, ready: Ready) -> int:
            plan = directory.plan
            over_all = hosts.over_all(plan.options, len(plan.seeds), among, options.mesh)
            directory.plan = replace(plan, options=over_all)
            return take_up(directory, replace(options, rung="hosts"), ready)

        return hosts.resume(options.run, among, take_up_together)
    directory = RunDirectory.open(options.run)
    try:
        return take_up(directory, options)
    finally:
        directory.lock.release()


def take_up(directory: RunDirectory, options: ResumeOptions, ready: Ready = lambda step, learning: None) -> int:
    """Find the last sound checkpoint and train the rest; `ready` hears which it is, and whether learning had begun."""
    checkpoint = directory.checkpoints.latest(lambda line: tell(directory, line))
    asked = options.rung or ("mesh" if options.mesh else None)
    planned = directory.plan
    directory.plan = laid_out(planned, choose_rung(planned, checkpoint, asked), options.mesh)
    tools = Tools(directory, options.tools)
    if directory.is_finished:
        ticks, tick = directory.plan.config.ticks, directory.plan.workload.tick
        print(f"`{directory.path}` is finished: all {ticks:,} {tick}s are done.")
        return 0
    if checkpoint is None:
        refuse_to_replace(directory)
    options.tools.check(directory.plan, ticks_left(directory.plan, checkpoint))
    if checkpoint is None:
        tell(directory, "There is no checkpoint yet: the run begins anew.")
        if directory.plan != planned:  # nothing else says on which rung it is from now on
            directory.write_config()
        directory.writer.begin_anew()
        ready(None, False)
        return see_through(directory, None, tools)
    facts = checkpoint.facts
    metrics = directory.writer.go_back(facts)
    tell(directory, f"Going on from {directory.checkpoints.path(checkpoint.step).name}.")
    if not directory.plan.config.world.jittable and not any(".worlds." in n for n in checkpoint.arrays):
        tell(directory, "Its games could not be saved, so new ones begin: not quite the run that it would have been.")
    ready(checkpoint.step, bool(np.isfinite(metrics["loss"]).any()))
    return see_through(directory, Past(checkpoint.arrays, facts, metrics), tools)


def refuse_to_replace(directory: RunDirectory) -> None:
    """Raise a `UsageError` if agents would be lost by beginning anew: a run that was killed early has none."""
    if not (directory.path / AGENTS).exists():
        return
    if not directory.writer.path.exists():
        raise UsageError(f"`{directory.path}` has imported agents and was never trained: use `xladder train`.")
    raise UsageError(
        f"`{directory.path}` has agents and no checkpoint to go on from, and they are not replaced. To score them: "
        f"{directory.way_on}"
    )


def ticks_left(plan: Plan, checkpoint: Checkpoint | None) -> int:
    """How many ticks the seeds that are next have before them."""
    if checkpoint is None:
        return int(plan.config.ticks)
    left = int(plan.config.ticks - checkpoint.facts["done"])
    more = checkpoint.facts["group"] + 1 < len(seed_groups(plan))
    return left or (int(plan.config.ticks) if more else 0)


def choose_rung(plan: Plan, checkpoint: Checkpoint | None, asked: str | None) -> str:
    """The rung to go on on; a sentence if its state is another."""
    saved = checkpoint.facts["rung"] if checkpoint else plan.rung
    if asked is None or asked == saved:
        return str(saved)
    find_rung(asked, plan.workload)
    check_rung(asked, plan.workload, plan.config)
    if checkpoint is None:
        return asked
    reason = ""
    if asked not in EXCHANGEABLE or saved not in EXCHANGEABLE:
        alone = saved if saved not in EXCHANGEABLE else asked
        reason = f"what `{alone}` holds no other can take up; {', '.join(EXCHANGEABLE)} hold the same state"
    elif len(plan.seeds) > 1 and seed_groups(plan) != seed_groups(replace(plan, rung=asked)):
        reason = "one has all seeds side by side, the other one after another"
    elif "fused" in (asked, saved) and not plan.config.world.jittable:
        reason = "on `fused` the games are inside the program and cannot be carried"
    if reason:
        raise UsageError(f"A run saved on `{saved}` cannot go on on `{asked}`: {reason}.")
    return asked


def laid_out(plan: Plan, rung: str, mesh: str | None) -> Plan:
    """The plan on that rung, over those devices; what is learned stays the same."""
    if "mesh" not in RUNGS[rung].options:
        return replace(plan, rung=rung, options=options_for(rung, plan.options))
    if not (mesh or plan.options.mesh):
        raise UsageError(f"`{rung}` needs `--mesh`: `seeds=4`, `data=4` or both, with a comma.")
    options = replace(options_for(rung, plan.options), mesh=mesh or plan.options.mesh)
    found = layout.fit(plan.workload.family, plan.config, layout.parse(str(options.mesh)), len(plan.seeds))
    if found != plan.config:
        raise UsageError(
            f"`--mesh {options.mesh}` would need batches in {found.learner.strata} groups, and the run has "
            f"{plan.config.learner.strata} (`--learner.strata`), which cannot change while it goes on."
        )
    return replace(plan, rung=rung, options=options)


def tell(directory: RunDirectory, line: str) -> None:
    """Say it and write it down."""
    directory.log(line)
    print(line, file=sys.stderr if "damaged" in line else sys.stdout, flush=True)
