"""The loop every run goes through: start a rung, advance it chunk by chunk, hand the metrics on, stop when told.

The rung works in a thread of its own, so that the caller can show progress and answer signals while XLA compiles or
computes. That thread is the same from start to end: PyTorch's thread count belongs to the thread that set it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from xladder import devices
from xladder.core.types import Params
from xladder.errors import Diverged, UsageError, unknown
from xladder.registry import Workload, check_rung, find_rung, find_workload
from xladder.settings import updated

CHUNK_SECONDS = 0.7  # long enough that the host costs nothing, short enough for a live bar and a quick stop


class Observer:
    """What a run tells while it goes on. This one is silent; the command line has one that talks."""

    def waiting(self, what: str, seconds: float) -> None:
        """Called several times a second while a rung starts (`what` = "compiling" …) or computes."""

    def started(self, seeds: Sequence[int], note: str, compile_seconds: float) -> None:
        """The rung is ready to train these seeds."""

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Ticks `first` … are done; `columns` are [seeds, ticks]; `seconds` is how long they took."""

    def ended(self, running: Any) -> None:
        """A group of seeds is trained; called in the rung's own thread."""

    def stop(self) -> bool:
        """Whether to end after this chunk."""
        return False


@dataclass(frozen=True)
class Plan:
    """Everything that says what a run is."""

    workload: Workload
    config: Any
    rung: str
    seeds: tuple[int, ...]
    device: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """What the first seed had learned by some tick, as a picture."""

    tick: int
    picture: np.ndarray
    label: str


@dataclass
class Result:
    """A finished (or stopped) run."""

    plan: Plan
    metrics: dict[str, np.ndarray]
    """Name → float [seed, tick]; nan where a seed has not come so far."""
    params: Params
    """What was learned: the JAX pytree with leaves [seed, …]; treasure hunt: [seed, agent, …]."""
    compile_seconds: float
    tick_seconds: list[float] = field(default_factory=list)
    """Seconds per tick and seed, one entry per chunk."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Of workloads that are measured while they train."""

    @property
    def config(self) -> Any:
        """The settings it was trained with."""
        return self.plan.config

    def evaluate(self, episodes: int | None = None, seed: int = 0) -> dict[str, Any]:
        """How good it is without exploring, and chance beside it; the keys are those of `xladder eval --json`."""
        import jax

        from xladder.rungs.running import compiled

        episodes = episodes or self.plan.workload.load_settings().TRAIN_EPISODES
        evaluation = import_module(self.plan.workload.evaluation)
        with jax.default_device(devices.find(self.plan.device)):
            return evaluation.score(self.config, self.params, episodes, seed, compiled)

    def save(self, path: str | Path) -> Path:
        """Write a run directory: config, metrics, agents, pictures."""
        from xladder.runs.directory import RunDirectory

        directory = RunDirectory.create(path, self.plan)
        directory.write_metrics(self)
        directory.finish(self)
        return directory.path


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
    changes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Plan:
    """A checked plan, on the workload's usual rung if none is named.

    `fields` are fields of the config, nested ones as dicts: `learner={"lr": 3e-4}`. They may also come as one mapping,
    `changes`.
    """
    found = find_workload(workload)
    rung = rung or found.rung
    find_rung(rung, found)
    settings = found.load_settings()
    presets = settings.presets(found.name, protocol)
    if preset not in presets:
        raise unknown("preset", preset, presets)
    config = updated(presets[preset] if config is None else config, {**(changes or {}), **fields})
    settings.check(config)
    check_rung(rung, found, config)
    if seeds < 1:
        raise UsageError(f"`--seeds` is {seeds}, but it has to be 1 or more.")
    if not 0 <= seed <= seed + seeds - 1 < 2**31:
        raise UsageError(f"`--seed` is {seed}, but seeds lie in [0, 2³¹).")
    return Plan(found, config, rung, tuple(range(seed, seed + seeds)), device)


def train(workload: str, rung: str | None = None, **options: Any) -> Result:
    """Train a workload on a rung; see `plan` for the options (seed, seeds, preset, device, config, fields)."""
    return execute(plan(workload, rung, **options))


def execute(plan: Plan, observer: Observer | None = None) -> Result:
    """Carry out a plan."""
    observer = observer or Observer()
    module = import_module(find_rung(plan.rung, plan.workload).module)
    device = devices.find(plan.device)
    at_once = module.POPULATION and plan.workload.population
    groups = [plan.seeds] if at_once else [(seed,) for seed in plan.seeds]
    _check_memory(plan, len(groups[0]), device if module.ON_DEVICE else devices.find("cpu"))
    results = []
    with ThreadPoolExecutor(1, thread_name_prefix="rung") as thread:
        for seeds in groups:
            results.append(_run(plan, seeds, module, device, thread, observer))
            if observer.stop():
                break
    return _join(plan, results)


