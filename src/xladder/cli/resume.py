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
from xladder.cli.train import run_in_terminal
from xladder.runs import resuming
from xladder.runs.directory import RunDirectory

Ready = Callable[[int | None, bool], None]


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

        def resume_together(directory: RunDirectory, ready: Ready) -> int:
            plan = directory.plan
            over_all = hosts.over_all(plan.options, len(plan.seeds), among, options.mesh)
            directory.plan = replace(plan, options=over_all)
            return resume_run(directory, replace(options, rung="hosts"), ready)

        return hosts.resume(options.run, among, resume_together)
    directory = RunDirectory.open(options.run)
    try:
        return resume_run(directory, options)
    finally:
        directory.lock.release()


def resume_run(directory: RunDirectory, options: ResumeOptions, ready: Ready = lambda step, learning: None) -> int:
    """Find the last sound checkpoint and train the rest; `ready` hears which it is, and whether learning had begun."""

    def print_line(line: str) -> None:
        tell(directory, line)

    checkpoint = resuming.find_checkpoint(directory, print_line, options.rung, options.mesh)
    tools = Tools(directory, options.tools)
    if directory.is_finished:
        ticks, tick = directory.plan.config.ticks, directory.plan.workload.tick
        print(f"`{directory.path}` is finished: all {ticks:,} {tick}s are done.")
        return 0
    if checkpoint is None:
        resuming.refuse_to_replace(directory)
    options.tools.check(directory.plan, resuming.ticks_left(directory.plan, checkpoint))
    resume_state = resuming.rewind(directory, checkpoint, print_line)
    ready(
        checkpoint.step if checkpoint else None,
        resume_state is not None and bool(np.isfinite(resume_state.metrics["loss"]).any()),
    )
    return run_in_terminal(directory, resume_state, tools)


def tell(directory: RunDirectory, line: str) -> None:
    """Say it and write it down."""
    directory.log(line)
    print(line, file=sys.stderr if "damaged" in line else sys.stdout, flush=True)
