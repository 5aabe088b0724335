"""The loop every run goes through: start a rung, advance it chunk by chunk, hand the metrics on, stop when told.

The rung works in a thread of its own, so that the caller can show progress and answer signals while XLA compiles or
computes. That thread is the same from start to end: PyTorch's thread count belongs to the thread that set it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from xladder import devices
from xladder.core.state import Arrays, capture, restore, unflatten
from xladder.core.types import Params
from xladder.errors import Diverged, UsageError
from xladder.registry import (
    RUNGS,
    RungOptions,
    Workload,
    check_name,
    check_options,
    check_rung,
    find_rung,
    find_workload,
)
from xladder.settings import chosen, updated

if TYPE_CHECKING:
    from xladder.policy import Policy

OnNan = Literal["stop", "continue"]
MOST_SEEDS = 100_000
CHUNK_SECONDS = 0.7  # long enough that the host costs nothing, short enough for a live bar and a quick stop


class Observer:
    """What a run tells while it goes on. This one is silent; the command line has one that talks."""

    def waiting(self, what: str, seconds: float) -> None:
        """Called several times a second while a rung starts (`what` = "compiling" …) or computes."""

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """The rung is ready to train these seeds."""

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Ticks `first` … are done; `columns` are [seeds, ticks]; `seconds` is how long they took."""

    def told(self, line: str) -> None:
        """Something has happened that whoever looks after the run should know."""

    def ended(self, running: Any) -> None:
        """A group of seeds is trained; called in the rung's own thread."""

    def stop(self) -> int:
        """The signal because of which to end after this chunk; 0 if there was none."""
        return 0

    def stop_too(self, signal: int) -> None:
        """Another process of the run has had a signal."""

    leads = True
    """Whether this process is the one that measures and writes; others of the run follow it."""


class Keeper:
    """Who keeps checkpoints. This one keeps none."""

    keeps = False
    """Whether there is any point in calling `save`."""
    every = 0
    """Ticks between two checkpoints, or 0 if that goes by the clock."""
    last: str | None = None
    """The name of the last one."""

    def due(self, tick: int) -> bool:
        """Whether to save now, `tick` ticks into the run of a group of seeds."""
        return False

    def save(self, step: int, arrays: Arrays, facts: Mapping[str, Any], score: float) -> None:
        """Keep a state; `score` says how good what it has learned is."""


@dataclass(frozen=True)
class Past:
    """Where a run that is taken up again had come to: a checkpoint, and the metrics by then."""

    arrays: Arrays
    facts: Mapping[str, Any]
    metrics: Mapping[str, np.ndarray]
    """Name → float [seed, tick]."""

    def snapshots(self) -> list[Snapshot]:
        """What was seen of the first seed."""
        told = enumerate(self.facts["snapshots"])
        return [Snapshot(tick, self.arrays[f"snapshots.{i}"], label) for i, (tick, label) in told]


