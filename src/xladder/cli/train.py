"""`xladder train`: train a workload on a rung and write a run directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from rich.console import Console

from xladder.cli import hosts, startup
from xladder.cli.hosts import HostOptions
from xladder.cli.main import split_workload
from xladder.cli.options import parse_with_config, split_tags, with_workload
from xladder.cli.tools import ToolOptions, Tools
from xladder.devices import DeviceName
from xladder.distributed import cluster, supervised
from xladder.errors import UsageError, UserCodeFailed
from xladder.plans import plan as make_plan
from xladder.registry import RungOptions, find_workload
from xladder.results import Result
from xladder.runs.directory import AGENTS, Keeping, RunDirectory
from xladder.runs.folders import folder_for
from xladder.runs.trackers import check_trackers
from xladder.stopwatch import command_begun
from xladder.trainer import ResumeState


@dataclass(frozen=True)
class TrainOptions:
    """How and where to run."""

    rung: str | None = None
    """torch, compiled, hybrid, sequential, parallel, fused (the default, where there is one), mesh, hosts or actors."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """Number of seeds: seed, seed + 1, …; at once on `fused`, `mesh` and `hosts`, one after another elsewhere."""
    out: Path | None = None
    """The run directory; runs/WORKLOAD-RUNG-TIME if not given."""
    name: str | None = None
    """A name for the run, whose directory is then runs/NAME."""
    tag: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TAG")] = ()
    """Words to find the run by (`xladder runs --tag`), given one by one or with commas."""
    device: DeviceName | None = None
    """The device to use; the best one JAX finds if not given."""
    preset: str | None = None
    """The preset to start from: one of those above."""
    config: Path | None = None
    """The config.json of another run to start from."""
    eval_episodes: int | None = None
    """Episodes (default 20) or objects (10,000) of the one evaluation after training; 0 skips it and the replay."""
    record_every: int | None = None
    """Save a replay every so many epochs, steps, frames or iterations, in media/."""
    ticks_per_row: int | None = None
    """Ticks per row of metrics.csv; 1 if not given, more in runs that would have more than 20,000 rows."""
    track: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="SERVICE")] = ()
    """Send the metrics to wandb or trackio as well; neither can stop or slow the run."""
    checkpoint_every: int | None = None
    """Ticks between checkpoints; about once a minute if not given, never if 0."""
    keep: int = 2
    """Number of checkpoints to keep, besides the best."""
    on_nan: Literal["stop", "continue"] = "stop"
    """What to do when a loss or parameter is NaN or infinite."""
    mesh: str | None = None
    """Shard seeds, or the work of each, over devices: seeds=4, data=2 or both with a comma (implies `--rung mesh`)."""
    threads: int | None = None
    """PyTorch threads on `torch`, `compiled` and `hybrid`; the best number is measured if not given."""
    actors: int | None = None
    """Number of actor processes on `actors`; as many as there are spare cores if not given."""
    shards: int | None = None
    """Number of replay shards on `actors`, each its own process; 1 if not given."""
    ray: str | None = None
    """HOST:PORT of the Ray cluster to use on `actors`; a local Ray is started if not given."""
    lock_step: bool = False
    """Make actors and learner wait for each other on `actors`, which gives the synchronous algorithm."""
    start_from: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Start from trained agents: a run directory, or a file of PyTorch, sorrel or safetensors."""
    watch: bool = False
    """Show the run in a browser while it trains; the address is printed. `xladder watch` does it for any run."""
    tools: Annotated[ToolOptions, tyro.conf.arg(name="")] = field(default_factory=ToolOptions)
    meeting: Annotated[HostOptions, tyro.conf.arg(name="")] = field(default_factory=HostOptions)


