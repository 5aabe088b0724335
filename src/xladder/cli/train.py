"""`xladder train`: train a workload on a rung and leave a run directory behind."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro
from rich.console import Console

from xladder.cli import hosts, startup
from xladder.cli.hosts import HostOptions
from xladder.cli.main import split_workload
from xladder.cli.options import parse_with_config
from xladder.cli.tools import ToolOptions, Tools
from xladder.distributed import cluster
from xladder.errors import Diverged, PeerLost, ResourceError, UsageError
from xladder.registry import RungOptions, find_workload
from xladder.results import Plan, Result
from xladder.runs.directory import AGENTS, Keeping, RunDirectory, write_json
from xladder.runs.keeping import DiskKeeper
from xladder.trainer import Past
from xladder.training import execute
from xladder.training import plan as make_plan

if TYPE_CHECKING:
    from xladder.cli.progress import Screen

FEWEST_KEPT = 2


@dataclass(frozen=True)
class TrainOptions:
    """How and where to run it."""

    rung: str | None = None
    """torch, hybrid, sequential, parallel, fused (the default, where there is one), mesh, hosts or actors."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """How many seeds: seed, seed + 1, …; at once on `fused`, `mesh` and `hosts`, one after another elsewhere."""
    out: Path | None = None
    """The run directory; runs/WORKLOAD-RUNG-TIME if not given."""
    device: Literal["cpu", "gpu"] | None = None
    """Where to compute; the best device JAX finds if not given."""
    preset: str | None = None
    """Named settings to start from; a wrong name lists them."""
    config: Path | None = None
    """The config.json of another run to start from."""
    eval_episodes: int | None = None
    """Episodes (20) or sampled objects (10,000) to score with at the end; 0 leaves scoring and the replay out."""
    checkpoint_every: int | None = None
    """Ticks between two checkpoints; about once a minute if not given, never if 0."""
    keep: int = 2
    """How many checkpoints stay, besides the best one."""
    on_nan: Literal["stop", "continue"] = "stop"
    """What to do when a loss or a parameter is no longer a number."""
    mesh: str | None = None
    """Lay seeds, or the work of each, over devices: seeds=4, data=2 or both with a comma (implies `--rung mesh`)."""
    threads: int | None = None
    """Threads of PyTorch on `torch` and `hybrid`; the best number is measured if not given."""
    actors: int | None = None
    """Processes that play on `actors`; as many as there are cores to spare if not given."""
    shards: int | None = None
    """Processes that remember on `actors`; 1 if not given."""
    ray: str | None = None
    """HOST:PORT of the Ray cluster to use on `actors`; a local Ray is started if not given."""
    lock_step: bool = False
    """Have the actors wait for each other and the learner, which makes it the synchronous algorithm."""
    tools: Annotated[ToolOptions, tyro.conf.arg(name="")] = field(default_factory=ToolOptions)
    meeting: Annotated[HostOptions, tyro.conf.arg(name="")] = field(default_factory=HostOptions)


class PatientConsole(Console):
    """Goes on in silence when nobody reads any more (`xladder train … | head`): the run matters more."""

    def on_broken_pipe(self) -> None:
        """Called by rich in place of a BrokenPipeError."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(words: Sequence[str]) -> int:
    """Parse, check, train, report."""
    name, rest = split_workload(words, "train")
    workload = find_workload(name)
    options, config = parse_with_config(TrainOptions, workload, rest, "xladder train", workload.summary)
    asked = RungOptions(
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
        options=hosts.over_all(asked, options.seeds, among, options.mesh) if among else asked,
    )
    for flag in ("eval_episodes", "checkpoint_every"):
        value = getattr(options, flag)
        if value is not None and value < 0:
            raise UsageError(f"`--{flag.replace('_', '-')}` is {value}, but it has to be 0 or more.")
    if options.keep < FEWEST_KEPT:
        raise UsageError(f"`--keep` is {options.keep}, but should one be damaged, there has to be a second.")
    keeping = Keeping(options.checkpoint_every, options.keep, options.on_nan, options.eval_episodes)
    options.tools.check(plan)
    if among:
        hosts.refuse_tools(options.tools)

        def see(directory: RunDirectory) -> int:
            try:
                return see_through(directory, None, Tools(directory, options.tools))
            except UsageError:
                directory.discard()
                raise

        return hosts.train(plan, keeping, options.out, among, see)
    directory = RunDirectory.create(options.out, plan, keeping)
    try:
        return see_through(directory, None, Tools(directory, options.tools))
    except UsageError:
        directory.discard()
        raise