def _check_memory(plan: Plan, seeds: int, device: Any) -> None:
    """Raise a `UsageError` if what a run remembers does not fit, before anything has started."""
    needed = getattr(plan.workload.load_settings(), "memory_bytes", lambda config: 0)(plan.config)
    there = devices.memory_bytes(device)
    if needed * seeds > 0.9 * there:
        fits = int(0.9 * there / (needed * seeds) * plan.config.learner.memory)
        each = f" of each of {seeds} seeds" if seeds > 1 else ""
        raise UsageError(
            f"The memory{each} would take {needed * seeds / 2**30:.1f} GiB, and the {device.platform} has "
            f"{there / 2**30:.1f} GiB: with `--learner.memory {fits // 1000 * 1000 or fits}` it fits."
        )


def _run(
    plan: Plan, seeds: tuple[int, ...], module: Any, device: Any, thread: ThreadPoolExecutor, observer: Observer
) -> Result:
    settings, interval = plan.workload.load_settings(), plan.config.interval

    def wait(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        begun, future = time.perf_counter(), thread.submit(call, *arguments)
        while not future.done():
            observer.waiting(what, time.perf_counter() - begun)
            time.sleep(0.002)
        return future.result()

    running = wait(module.STARTING, module.start, plan.config, seeds, device)
    observer.started(seeds, running.note, running.compile_seconds)
    parts, tick_seconds, done, size, learning = [], [], 0, 1, False
    snapshots: list[Snapshot] = []

    def measure() -> dict[str, np.ndarray]:
        found = wait("measuring", _measure, plan, running, done)
        if seeds[0] == plan.seeds[0] and found.picture is not None:
            snapshots.append(Snapshot(done, found.picture, settings.label(found.columns)))
        return found.columns

    if interval:
        measure()
    while done < plan.config.ticks and not (done and observer.stop()):
        count = min(size, plan.config.ticks - done, interval - done % interval if interval else size)
        metrics_of_chunk, seconds = wait("training", _timed, running.advance, count)
        columns = settings.columns(plan.config, metrics_of_chunk)
        learning = _check_finite(columns["loss"], columns.get("updates"), learning, seeds, done, plan.workload.tick)
        done += count
        if interval:
            due = done % interval == 0 or done == plan.config.ticks
            columns |= _in_last_tick(measure() if due else settings.measured(plan.config), len(seeds), count)
        parts.append(columns)
        tick_seconds.append(seconds / count / len(seeds))
        observer.chunk(seeds, done - count, columns, seconds)
        # Not from a chunk that a measurement cut short: it says little about how long the next one may be.
        size = int(np.clip(CHUNK_SECONDS / (seconds / count), 1, 4 * max(count, size)))
    metrics = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    params = running.params()
    _check_parameters(params, plan.workload.tick, done)
    wait("finishing", observer.ended, running)
    return Result(plan, metrics, params, running.compile_seconds, tick_seconds, snapshots)


def _timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a call gives, and its seconds; in the rung's own thread, so that nobody's waiting is counted."""
    begun = time.perf_counter()
    return call(*arguments), time.perf_counter() - begun


def _measure(plan: Plan, running: Any, tick: int) -> Any:
    import jax

    from xladder.rungs.running import compiled

    with jax.default_device(devices.find(plan.device)):
        return import_module(plan.workload.evaluation).measure(plan.config, running.params(), tick, compiled)


def _in_last_tick(values: Mapping[str, np.ndarray], seeds: int, ticks: int) -> dict[str, np.ndarray]:
    """Columns [seeds, ticks] that are empty but for values [seeds] in the last tick."""
    table = {}
    for name, column in values.items():
        table[name] = np.full((seeds, ticks), np.nan, np.float32)
        table[name][:, -1] = column
    return table


def _check_finite(
    loss: np.ndarray, updates: np.ndarray | None, learning: bool, seeds: Sequence[int], first: int, tick: str
) -> bool:
    """Before learning starts the loss [seeds, ticks] is nan; from then on it has to be a number.

    Learning starts with the first update, where these are counted, else with the first number. Returns whether it has
    started by the end of the chunk.
    """
    finite = np.isfinite(loss)
    begun = finite if updates is None else finite | (updates > 0)
    started = learning | np.logical_or.accumulate(begun, axis=1)
    bad = ~finite & (started | np.isinf(loss))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise Diverged(
            f"The loss of seed {seeds[row]} stopped being a number at {tick} {first + column}. "
            "A smaller `--learner.lr` is the first thing to try."
        )
    return bool(started[:, -1].all())


def _check_parameters(params: Params, tick: str, done: int) -> None:
    if isinstance(params, Mapping):
        for branch in params.values():
            _check_parameters(branch, tick, done)
    elif not np.isfinite(params).all():
        raise Diverged(
            f"A parameter is not a number after {done} {tick}s, so nothing is kept. "
            "A smaller `--learner.lr` is the first thing to try."
        )


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
