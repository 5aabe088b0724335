"""Sweep from Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xladder.callbacks import Interrupts
from xladder.errors import Interrupted, UsageError
from xladder.plans import Plan, plan
from xladder.progress import drawing
from xladder.registry import RungOptions
from xladder.runs.listing import BEST
from xladder.sweeps.running import RESULT, Outcome, SweepDirectory, SweepRun
from xladder.sweeps.sweep import describe_sweep, is_sweep, make_sweep
from xladder.trainer import Observer


def sweep(
    workload: str | object,
    space: Mapping[str, Any],
    *,
    out: str | Path,
    trials: int | None = None,
    seed: int = 0,
    seeds: int = 1,
    test_seeds: int | None = None,
    halve: int = 0,
    pbt: bool = False,
    metric: str | None = None,
    mesh: str | None = None,
    device: str | None = None,
    preset: str = "default",
    resume: bool = False,
    progress: bool | None = None,
    imports: Sequence[str] = (),
    **fields: Any,
) -> Outcome:
    """Try many settings at once, and test the best on seeds that it was not chosen on.

    Args:
        workload: As in `xladder.train`.
        space: Name of a setting → its values: a list, or text such as `"log:1e-5..1e-2"` or `"0.9..0.99"`.
        out: The folder of the sweep.
        trials: Number of trials to draw; the whole grid if not given and there are only lists.
        seed: The first tuning seed, and the random seed of the trials.
        seeds: Number of seeds of each trial.
        test_seeds: Number of seeds to test the winner and the base settings on; as many as `seeds` if not given.
        halve: Successive halving: the best 1 / `halve` of the trials go on at each comparison; 0 for none.
        pbt: Population-based training.
        metric: The column of metrics.csv to compare trials by.
        mesh: A device mesh to spread the trials over, such as `"seeds=4"`.
        device: `"cpu"`, `"gpu"` or `"tpu"`; the best that JAX finds if not given.
        preset: The preset to start from.
        resume: Resume the sweep in `out` if there is one.
        progress: Whether to show a progress bar; by default only on a terminal or in a notebook.
        imports: Modules of your own to import first.
        **fields: Settings that do not vary, as in `xladder.train`.

    Returns:
        The trials, best first; the best settings with their scores on tuning and test seeds.
    """
    base = plan(
        workload,
        "mesh" if mesh else "fused",
        seed=seed,
        seeds=seeds,
        device=device,
        preset=preset,
        options=RungOptions(mesh=mesh),
        imports=imports,
        **fields,
    )
    made = make_sweep(base, space, trials=trials, seed=seed, halve=halve, pbt=pbt, metric=metric, test_seeds=test_seeds)
    folder = Path(out)
    goes_on = resume and is_sweep(folder)
    directory = SweepDirectory.open(folder) if goes_on else SweepDirectory.create(folder, made)
    if describe_sweep(directory.sweep) != describe_sweep(made):
        directory.lock.release()
        raise UsageError(
            f"`{folder}` holds a different sweep: choose another `out`, or go on with: {directory.resume_command}"
        )
    if (folder / RESULT).exists():
        directory.lock.release()
        raise UsageError(f"`{folder}` is complete: its result is in `{folder / RESULT}`, and its agents in `{BEST}`.")

    @contextmanager
    def watch(leg: Plan, _: Any) -> Iterator[tuple[Any, Sequence[Observer]]]:
        with drawing(leg, progress) as drawn, Interrupts() as interrupts:
            yield drawn, [interrupts]

    def show(line: str) -> None:
        drawing(base, progress).show(line)

    try:
        outcome = SweepRun(directory, watch, show).run()
    finally:
        directory.lock.release()
    if outcome.stopped:
        raise Interrupted(f"Stopped. Resume with: {directory.resume_command}", outcome)
    return outcome
