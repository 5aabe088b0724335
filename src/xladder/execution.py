"""Execute a plan, one group of seeds after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from xladder import devices
from xladder.core.state import unflatten
from xladder.errors import UsageError
from xladder.plans import Plan, check_fits, seed_groups
from xladder.registry import find_rung
from xladder.results import Result
from xladder.trainer import Checkpointer, Observer, OnNan, ResumeState, Trial


def execute(
    plan: Plan,
    observer: Observer | None = None,
    checkpointer: Checkpointer | None = None,
    resume_state: ResumeState | None = None,
    on_nan: OnNan = "stop",
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    until: int | None = None,
) -> Result:
    """Execute a plan from its start or from a checkpoint.

    Args:
        plan: What to run.
        observer: Is notified of progress, and may stop the run.
        checkpointer: Saves checkpoints; none are saved if not given.
        resume_state: The checkpoint to continue from; start afresh if not given.
        on_nan: `"stop"` or `"continue"` when a loss or parameter is NaN or infinite.
        around: Wraps the rung's `start`, to debug or profile what it runs.
        until: The tick to stop at; the end of the run if not given.

    Returns:
        Metrics, parameters and timings of all seeds that were trained.
    """
    observer, checkpointer = observer or Observer(), checkpointer or Checkpointer()
    rung = find_rung(plan.rung, plan.workload)
    start: Callable[..., Any] = partial(rung.start, **{n: getattr(plan.options, n) for n in rung.options})
    start = around(start) if around else start
    device = devices.find(plan.device)
    groups = seed_groups(plan)
    _check_memory(plan, len(groups[0]), device if rung.on_device else devices.find("cpu"))
    results: list[Result] = []
    with ThreadPoolExecutor(1, thread_name_prefix="rung") as thread:
        for number, seeds in enumerate(groups):
            if resume_state and number < resume_state.facts["group"]:
                results.append(_finished(plan, number, resume_state))
                continue
            trial = Trial(
                plan,
                number,
                seeds,
                "starting" if plan.options.threads else rung.starting,
                start,
                device,
                thread,
                observer,
                checkpointer,
                on_nan,
                results,
                until,
            )
            results.append(trial.run(resume_state if resume_state and number == resume_state.facts["group"] else None))
            if observer.stop():
                break
    return _join(plan, results)


def _check_memory(plan: Plan, seeds: int, device: Any) -> None:
    """Raise a `UsageError` if networks, worlds or replay memory do not fit, before anything has started."""
    available = devices.memory_bytes(device)
    check_fits(plan.config, 1 if plan.options.mesh else seeds, available)  # a mesh shares seeds over its devices
    needed = plan.workload.family.memory_bytes(plan.config)
    if needed * seeds > 0.9 * available:
        fits = int(0.9 * available / (needed * seeds) * plan.config.learner.memory)
        each = f" of {seeds} seeds" if seeds > 1 else ""
        raise UsageError(
            f"The replay memory{each} would take {needed * seeds / 2**30:.1f} GiB, and the {device.platform} has "
            f"{available / 2**30:.1f} GiB: with `--learner.memory {fits // 1000 * 1000 or fits}` it fits."
        )


def _finished(plan: Plan, number: int, resume_state: ResumeState) -> Result:
    """The result of a group, of one seed, that was finished before the run was resumed."""
    prefix = f"finished.{number}."
    params = unflatten({k.removeprefix(prefix): v for k, v in resume_state.arrays.items() if k.startswith(prefix)})
    metrics = {name: values[number : number + 1] for name, values in resume_state.metrics.items()}
    snapshots = resume_state.snapshots(plan, plan.seeds[number : number + 1])
    return Result(plan, metrics, params, 0.0, [], snapshots, ticks_done=plan.config.ticks)


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
        snapshots=[snapshot for result in results for snapshot in result.snapshots],
        ticks_done=min(result.ticks_done or 0 for result in results),
        phases={
            name: sum(result.phases.get(name, 0.0) for result in results)
            for name in dict.fromkeys(name for result in results for name in result.phases)
        },
    )