@dataclass(frozen=True)
class Plan:
    """Everything that says what a run is."""

    workload: Workload
    config: Any
    rung: str
    seeds: tuple[int, ...]
    device: str | None = None
    options: RungOptions = field(default_factory=RungOptions)


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

    @property
    def units_done(self) -> int:
        """How far the seed that came least far has come, in what the length is given in."""
        if not self.metrics:
            return self.config.ticks * self.config.units_per_tick
        reached = np.any([np.isfinite(column) for column in self.metrics.values()], axis=0)  # [seed, tick]
        return int(reached.sum(1).min()) * self.config.units_per_tick

    def evaluate(self, episodes: int | None = None, seed: int = 0) -> dict[str, Any]:
        """How good it is without exploring, and chance beside it; the keys are those of `xladder eval --json`."""
        import jax

        from xladder.rungs.running import compiled

        episodes = episodes or self.plan.workload.load_settings().TRAIN_EPISODES
        evaluation = import_module(self.plan.workload.evaluation)
        with jax.default_device(devices.find(self.plan.device)):
            score = evaluation.score(self.config, self.params, episodes, seed, compiled)
        judge = getattr(self.config, "judge", None)  # of worlds with published scores
        return score | judge(score["mean_return"], self.units_done) if judge else score

    def policy(self, seed: int | None = None, agent: int = 0) -> Policy:
        """What one agent does, as a function of what it sees; of the first seed if none is named."""
        from xladder.policy import of_result

        return of_result(self, seed, agent)

    def save(self, path: str | Path) -> Path:
        """Write a run directory: config, metrics, agents, pictures."""
        from xladder.runs.directory import RunDirectory

        directory = RunDirectory.create(path, self.plan)
        directory.write_metrics(self)
        directory.finish(self)
        if self.units_done == self.config.ticks * self.config.units_per_tick:
            directory.mark_finished()
        directory.lock.release()
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
    options: RungOptions | None = None,
    changes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Plan:
    """A checked plan, on the workload's usual rung if none is named.

    `fields` are fields of the config, nested ones as dicts: `learner={"lr": 3e-4}`. They may also come as one mapping,
    `changes`.
    """
    found, options = find_workload(workload), options or RungOptions()
    rung = rung or ("mesh" if options.mesh else found.rung)
    find_rung(rung, found)
    settings = found.load_settings()
    presets = settings.presets(found.name, protocol)
    start = chosen(presets, preset, protocol)
    config = updated(start if config is None else config, {**(changes or {}), **fields})
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
    module = import_module(rung.module)
    start: Callable[..., Any] = partial(module.start, **{n: getattr(plan.options, n) for n in rung.options})
    start = around(start) if around else start
    device = devices.find(plan.device)
    groups = seed_groups(plan)
    _check_memory(plan, len(groups[0]), device if module.ON_DEVICE else devices.find("cpu"))
    results: list[Result] = []
    with ThreadPoolExecutor(1, thread_name_prefix="rung") as thread:
        for number, seeds in enumerate(groups):
            if past and number < past.facts["group"]:
                results.append(_finished(plan, number, past))
                continue
            trial = _Trial(
                plan, number, seeds, module.STARTING, start, device, thread, observer, keeper, on_nan, results
            )
            results.append(trial.run(past if past and number == past.facts["group"] else None))
            if observer.stop():
                break
    return _join(plan, results)


def seed_groups(plan: Plan) -> list[tuple[int, ...]]:
    """The seeds that are trained at once, group after group."""
    at_once = import_module(find_rung(plan.rung, plan.workload).module).POPULATION and plan.workload.population
    return [plan.seeds] if at_once else [(seed,) for seed in plan.seeds]


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