class PatientConsole(Console):
    """Keeps the run going silently when its output is closed (`xladder train … | head`)."""

    def on_broken_pipe(self) -> None:
        """Called by rich in place of a BrokenPipeError."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(words: Sequence[str]) -> int:
    """Train a workload and print its results."""
    name, rest = split_workload(with_workload(words, "xladder train"), "train")
    workload = find_workload(name)
    options, config = parse_with_config(TrainOptions, workload, rest, "xladder train", workload.summary)
    rung_options = RungOptions(
        threads=options.threads,
        mesh=options.mesh,
        actors=options.actors,
        shards=options.shards,
        ray=options.ray,
        lock_step=options.lock_step or None,
    )
    among = hosts.membership(options.meeting) if hosts.asked_for(options.meeting, options.rung) else None
    plan = make_plan(
        name,
        "hosts" if among else options.rung,
        seed=options.seed,
        seeds=options.seeds,
        device=options.device,
        config=config,
        options=hosts.over_all(rung_options, options.seeds, among, options.mesh) if among else rung_options,
        ticks_per_row=options.ticks_per_row,
    )
    keeping = Keeping(
        options.checkpoint_every,
        options.keep,
        options.on_nan,
        options.eval_episodes,
        options.record_every,
        split_tags(options.track),
        split_tags(options.tag),
    )
    keeping.check()
    check_trackers(keeping.track)
    out = folder_for(options.name, options.out, existing=among is not None and not among.leads)
    options.tools.check(plan)
    if among:
        hosts.refuse_tools(options.tools)
        if options.start_from is not None:
            raise UsageError("`--from` is not possible on `hosts`: start on `mesh`, and resume there.")
        if options.watch:
            raise UsageError("`--watch` is for a run of one process: use `xladder watch RUN` beside this one.")

        def train_run(directory: RunDirectory) -> int:
            try:
                return run_in_terminal(directory, None, Tools(directory, options.tools))
            except (UsageError, UserCodeFailed):
                directory.discard()
                raise

        return hosts.train(plan, keeping, out, among, train_run)
    beginning = None
    if options.start_from is not None:
        from xladder.runs.starting import find_beginning

        startup.prepare(options.device)
        beginning = find_beginning(options.start_from, plan)
    directory = RunDirectory.create(out, plan, keeping)
    try:
        if beginning:
            from xladder.runs.starting import keep_beginning

            keep_beginning(directory, beginning)
        return run_in_terminal(directory, None, Tools(directory, options.tools), options.watch)
    except (UsageError, UserCodeFailed):
        directory.discard()
        raise


def run_in_terminal(
    directory: RunDirectory, resume_state: ResumeState | None, tools: Tools | None = None, watch: bool = False
) -> int:
    """Train into a directory with a progress bar and a report. Returns the exit code."""
    from xladder.cli.progress import Screen
    from xladder.training import record

    plan, console = directory.plan, PatientConsole()
    tools = tools or Tools(directory)
    team = cluster.current()
    supervised.tell(resume=directory.resume_command, log=str(directory.path / "log.txt"))

    def prepare() -> None:
        startup.prepare(plan.device)
        if team:
            team.connect_jax()

    def trained(saved: bool) -> None:
        screen.end_training(saved)
        if team:
            team.begin(cluster.CONCLUDING)
        tools.close()
        tools.report(console)

    with ExitStack() as stack:
        screen = stack.enter_context(Screen(plan, directory, console))
        stack.enter_context(tools)
        if watch:
            from xladder.report.child import WatchedRun

            stack.enter_context(WatchedRun(directory.path, screen.show))
        found = record(
            directory,
            resume_state,
            drawn=screen,
            around=tools.around,
            prepare=prepare,
            trained=trained,
            begun=command_begun(),
        )
        if found.stopped:
            console.print(f"Stopped after {screen.meter.how_far()}; agents and metrics are kept.", highlight=False)
            report_files(directory, console, found.pictures)
            if directory.checkpoints.newest():
                console.print(f"Resume with: {directory.resume_command}", highlight=False, markup=False, soft_wrap=True)
            return 128 + found.stopped
        report_result(found.result, found.score, console)
        report_files(directory, console, found.pictures)
        tools.report_phases(found.result.phases, console)
        return 0


def report_result(result: Result, score: dict | None, console: Console) -> None:
    """Print how training went and how the agents scored."""
    settings, tick = result.plan.workload.family, result.plan.workload.tick
    already_said = settings.note(result.config)
    lines = [line for line in settings.summary(result.config, result.metrics) if line not in already_said]
    if score:
        lines += [line for line in settings.describe_score(score) if line not in lines]
    else:
        lines += map(str, result.collapsed)
    seconds, units = float(np.median(result.tick_seconds)), result.config.units_per_tick
    each = " and seed" if len(result.plan.seeds) > 1 else ""
    rate = f" ({units / seconds:,.0f} {result.plan.workload.length}/s)" if units > 1 else ""
    compiled = (
        f", compiled in {result.compile_seconds:.1f} s" if result.compile_seconds >= startup.SHORTEST_COMPILE else ""
    )
    lines.append(f"{seconds * 1000:.1f} ms per {tick}{each}{rate}{compiled}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def report_files(directory: RunDirectory, console: Console, pictures: Mapping[str, Path]) -> None:
    """Print where the files are."""
    files = {**pictures, "metrics": directory.path / "metrics.csv", "agents": directory.path / AGENTS}
    for name, file in files.items():
        console.print(f"{name:<8} {file}", highlight=False, markup=False, soft_wrap=True)
