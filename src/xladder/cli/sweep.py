"""`xladder sweep`: try many settings at once, and test the best one on other seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from xladder.cli import startup
from xladder.cli.main import split_workload
from xladder.cli.options import parse_with_config
from xladder.core.packages import program
from xladder.core.statistics import signed
from xladder.devices import DeviceName
from xladder.errors import UsageError
from xladder.plans import Plan, format_seeds
from xladder.plans import plan as make_plan
from xladder.registry import RungOptions, find_workload
from xladder.sweeps.space import is_space
from xladder.sweeps.sweep import Sweep, make_sweep

SHOWN_TRIALS = 10
FEWEST_SEEDS = 4  # of an interval: with two or three it says nothing
ABOUT = (
    "Give any setting of the workload a list (0.001,0.01) or a range (0.9..0.99, log:1e-5..1e-2), and it varies from "
    "trial to trial."
)


@dataclass(frozen=True)
class SweepOptions:
    """What to try, and how trials are compared."""

    trials: int | None = None
    """Number of trials to draw; the whole grid if not given and there are only lists."""
    seed: int = 0
    """The first tuning seed, and the random seed of the trials."""
    seeds: int = 1
    """Number of seeds of each trial; the winner is tested on others."""
    test_seeds: int | None = None
    """Number of seeds that the best trial and the base settings are tested on; as many as `--seeds` if not given."""
    halve: int = 0
    """Successive halving: at each comparison the best 1/N of the trials go on, N times as long; 0 for none."""
    pbt: bool = False
    """Population-based training: bad trials copy good ones, and go on with settings changed a little."""
    metric: str | None = None
    """The column of metrics.csv to compare trials by; return, or tv for GFlowNets, if not given."""
    rung: Literal["fused", "mesh"] = "fused"
    """fused, or mesh to spread the trials over devices."""
    mesh: str | None = None
    """The device mesh: seeds=4 spreads trials and seeds over four devices (implies `--rung mesh`)."""
    device: DeviceName | None = None
    """The device to use; the best one JAX finds if not given."""
    out: Path | None = None
    """The folder of the sweep; runs/WORKLOAD-sweep-TIME if not given."""
    preset: str | None = None
    """The preset to start from: one of those above."""
    config: Path | None = None
    """The config.json of a run to start from."""


def run(words: Sequence[str]) -> int:
    """Train a sweep and print its results."""
    from xladder.sweeps.running import SweepDirectory

    name, rest = split_workload(words, "sweep")
    workload = find_workload(name)
    space, rest = take_space(rest)
    about = f"Sweep {workload.name}: {workload.summary}. {ABOUT}"
    options, config = parse_with_config(SweepOptions, workload, rest, "xladder sweep", about)
    plan = make_plan(
        name,
        "mesh" if options.mesh else options.rung,
        seed=options.seed,
        seeds=options.seeds,
        device=options.device,
        config=config,
        options=RungOptions(mesh=options.mesh),
    )
    sweep = make_sweep(
        plan,
        space,
        trials=options.trials,
        seed=options.seed,
        halve=options.halve,
        pbt=options.pbt,
        metric=options.metric,
        test_seeds=options.test_seeds,
    )
    directory = SweepDirectory.create(options.out or default_folder(plan), sweep)
    return run_in_terminal(directory)


def resume(path: Path) -> int:
    """Continue a sweep that was stopped or killed."""
    from xladder.sweeps.running import RESULT, SweepDirectory

    directory = SweepDirectory.open(path)
    if (path / RESULT).exists():
        print(f"`{path}` is complete: its result is in {path / RESULT}.")
        directory.lock.release()
        return 0
    return run_in_terminal(directory)


def take_space(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command line into the settings that vary and the rest."""
    space: dict[str, str] = {}
    rest: list[str] = []
    given = iter(words)
    own = {"--out", "--mesh", "--config", "--preset", "--protocol"}
    for word in given:
        flag, equals, value = word.partition("=")
        if not flag.startswith("--") or flag in own:
            rest.append(word)
            continue
        if not equals:
            value = next(given, "")
        if value.startswith("--") or not is_space(value):
            rest += [word] if equals else [word, *([value] if value else [])]
            continue
        name = flag.removeprefix("--").replace("-", "_")
        if name == "pqn.lambda":
            name = "pqn.lambda_"
        if name in space:
            raise UsageError(f"`{flag}` is given twice: give it once.")
        space[name] = value
    return space, rest