@dataclass
class _Trial:
    """One group of seeds, trained from its start or from where it was left."""

    plan: Plan
    number: int
    seeds: tuple[int, ...]
    starting: str
    start: Callable[..., Any]
    device: Any
    thread: ThreadPoolExecutor
    observer: Observer
    keeper: Keeper
    on_nan: OnNan
    earlier: Sequence[Result]
    """Of the groups before this one."""
    running: Any = None
    done: int = 0
    learning: bool = False
    parts: list[Mapping[str, np.ndarray]] = field(default_factory=list)
    tick_seconds: list[float] = field(default_factory=list)
    compile_seconds: float = 0.0
    snapshots: list[Snapshot] = field(default_factory=list)
    saved: int = 0
    """The tick of the last checkpoint."""

    def run(self, past: Past | None) -> Result:
        """Train until the plan is fulfilled or the observer says stop; what the rung has opened is closed again."""
        try:
            return self.see_through(past)
        finally:
            if hasattr(self.running, "close"):
                self.thread.submit(self.running.close).result()

    def see_through(self, past: Past | None) -> Result:
        """The same, with everything left open."""
        plan, config, observer = self.plan, self.plan.config, self.observer
        self.running = self.wait(self.starting, self.start, config, self.seeds, self.device)
        self.compile_seconds = self.running.compile_seconds
        if past:
            self.wait("restoring", self.take_up, past)
        observer.started(self.seeds, self.running)
        if config.interval and not past:
            self.measure()
        size, ended = 1, self.done == config.ticks
        while not ended:
            count = min([size, config.ticks - self.done, *self.distances()])
            seconds, signal, due = self.agree(self.advance(count), observer.stop(), self.keeper.due(self.done))
            if signal and not observer.stop():
                observer.stop_too(signal)
            ended = self.done == config.ticks or bool(signal)
            if self.keeper.keeps and (due or ended):
                self.wait("saving", self.save)
            # Not from a chunk that was cut short: it says little about how long the next one may be.
            size = int(np.clip(CHUNK_SECONDS / (seconds / count), 1, 4 * max(count, size)))
        metrics = {name: np.concatenate([part[name] for part in self.parts], axis=1) for name in self.parts[0]}
        params = self.running.params()
        if self.on_nan == "stop":
            self.check_arrays(capture(params, "params."))
        self.wait("finishing", observer.ended, self.running)
        return Result(plan, metrics, params, self.compile_seconds, self.tick_seconds, self.snapshots)

    def agree(self, seconds: float, signal: int, due: bool) -> tuple[float, int, bool]:
        """What all processes of the run go by after a chunk, where there are several."""
        if not hasattr(self.running, "agree"):
            return seconds, signal, due
        numbers = self.wait("training", self.running.agree, [seconds, signal, due])
        return numbers[0], int(numbers[1]), bool(numbers[2])

    def wait(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call in the rung's thread, and let the observer see that something goes on."""
        begun, future = time.perf_counter(), self.thread.submit(call, *arguments)
        while not future.done():
            self.observer.waiting(what, time.perf_counter() - begun)
            time.sleep(0.002)
        return future.result()

    def distances(self) -> list[int]:
        """Ticks to the next measurement, and to the next checkpoint, where they come at fixed ticks."""
        return [every - self.done % every for every in (self.plan.config.interval, self.keeper.every) if every]

    def advance(self, count: int) -> float:
        """Train for so many ticks and tell what came of them. Returns their seconds."""
        config, settings = self.plan.config, self.plan.workload.load_settings()
        try:
            reported, seconds = self.wait("training", _timed, self.running.advance, count)
        finally:
            for line in getattr(self.running, "news", list)():
                self.observer.told(line)
        columns = settings.columns(config, reported)
        if self.on_nan == "stop":
            self.check_loss(columns["loss"], columns.get("updates"))
        self.done += count
        if config.interval:
            due = self.done % config.interval == 0 or self.done == config.ticks
            measured = self.measure() if due else settings.measured(config)
            columns |= _in_last_tick(measured, len(self.seeds), count)
        self.parts.append(columns)
        self.tick_seconds.append(seconds / count / len(self.seeds))
        self.observer.chunk(self.seeds, self.done - count, columns, seconds)
        return float(seconds)

    def measure(self) -> Mapping[str, np.ndarray]:
        """How good what is learned by now is."""
        if not self.observer.leads:
            self.wait("measuring", self.running.params)  # which are gathered from all
            nothing: Mapping[str, np.ndarray] = self.plan.workload.load_settings().measured(self.plan.config)
            return nothing
        found = self.wait("measuring", _measure, self.plan, self.running, self.done)
        if self.seeds[0] == self.plan.seeds[0] and found.picture is not None:
            label = self.plan.workload.load_settings().label(found.columns)
            self.snapshots.append(Snapshot(self.done, found.picture, label))
        columns: Mapping[str, np.ndarray] = found.columns
        return columns

    def save(self) -> None:
        """Hand everything that the run would go on from to the keeper."""
        state = capture(self.running.state(), "state.")
        if self.on_nan == "stop":
            self.check_arrays(state)
        arrays = state | capture({"finished": [result.params for result in self.earlier]})
        shown = self.earlier[0].snapshots if self.earlier else self.snapshots
        arrays |= {f"snapshots.{i}": snapshot.picture for i, snapshot in enumerate(shown)}
        facts = {
            "rung": self.plan.rung,
            "group": self.number,
            "done": self.done,
            "ticks": self.plan.config.ticks,
            "compile_seconds": self.compile_seconds,
            "tick_seconds": float(np.median(self.tick_seconds)),
            "snapshots": [[snapshot.tick, snapshot.label] for snapshot in shown],
        }
        returns = np.concatenate([part["return"] for part in self.parts], axis=1)[:, self.saved :]
        score = float(np.mean(returns[np.isfinite(returns)])) if np.isfinite(returns).any() else np.nan
        self.saved = self.done
        self.keeper.save(self.number * self.plan.config.ticks + self.done, arrays, facts, score)

    def take_up(self, past: Past) -> None:
        """Go on from a checkpoint."""
        self.running.take_state(restore(self.running.state(), past.arrays, "state."))
        facts, rows = past.facts, [self.plan.seeds.index(seed) for seed in self.seeds]
        self.done = self.saved = facts["done"]
        metrics = {name: values[rows, : self.done] for name, values in past.metrics.items()}
        self.parts = [metrics]
        self.learning = bool(np.isfinite(metrics["loss"]).any())
        self.compile_seconds += facts["compile_seconds"]
        self.tick_seconds = [facts["tick_seconds"]]
        self.snapshots = [] if self.number else past.snapshots()

    def check_loss(self, loss: np.ndarray, updates: np.ndarray | None) -> None:
        """Before learning starts the loss [seeds, ticks] is nan; from then on it has to be a number.

        Learning starts with the first update, where these are counted, else with the first number.
        """
        finite = np.isfinite(loss)
        begun = finite if updates is None else finite | (updates > 0)
        started = self.learning | np.logical_or.accumulate(begun, axis=1)
        bad = ~finite & (started | np.isinf(loss))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            leaf = first_bad(self.wait("looking for the cause", capture, self.running.state(), "state."))
            what = f"The loss of seed {self.seeds[row]} stopped being a number"
            raise self.diverged(what, self.done + int(column), int(row), leaf)
        self.learning = bool(started[:, -1].all())

    def check_arrays(self, arrays: Arrays) -> None:
        """What was learned has to be numbers, or it is not kept."""
        leaf = first_bad(arrays)
        if leaf:
            raise self.diverged("A parameter is not a number", self.done, None, leaf)

    def diverged(self, what: str, tick: int, row: int | None, leaf: BadLeaf | None) -> Diverged:
        """The error that ends a run whose numbers are none, with all that is known of it."""
        where = ""
        report: dict[str, Any] = {"tick": tick, "last_checkpoint": self.keeper.last}
        if leaf:
            row = leaf.place[0] if leaf.place and leaf.name.startswith("runs.") else row
            agents = self.plan.config.num_learners
            agent = leaf.place[1] if agents > 1 and len(leaf.place) > 1 else None
            where = f" The first bad array is `{leaf.name}`{'' if agent is None else f' of agent {agent}'}."
            report |= {"leaf": leaf.name, "index": list(leaf.place), "agent": agent}
        report["seed"] = None if row is None else self.seeds[row]
        kept = f"The last checkpoint is {self.keeper.last}." if self.keeper.last else "There is no checkpoint yet."
        error = Diverged(
            f"{what} at {self.plan.workload.tick} {tick}.{where} {kept} "
            "A smaller `--learner.lr` is the first thing to try."
        )
        error.report = report
        return error


class BadLeaf(NamedTuple):
    """An array with something in it that is not a number, and where."""

    name: str
    place: tuple[int, ...]


def first_bad(arrays: Arrays) -> BadLeaf | None:
    """The first array of an agent that holds nan or infinity."""
    for name, array in arrays.items():
        learned = any(word in name for word in ("params", "moments", "target", "nets"))
        if learned and array.dtype.kind == "f" and not np.isfinite(array).all():
            return BadLeaf(name.removeprefix("state."), tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0]))
    return None


def _finished(plan: Plan, number: int, past: Past) -> Result:
    """A group of seeds that was trained before the run was taken up again; there is one seed in it."""
    prefix = f"finished.{number}."
    params = unflatten({k.removeprefix(prefix): v for k, v in past.arrays.items() if k.startswith(prefix)})
    metrics = {name: values[number : number + 1] for name, values in past.metrics.items()}
    return Result(plan, metrics, params, 0.0, [], [] if number else past.snapshots())


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
