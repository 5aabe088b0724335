"""A plan from what is asked for, and carrying it out: group of seeds after group of seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from xladder import devices, user_code
from xladder.core.state import unflatten
from xladder.errors import UsageError
from xladder.registry import (
    RUNGS,
    RungOptions,
    check_name,
    check_options,
    check_rung,
    find_rung,
    find_workload,
)
from xladder.results import Plan, Result
from xladder.settings import chosen, updated
from xladder.trainer import Keeper, Observer, OnNan, Past, Trial

MOST_SEEDS = 100_000


def plan(
    workload: str,
    rung: str | None = None,
    *,
    seed: int = 0,
    seeds: int = 1,
    device: str | None = None,
    preset: str = "default",
    protocol: str | None = None,
    config: Any = None,
    options: RungOptions | None = None,
    changes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Plan:
    """A checked plan, on the workload's usual rung if none is named.

    `fields` are fields of the config, nested ones as dicts: `learner={"lr": 3e-4}`. They may also come as one mapping,
    `changes`. Code of your own that they name, as `module:Name`, may be imported; functions may be given as they are.
    """
    user_code.allow_typed([workload])
    changes, fields = user_code.with_names(changes or {}), user_code.with_names(fields)
    for module in user_code.modules_in({**changes, **fields}):
        user_code.allow(module)
    return make_plan(
        workload,
        rung,
        seed=seed,
        seeds=seeds,
        device=device,
        preset=preset,
        protocol=protocol,
        config=config,
        options=options,
        changes={**changes, **fields},
    )


def make_plan(
    workload: str,
    rung: str | None = None,
    *,
    seed: int = 0,
    seeds: int = 1,
    device: str | None = None,
    preset: str = "default",
    protocol: str | None = None,
    config: Any = None,
    options: RungOptions | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Plan:
    """The same from names that somebody else has written: nothing is imported that the user did not name."""
    found, options = find_workload(workload), options or RungOptions()
    rung = rung or ("mesh" if options.mesh else found.rung)
    find_rung(rung, found)
    settings = found.family
    presets = settings.presets(found.name, protocol)
    start = chosen(presets, preset, protocol)
    config = updated(start if config is None else config, changes or {})
    settings.check(config)
    check_name(found, config)
    check_rung(rung, found, config)
    check_options(rung, options)
    if seeds < 1:
        raise UsageError(f"`--seeds` is {seeds}, but it has to be 1 or more.")
    if seeds > MOST_SEEDS:
        raise UsageError(f"`--seeds` is {seeds}, but a run has {MOST_SEEDS:,} at most: share them among several runs.")
    if not 0 <= seed < 2**31:
        raise UsageError(f"`--seed` is {seed}, but seeds lie in [0, 2³¹).")
    if seed + seeds > 2**31:
        raise UsageError(f"`--seeds` is {seeds}, but from `--seed {seed}` on there are {2**31 - seed} below 2³¹.")
    if "mesh" in RUNGS[rung].options:
        if not options.mesh:
            raise UsageError(f"`{rung}` needs `--mesh`: `seeds=4`, `data=4` or both, with a comma.")
        from xladder.rungs import layout

        config = layout.fit(settings, config, layout.parse(options.mesh), seeds)
    return Plan(found, config, rung, tuple(range(seed, seed + seeds)), device, options)


def train(workload: str, rung: str | None = None, **options: Any) -> Result:
    """Train a workload on a rung; see `plan` for the options (seed, seeds, preset, device, config, fields)."""
    return execute(plan(workload, rung, **options))


def execute(
    plan: Plan,
    observer: Observer | None = None,
    keeper: Keeper | None = None,
    past: Past | None = None,
    on_nan: OnNan = "stop",
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Result:
    """Carry out a plan, or the rest of it.

    `around` makes another `start` out of the rung's: to debug what it runs, or to profile it.
    """
    observer, keeper = observer or Observer(), keeper or Keeper()
    rung = find_rung(plan.rung, plan.workload)
    start: Callable[..., Any] = partial(rung.start, **{n: getattr(plan.options, n) for n in rung.options})
    start = around(start) if around else start
    device = devices.find(plan.device)
    groups = seed_groups(plan)
    _check_memory(plan, len(groups[0]), device if rung.on_device else devices.find("cpu"))
    results: list[Result] = []
    with ThreadPoolExecutor(1, thread_name_prefix="rung") as thread:
        for number, seeds in enumerate(groups):
            if past and number < past.facts["group"]:
                results.append(_finished(plan, number, past))
                continue
            trial = Trial(plan, number, seeds, rung.starting, start, device, thread, observer, keeper, on_nan, results)
            results.append(trial.run(past if past and number == past.facts["group"] else None))
            if observer.stop():
                break
    return _join(plan, results)


def seed_groups(plan: Plan) -> list[tuple[int, ...]]:
    """The seeds that are trained at once, group after group."""
    at_once = find_rung(plan.rung, plan.workload).population and plan.workload.population
    return [plan.seeds] if at_once else [(seed,) for seed in plan.seeds]


def _check_memory(plan: Plan, seeds: int, device: Any) -> None:
    """Raise a `UsageError` if what a run remembers does not fit, before anything has started."""
    needed = plan.workload.family.memory_bytes(plan.config)
    there = devices.memory_bytes(device)
    if needed * seeds > 0.9 * there:
        fits = int(0.9 * there / (needed * seeds) * plan.config.learner.memory)
        each = f" of each of {seeds} seeds" if seeds > 1 else ""
        raise UsageError(
            f"The memory{each} would take {needed * seeds / 2**30:.1f} GiB, and the {device.platform} has "
            f"{there / 2**30:.1f} GiB: with `--learner.memory {fits // 1000 * 1000 or fits}` it fits."
        )


def _finished(plan: Plan, number: int, past: Past) -> Result:
    """A group of seeds that was trained before the run was taken up again; there is one seed in it."""
    prefix = f"finished.{number}."
    params = unflatten({k.removeprefix(prefix): v for k, v in past.arrays.items() if k.startswith(prefix)})
    metrics = {name: values[number : number + 1] for name, values in past.metrics.items()}
    return Result(plan, metrics, params, 0.0, [], [] if number else past.snapshots())


def _join(plan: Plan, results: Sequence[Result]) -> Result:
    if len(results) == 1:
        return results[0]
    from xladder.rungs.running import concatenate_seeds

    longest = max(result.metrics["return"].shape[1] for result in results)

    def padded(values: np.ndarray) -> np.ndarray:
        return np.pad(values.astype(np.float64), ((0, 0), (0, longest - values.shape[1])), constant_values=np.nan)

    return Result(
        plan=plan,
        metrics={k: np.concatenate([padded(r.metrics[k]) for r in results]) for k in results[0].metrics},
        params=concatenate_seeds([result.params for result in results]),
        compile_seconds=sum(result.compile_seconds for result in results),
        tick_seconds=[seconds for result in results for seconds in result.tick_seconds],
        snapshots=results[0].snapshots,
    )