def default_folder(plan: Plan) -> Path:
    """Where a sweep goes if the user does not say."""
    from xladder.runs.folders import file_name, new_folder

    return new_folder(f"{file_name(plan.workload.name)}-sweep")


def run_in_terminal(directory: Any) -> int:
    """Train a sweep with a progress bar and a report. Returns the exit code."""
    from xladder.cli.progress import Screen
    from xladder.cli.train import PatientConsole
    from xladder.sweeps.running import SweepRun

    sweep, console = directory.sweep, PatientConsole()

    def show(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    compiled = set()

    @contextmanager
    def watch(plan: Plan, leg: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
        with Screen(plan, leg, console) as screen:
            program = plan.config, len(plan.seeds)
            screen.announced = program in compiled
            compiled.add(program)
            yield screen, ()

    try:
        startup.prepare(sweep.plan.device)
        from xladder import devices

        show(headline(sweep, devices.describe(devices.find(sweep.plan.device))))
        outcome = SweepRun(directory, watch, show).run()
    finally:
        directory.lock.release()
    if outcome.stopped:
        show(f"Stopped; what is done is kept. Resume with: {directory.resume_command}")
        return 128 + outcome.stopped
    console.print(table(sweep, outcome.trials))
    for line in describe(sweep, outcome):
        show(line)
    for name, file in (("trials", "trials.csv"), ("picture", "media/sweep.png"), ("agents", "best")):
        show(f"{name:<8} {directory.path / file}")
    show(f"train it: {outcome.command.replace('xladder', program(), 1)}")
    return 0


def headline(sweep: Sweep, device: str) -> str:
    """One line: workload, rung, trials, seeds and device."""
    how = {"all": "", "halve": f", one in {sweep.factor} goes on", "pbt": ", population-based"}[sweep.method]
    return (
        f"{sweep.plan.workload.name} on {sweep.plan.rung}: {len(sweep.trials)} trials{how}, "
        f"{format_seeds(sweep.plan)}, on {device}"
    )


def table(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The best trials as a table."""
    names = [axis.name for axis in sweep.axes]
    found = Table(box=None, pad_edge=False, header_style="bold")
    found.add_column("trial", justify="right")
    for name in [*names, sweep.metric, sweep.plan.workload.length]:
        found.add_column(name, justify="right")
    for row in rows[:SHOWN_TRIALS]:
        value, interval = row[sweep.metric], row["ci95"]
        digits = 1 if sweep.metric in ("return", "eval_return") else 4
        score = "none" if value != value else signed(value, digits)
        known = len(sweep.plan.seeds) >= FEWEST_SEEDS and interval == interval and value == value
        score += f" ± {interval:.{digits}f}" if known else ""
        settings = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in (row[name] for name in names)]
        found.add_row(str(row["trial"]), *settings, score, f"{row[sweep.plan.workload.length]:,}")
    if len(rows) > SHOWN_TRIALS:
        found.add_row("…", *[""] * (len(names) + 2))
    return found


def describe(sweep: Sweep, outcome: Any) -> list[str]:
    """The winner on the tuning seeds and on the test seeds, beside the base settings."""
    mean, interval = outcome.tuning_score
    around = f" ± {interval:.4g}" if len(sweep.plan.seeds) >= FEWEST_SEEDS and interval == interval else ""
    settings = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in outcome.best.items()
    )
    tested = format_seeds(Plan(sweep.plan.workload, sweep.plan.config, sweep.plan.rung, sweep.test_seeds))
    family = sweep.plan.workload.family
    return [
        f"best: {settings}",
        f"  {sweep.metric} {mean:.4g}{around} on the tuning {format_seeds(sweep.plan)}",
        f"  trained again on the test {tested}: {family.describe_score(outcome.test_score)[0]}",
        f"base settings on the same {tested}: {family.describe_score(outcome.default_score)[0]}",
    ]
