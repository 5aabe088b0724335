"""What a sweep is: a base plan, the settings that vary, its trials and how they are compared. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xladder.core.statistics import episode_weights, weighted_mean
from xladder.errors import UsageError, unknown
from xladder.plans import Plan, check_seeds
from xladder.protocols import Config
from xladder.runs.listing import SWEEP
from xladder.sweeps.checks import check_sweep
from xladder.sweeps.schedule import Stage, generations, halving_stages
from xladder.sweeps.space import Axis, draw_trials, parse_axis, with_values

Method = Literal["all", "halve", "pbt"]
GENERATIONS = 10
LATE = (0.1, 0.3, 1.0)  # the part of training whose mean is the score: the shortest in which an episode ended


@dataclass(frozen=True)
class Trial:
    """One point of the space."""

    number: int
    values: Mapping[str, Any]
    """Name of a setting → its value."""
    config: Config


@dataclass(frozen=True)
class Sweep:
    """A sweep, completely defined: training it twice gives the same numbers."""

    plan: Plan
    """The workload, the settings that do not vary, and the tuning seeds."""
    axes: tuple[Axis, ...]
    trials: tuple[Trial, ...]
    metric: str
    """The column that trials are compared by."""
    test_seeds: tuple[int, ...]
    """Seeds that no trial was chosen on."""
    seed: int = 0
    """Of the trials that are drawn."""
    factor: int = 0
    """Successive halving keeps one in so many trials; 0 for no halving."""
    population_based: bool = False
    """Whether bad trials copy good ones and go on with changed settings."""

    @property
    def sign(self) -> int:
        """1 if a larger metric is better, −1 if a smaller one is."""
        return self.plan.workload.family.objectives.get(self.metric, -1 if "loss" in self.metric else 1)

    @property
    def method(self) -> Method:
        """How trials are compared."""
        return "pbt" if self.population_based else "halve" if self.factor else "all"

    @property
    def training(self) -> Config:
        """The base config as it is trained: evaluated only as often as the comparison of trials needs it."""
        return _evaluated_rarely(self.plan.config, self.metric)

    def stages(self) -> list[Stage]:
        """The parts of training after which trials are compared."""
        config, count = self.training, len(self.trials)
        interval = config.interval if self.metric in config.family.measured(config) else 0
        if self.population_based:
            return generations(config.ticks, count, GENERATIONS, interval)
        return halving_stages(config.ticks, count, self.factor, interval)

    def score(self, metrics: Mapping[str, np.ndarray]) -> np.ndarray:
        """float [R]: how well each row of metrics [R, T] does; larger is better, nan if it diverged.

        A measured column counts with its last value, others with their mean over the last tenth, or over a longer part
        if no episode ended there.
        """
        values = metrics[self.metric]
        if self.metric in self.plan.workload.family.measured(self.plan.config):
            known = [row[np.isfinite(row)] for row in values]
            found = np.array([row[-1] if len(row) else np.nan for row in known])
        else:
            weights, found = episode_weights(self.metric, metrics), np.full(len(values), np.nan)
            for share in LATE:
                late = slice(-max(1, int(values.shape[1] * share)), None)
                mean = weighted_mean(values[:, late], None if weights is None else weights[:, late], axis=1)
                found = np.where(np.isfinite(found), found, mean)
        loss = metrics["loss"]
        learning = np.isfinite(loss).any(axis=1)
        diverged = learning & ~np.isfinite(loss[:, -1])
        return np.where(diverged, np.nan, self.sign * found)

    def command(self, values: Mapping[str, Any]) -> str:
        """The command that trains a trial's settings alone."""
        plan = self.plan
        flags = {**_changed_flags(plan), **values}
        words = ["xladder", "train", plan.workload.name]
        for name, value in flags.items():
            words += _as_flag(name, value)
        return shlex.join(words)


def make_sweep(
    plan: Plan,
    space: Mapping[str, Any],
    *,
    trials: int | None = None,
    seed: int = 0,
    halve: int = 0,
    pbt: bool = False,
    metric: str | None = None,
    test_seeds: int | None = None,
) -> Sweep:
    """Plan a sweep; invalid names and values raise an error now.

    Args:
        plan: The workload, its settings and the tuning seeds.
        space: Name of a setting → a list or range of values.
        trials: Number of trials to draw; the whole grid if not given and there are only lists.
        seed: Random seed of the trials that are drawn.
        halve: Keep one in so many trials at each comparison (successive halving); 0 for no halving.
        pbt: Population-based training.
        metric: The column to compare trials by; the family's objective if not given.
        test_seeds: Number of seeds to test the winner on; as many as there are tuning seeds if not given.
    """
    for flag, count in (("trials", trials), ("test-seeds", test_seeds)):
        if count is not None and count < 1:
            raise UsageError(f"`--{flag}` is {count}, but it has to be 1 or more.")
    axes = tuple(parse_axis(plan.config, name, text) for name, text in space.items())
    drawn = draw_trials(axes, trials, seed)
    tested = check_seeds(max(plan.seeds) + 1, test_seeds or len(plan.seeds))
    return _checked(plan, axes, drawn, _metric(plan.config, metric), tested, seed, halve, pbt)


