"""What makes a sweep impossible, found before anything is compiled: by a command as by a sweep.json that was edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xladder.errors import UsageError, printable
from xladder.plans import Plan, check_seeds
from xladder.sweeps.space import MOST_TRIALS, Axis, Range

POPULATION_RUNGS = ("fused", "mesh")
MOST_PROGRAMS = 16
FEWEST_MEMBERS = 4


def check_sweep(
    plan: Plan,
    axes: Sequence[Axis],
    trials: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    halve: int,
    pbt: bool,
    test_seeds: Sequence[int],
) -> None:
    """Raise a `UsageError` unless a sweep can be trained to its end. Arguments as in `Sweep`, but for the trials.

    Args:
        plan: The workload, its settings and the tuning seeds.
        axes: The settings that vary.
        trials: The values of each trial.
        seed: Of the trials that are drawn.
        halve: The factor of successive halving, or 0.
        pbt: Population-based training.
        test_seeds: The seeds of the test.
    """
    if plan.rung not in POPULATION_RUNGS or not plan.workload.population:
        raise UsageError(
            f"A sweep trains all trials at once, on {' or '.join(POPULATION_RUNGS)}; `{plan.workload.name}` on "
            f"`{plan.rung}` trains one run at a time."
        )
    if not axes:
        raise UsageError("A sweep needs a setting that varies, such as `--learner.lr log:1e-5..1e-2`.")
    if (length := plan.workload.length) in [axis.name for axis in axes]:
        raise UsageError(
            f"`--{length}` is the length of training, the same for all trials: give one number. `--halve` stops bad "
            "trials early."
        )
    check_seeds(seed, 1)
    check_seeds(0, list(test_seeds))
    if seen := set(test_seeds) & set(plan.seeds):
        raise UsageError(
            f"Seed {min(seen)} is a tuning seed and a test seed, but the best trial is tested on seeds that no trial "
            "was chosen on."
        )
    _check_trials(axes, trials)
    _check_method(halve, pbt, len(trials))
    _check_programs(plan, axes, trials, pbt)


def _check_trials(axes: Sequence[Axis], trials: Sequence[Mapping[str, Any]]) -> None:
    """Raise a `UsageError` unless there are trials, not too many, and each is a point of the space."""
    if not 1 <= len(trials) <= MOST_TRIALS:
        raise UsageError(f"There are {len(trials):,} trials, but a sweep has 1 to {MOST_TRIALS:,}: they train at once.")
    names = {axis.name for axis in axes}
    for number, values in enumerate(trials):
        if not isinstance(values, Mapping) or set(values) != names:
            raise UsageError(f"Trial {number} needs a value of {', '.join(sorted(names))}, and of nothing else.")
        for axis in axes:
            if not axis.has(values[axis.name]):
                value = printable(repr(values[axis.name]))
                raise UsageError(f"Trial {number} has {value} for `{axis.name}`, which is not in `{axis}`.")


def _check_method(halve: int, pbt: bool, count: int) -> None:
    """Raise a `UsageError` unless so many trials can be compared like this."""
    if halve and pbt:
        raise UsageError("`--halve` and `--pbt` are two ways to compare trials: give one of them.")
    if halve == 1 or halve < 0:
        raise UsageError(f"`--halve` is {halve}, but it has to be 2 or more: one in so many trials goes on.")
    if halve and halve > MOST_TRIALS:
        raise UsageError(f"`--halve` is {halve}, but a sweep has {MOST_TRIALS:,} trials at most.")
    if halve > count:
        raise UsageError(
            f"`--halve {halve}` keeps one in {halve} trials, and there "
            f"{'is' if count == 1 else 'are'} {count}: `--trials {halve}` or more are needed."
        )
    if pbt and count < FEWEST_MEMBERS:
        raise UsageError(f"`--pbt` needs {FEWEST_MEMBERS} trials or more, and there are {count}.")


def _check_programs(plan: Plan, axes: Sequence[Axis], trials: Sequence[Mapping[str, Any]], pbt: bool) -> None:
    """Raise a `UsageError` if too many programs, or one that is trained already, would have to be compiled."""
    traced = plan.workload.family.traced(plan.config)
    untraced = [axis for axis in axes if axis.name not in traced]
    if pbt and untraced:
        raise UsageError(
            f"`--pbt` changes settings while training, and `{untraced[0].name}` is fixed once a program is "
            f"compiled. It can change: {', '.join(traced)}."
        )
    ranges = [axis for axis in untraced if isinstance(axis, Range)]
    programs = len({tuple(values[axis.name] for axis in untraced) for values in trials})
    if programs > MOST_PROGRAMS:
        what = (ranges or untraced)[0].name
        raise UsageError(
            f"`{what}` is fixed once a program is compiled, and this sweep would compile {programs} programs, more "
            f"than {MOST_PROGRAMS}: give a list of a few values. Traced, so that one program serves all values, are "
            f"{', '.join(traced)}."
        )
