"""`xladder resume`: continue a run that was stopped or killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from xladder.cli import hosts, sweep
from xladder.cli.hosts import HostOptions
from xladder.cli.options import parse
from xladder.cli.tools import ToolOptions, Tools
from xladder.cli.train import run_in_terminal
from xladder.errors import UsageError
from xladder.runs import resuming
from xladder.runs.directory import RunDirectory
from xladder.sweeps.sweep import is_sweep

Ready = Callable[[int | None, bool], None]


@dataclass(frozen=True)
class ResumeOptions:
    """Which run to resume, and where."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run directory."""
    rung: str | None = None
    """Continue on another rung; sequential, parallel, fused, mesh and hosts can replace each other."""
    mesh: str | None = None
    """Continue on another device mesh, such as data=2 (implies `--rung mesh`)."""
    epochs: int | None = None
    """Train to this many epochs, more than the run was planned for; also if it is finished."""
    steps: int | None = None
    """Train to this many steps."""
    frames: int | None = None
    """Train to this many frames."""
    iterations: int | None = None
    """Train to this many iterations."""
    ray: str | None = None
    """HOST:PORT of the Ray cluster to continue on, for a run on `actors`; `local` starts one."""
    watch: bool = False
    """Show the run in a browser while it trains; the address is printed."""
    tools: Annotated[ToolOptions, tyro.conf.arg(name="")] = field(default_factory=ToolOptions)
    meeting: Annotated[HostOptions, tyro.conf.arg(name="")] = field(default_factory=HostOptions)


def run(words: Sequence[str]) -> int:
    """Resume a run and print its results."""
    resuming.refuse_other_workers([word.partition("=")[0] for word in words], "--")
    options = parse(ResumeOptions, words, "xladder resume", "Continue a run from its last checkpoint.")
    if hosts.asked_for(options.meeting, options.rung):
        among = hosts.membership(options.meeting)
        hosts.refuse_tools(options.tools)
        if options.watch:
            raise UsageError("`--watch` is for a run of one process: use `xladder watch RUN` beside this one.")

        def resume_together(directory: RunDirectory, ready: Ready) -> int:
            plan = directory.plan
            over_all = hosts.over_all(plan.options, len(plan.seeds), among, options.mesh)
            directory.plan = replace(plan, options=over_all)
            return resume_run(directory, replace(options, rung="hosts"), ready)

        return hosts.resume(options.run, among, resume_together)
    if is_sweep(options.run):
        if options.rung or options.mesh:
            raise UsageError(f"`{options.run}` is a sweep: it goes on as it began, without `--rung` and `--mesh`.")
        return sweep.resume(options.run)
    directory = RunDirectory.open(options.run)
    try:
        return resume_run(directory, options)
    finally:
        directory.lock.release()


def resume_run(directory: RunDirectory, options: ResumeOptions, ready: Ready = lambda step, learning: None) -> int:
    """Find the last intact checkpoint and train the rest.

    Args:
        directory: The run.
        options: The command's options.
        ready: Called with the checkpoint's step, or None, and whether learning had started.

    Returns:
        The exit code.
    """

    def print_line(line: str) -> None:
        log_and_print(directory, line)

    lengths = {name: getattr(options, name) for name in ("epochs", "steps", "frames", "iterations")}
    if options.ray is not None:
        resuming.move_to_cluster(directory, options.ray)
    elif address := resuming.recorded_cluster(directory):
        print_line(f"Ray is started here: the cluster at {address} is used only if you name it again, with `--ray`.")
    checkpoint = resuming.find_checkpoint(directory, print_line, options.rung, options.mesh)
    longer = resuming.lengthen(directory, checkpoint, lengths, print_line)
    tools = Tools(directory, options.tools)
    if directory.is_finished and not longer:
        ticks, tick = directory.plan.config.ticks, directory.plan.workload.tick
        print(f"`{directory.path}` is complete: all {ticks:,} {tick}s are done.")
        return 0
    if checkpoint is None:
        resuming.refuse_to_replace(directory)
    options.tools.check(directory.plan, resuming.ticks_left(directory.plan, checkpoint))
    resume_state = resuming.rewind(directory, checkpoint, print_line)
    ready(checkpoint.step if checkpoint else None, resume_state is not None and resume_state.has_learned)
    return run_in_terminal(directory, resume_state, tools, options.watch)


def log_and_print(directory: RunDirectory, line: str) -> None:
    """Print a line and log it; lines about damage go to standard error."""
    directory.log(line)
    print(line, file=sys.stderr if "damaged" in line else sys.stdout, flush=True)