def _checked(
    plan: Plan,
    axes: tuple[Axis, ...],
    drawn: Sequence[Mapping[str, Any]],
    metric: str,
    test_seeds: tuple[int, ...],
    seed: int,
    halve: int,
    pbt: bool,
) -> Sweep:
    """A sweep of these trials; a `UsageError` if it cannot be trained to its end, wherever it was read."""
    check_sweep(plan, axes, drawn, seed=seed, halve=halve, pbt=pbt, test_seeds=test_seeds)
    base = _evaluated_rarely(plan.config, metric)
    trials = tuple(Trial(i, values, with_values(base, values)) for i, values in enumerate(drawn))
    return Sweep(plan, axes, trials, metric, test_seeds, seed, halve, pbt)


def _metric(config: Config, wanted: str | None) -> str:
    family = config.family
    measured = list(family.measured(config))
    if wanted is None:
        return next(name for name in family.objectives if name in measured or name == "return")
    known = ["return", "loss", *measured]
    if wanted not in known:
        raise unknown("metric", wanted, known)
    return wanted


def _evaluated_rarely(config: Any, metric: str) -> Any:
    """A config that is evaluated ten times if trials are compared by an evaluation, and otherwise as little as can be.

    Evaluations do not change what is learned.
    """
    names = {field.name for field in dataclasses.fields(config)}
    if "evaluate_every" not in names:
        return config
    needed = metric in config.family.measured(config)
    if not needed and "evaluate_episodes" in names:
        return replace(config, evaluate_episodes=0)
    ticks = max(1, config.ticks // 10) if needed else config.ticks
    return replace(config, evaluate_every=ticks * config.units_per_tick)


def _changed_flags(plan: Plan) -> dict[str, Any]:
    """The settings of a plan that differ from its workload's default."""
    from xladder.sweeps.space import field_names, value_of

    default = plan.workload.family.presets(plan.workload.name)["default"]
    names = field_names(plan.config)
    if type(default) is not type(plan.config):
        return {}
    return {
        name: value
        for name in names
        if (value := value_of(plan.config, name)) != value_of(default, name) and name != "world.name"
    }


def _as_flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-').rstrip('-')}"
    if isinstance(value, bool):
        *path, last = flag.removeprefix("--").split(".")
        return [flag if value else "--" + ".".join([*path, f"no-{last}"])]
    if isinstance(value, tuple):
        return [flag, *map(str, value)]
    return [flag, f"{value:.7g}" if isinstance(value, float) else str(value)]


def describe_sweep(sweep: Sweep) -> dict[str, Any]:
    """A sweep as JSON-ready data."""
    from xladder.runs.plan_files import describe_plan

    return {
        "plan": describe_plan(sweep.plan),
        "space": {axis.name: str(axis) for axis in sweep.axes},
        "trials": [{name: _spelled(value) for name, value in trial.values.items()} for trial in sweep.trials],
        "metric": sweep.metric,
        "test_seeds": list(sweep.test_seeds),
        "seed": sweep.seed,
        "halve": sweep.factor,
        "pbt": sweep.population_based,
    }


def parse_sweep(data: Any, where: str) -> Sweep:
    """The inverse of `describe_sweep`; `where` names the source in error messages."""
    from xladder.runs.plan_files import parse_plan

    kinds = {"plan": dict, "space": dict, "trials": list, "metric": str, "test_seeds": list, "seed": int, "halve": int}
    kinds["pbt"] = bool
    if not isinstance(data, dict) or any(type(data.get(name)) is not kind for name, kind in kinds.items()):
        raise UsageError(f"{where} is not a sweep that xladder wrote: it needs {', '.join(kinds)}.")
    plan = parse_plan(data["plan"], where)
    # The file may be older than this version, or edited: it has to pass whatever a command line would have to.
    try:
        axes = tuple(parse_axis(plan.config, name, text) for name, text in data["space"].items())
        metric, tested = _metric(plan.config, data["metric"]), check_seeds(0, data["test_seeds"])
        return _checked(
            plan,
            axes,
            [_read(values) for values in data["trials"]],
            metric,
            tested,
            data["seed"],
            data["halve"],
            data["pbt"],
        )
    except UsageError as error:
        raise UsageError(
            f"{where} is not a sweep that can go on: restore the file, or start a new sweep. {error}"
        ) from None


def _spelled(value: Any) -> Any:
    """A value as JSON: it has no number for infinity, which is how clipping is switched off."""
    return str(value) if isinstance(value, float) and np.isinf(value) else value


def _read(values: Any) -> Any:
    """The inverse of `_spelled`, for the values of a trial; what is none of them is left for the checks."""
    if not isinstance(values, dict):
        return values
    return {name: float(value) if value in ("inf", "-inf") else value for name, value in values.items()}


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (path / SWEEP).is_file()