def see_through(directory: RunDirectory, past: Past | None, tools: Tools | None = None) -> int:
    """Train into a directory until its plan is fulfilled, whatever happens; gives the exit code."""
    try:
        return follow(directory, PatientConsole(), past, tools or Tools(directory))
    except OSError as error:
        raise ResourceError(
            f"`{directory.path}` cannot be written any more: {error.strerror or error}. What it holds by now is kept. "
            f"Once it can be: {directory.way_on}"
        ) from None
    except Diverged as error:
        with suppress(OSError):
            write_json(directory.path / "diverged.json", error.report or {"found": str(error)})
            directory.log(traceback.format_exc())
        raise
    except PeerLost as error:
        directory.log(str(error))
        raise PeerLost(f"{error} Go on with: {directory.resume_command}") from None
    except UsageError:
        raise
    except BaseException:
        directory.log(traceback.format_exc())
        raise
    finally:
        with suppress(OSError):
            directory.writer.close()
        directory.lock.release()


def follow(directory: RunDirectory, console: Console, past: Past | None, tools: Tools) -> int:
    """Train a plan into its directory, with everything a user sees of it."""
    from xladder import devices
    from xladder.cli.progress import Screen

    plan, asked = directory.plan, directory.keeping.eval_episodes
    episodes = plan.workload.family.train_episodes if asked is None else asked
    startup.prepare(plan.device)
    team = cluster.current()
    if team:
        team.connect_jax()
    device = devices.find(plan.device)
    line = f"{plan.workload.name} on {plan.rung}, {seeds_in_words(plan)}, on {devices.describe(device)}"
    directory.log(line)
    directory.mark_begun()
    directory.write_environment(device, line)
    for said in (line, plan.workload.family.note(plan.config)):
        if said:
            console.print(said, highlight=False, markup=False, soft_wrap=True)
    with Screen(plan, directory, console) as screen, tools:
        keeper = DiskKeeper(directory, screen.say)
        keeper.last = directory.checkpoints.newest()
        result = execute(plan, screen, keeper, past, directory.keeping.on_nan, tools.around)
        directory.save_agents(result.params)  # before anything that may take long or be interrupted
        screen.end_training(saved=keeper.keeps and not keeper.failures)
        return conclude(directory, console, result, screen, keeper, tools, episodes)


def conclude(
    directory: RunDirectory,
    console: Console,
    result: Result,
    screen: Screen,
    keeper: DiskKeeper,
    tools: Tools,
    episodes: int,
) -> int:
    """What comes after training: scores, pictures, and where everything is."""
    team = cluster.current()
    if team:
        team.begin(cluster.CONCLUDING)
    tools.close()
    tools.report(console)
    if keeper.failures:
        raise ResourceError(
            f"The last checkpoint could not be saved; the one before is {keeper.last or 'none'}. What was learned is "
            f"in {directory.path / AGENTS}. Make room, then: {directory.way_on}"
        )
    directory.write_pending()
    if screen.signal:
        pictures = directory.finish(result)
        console.print(f"Stopped after {screen.how_far()}; agents and metrics are kept.", highlight=False)
        report_files(directory, console, pictures)
        if keeper.last:
            console.print(f"Go on with: {directory.resume_command}", highlight=False, markup=False, soft_wrap=True)
        return 128 + screen.signal
    score = None
    if episodes:
        with console.status("scoring the agents"):
            score = result.evaluate(episodes)
    with console.status("drawing"):
        pictures = directory.finish(result, score)
    directory.mark_finished()
    report_result(result, score, console)
    report_files(directory, console, pictures)
    return 0


def report_result(result: Result, score: dict | None, console: Console) -> None:
    """How training went, and how good what it has made is."""
    settings, tick = result.plan.workload.family, result.plan.workload.tick
    lines = settings.summary(result.config, result.metrics)
    if score:
        lines += settings.describe_score(score)
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
    """Where everything is."""
    files = {**pictures, "metrics": directory.path / "metrics.csv", "agents": directory.path / AGENTS}
    for name, file in files.items():
        console.print(f"{name:<8} {file}", highlight=False, markup=False, soft_wrap=True)


def seeds_in_words(plan: Plan) -> str:
    """`seed 3`, or `seeds 0 … 7`."""
    first, last = plan.seeds[0], plan.seeds[-1]
    return f"seed {first}" if first == last else f"seeds {first} … {last}"
