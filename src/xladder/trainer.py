"""Train one group of seeds from its start or a checkpoint: advance by chunks, evaluate, save and check for nan.

The rung runs in its own thread, so that the caller can show progress and handle signals while XLA compiles or
computes. It is the same thread throughout, because PyTorch's thread count is per thread.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from xladder import devices
from xladder.bad_numbers import BadLeaf, first_bad, returned_by_world
from xladder.core.metric_rows import RowBuilder, row_ends
from xladder.core.state import Arrays, capture, restore
from xladder.core.statistics import episode_weights, weighted_mean
from xladder.errors import Diverged, UserCodeFailed, brief, raised_in_callback, untraceable
from xladder.plans import Plan
from xladder.results import Result, Snapshot

OnNan = Literal["stop", "continue"]
POLL_SECONDS = 0.05  # between calls of the observer while the rung is busy
CHUNK_SECONDS = 0.7  # long enough to make host overhead negligible, short enough for a live bar and a quick stop

MOST_PICTURE_BYTES = 2**26  # of a run, over all seeds and evaluations
MOST_PARTS = 256  # of rows, before they are joined: small arrays take memory of their own
TAIL = "metrics_tail."  # arrays of a checkpoint: the ticks of an incomplete row


class Observer:
    """Is notified of a run's progress, and may stop it. This base class does nothing; the command line's prints."""

    def waiting(self, what: str, seconds: float) -> None:
        """Called several times a second while the rung is busy; `what` is "compiling", "training", …."""

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Called when the rung is ready to train these seeds."""

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Called after each chunk of ticks.

        Args:
            seeds: The seeds that are being trained.
            first: The first tick of the chunk.
            columns: Metrics by name, [seeds, ticks].
            seconds: How long the chunk took.
        """

    def rows(self, seeds: Sequence[int], ends: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Called after `chunk` with the rows of metrics that are complete, if any; rows have one tick or more.

        Args:
            seeds: The seeds that are being trained.
            ends: Ticks of the run at the end of each row, int [rows].
            columns: Metrics by name, [seeds, rows].
        """

    def notify(self, line: str) -> None:
        """Called with a message from the rung, such as a restarted worker."""

    def ended(self, running: Any) -> None:
        """Called in the rung's thread when a group of seeds is trained."""

    def stop(self) -> int:
        """The signal on account of which to stop after this chunk; 0 to continue."""
        return 0

    def stop_too(self, signal: int) -> None:
        """Called when another process of the run has received a signal."""

    def periods(self) -> Sequence[int]:
        """Numbers of ticks at whose multiples a chunk has to end."""
        return ()

    leads = True
    """Whether this process evaluates and writes; the run's other processes follow it."""


class Checkpointer:
    """Saves checkpoints. This base class saves none."""

    keeps = False
    """Whether `save` does anything."""
    every = 0
    """Ticks between checkpoints; 0 if they are scheduled by time."""
    last: str | None = None
    """The name of the last checkpoint."""

    def due(self, tick: int) -> bool:
        """Whether to save now, `tick` ticks into the training of a group of seeds."""
        return False

    def save(self, step: int, arrays: Arrays, facts: Mapping[str, Any], score: float) -> None:
        """Save a checkpoint.

        Args:
            step: Ticks so far, over all groups of seeds.
            arrays: The training state by name.
            facts: Metadata, as JSON-ready values.
            score: The mean return since the last checkpoint, to find the best one.
        """


@dataclass(frozen=True)
class ResumeState:
    """The state that a resumed run continues from: a checkpoint and the metrics up to it."""

    arrays: Arrays
    facts: Mapping[str, Any]
    metrics: Mapping[str, np.ndarray]
    """Name → float [seed, row], of all rows that are complete."""

    @property
    def tail(self) -> dict[str, np.ndarray]:
        """The ticks of a row that is not complete: name → [seed, tick]."""
        return {name.removeprefix(TAIL): array for name, array in self.arrays.items() if name.startswith(TAIL)}

    @property
    def has_learned(self) -> bool:
        """Whether there was an update."""
        return any(bool(np.isfinite(part["loss"]).any()) for part in (self.metrics, self.tail) if part)

    def snapshots(self, plan: Plan, seeds: Sequence[int]) -> list[Snapshot]:
        """The pictures of some seeds up to the checkpoint."""
        entries = enumerate(self.facts["snapshots"])
        found = [Snapshot(tick, self.arrays[f"snapshots.{i}"], *more) for i, (tick, *more) in entries]
        return [one for one in found if (plan.seeds[0] if one.seed is None else one.seed) in seeds]


@dataclass
class Trial:
    """Trains one group of seeds, from its start or from a checkpoint."""

    plan: Plan
    number: int
    seeds: tuple[int, ...]
    starting: str
    start: Callable[..., Any]
    device: Any
    thread: ThreadPoolExecutor
    observer: Observer
    checkpointer: Checkpointer
    on_nan: OnNan
    earlier: Sequence[Result]
    """The results of the groups before this one."""
    until: int | None = None
    """The tick to stop at; the end of the run if None."""
    running: Any = None
    done: int = 0
    kept: int = 0
    """Rows of metrics that are complete."""
    learning: bool = False
    parts: list[Mapping[str, np.ndarray]] = field(default_factory=list)
    """Rows of metrics, [seeds, rows]."""
    recent: list[dict[str, np.ndarray]] = field(default_factory=list)
    """Returns and episodes of the ticks since the last checkpoint, [seeds, ticks]."""
    tick_seconds: list[float] = field(default_factory=list)
    compile_seconds: float = 0.0
    snapshots: list[Snapshot] = field(default_factory=list)
    phases: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by what they were spent on."""

    def __post_init__(self) -> None:
        config, family = self.plan.config, self.plan.workload.family
        self.row_builder = RowBuilder(self.plan.ticks_per_row, family.measured(config) if config.interval else ())

    def run(self, resume_state: ResumeState | None) -> Result:
        """Train until the plan is complete or the observer stops it, then release the rung's resources."""
        try:
            return self.run_to_end(resume_state)
        finally:
            # In the rung's thread, so that it waits for an interrupted start that is still running there.
            self.thread.submit(self.close).result()

    def begin(self) -> None:
        """Start the rung."""
        self.running = self.start(self.plan.config, self.seeds, self.device)

    def close(self) -> None:
        """Release the rung's resources."""
        if self.running is not None:
            self.running.close()

    def run_to_end(self, resume_state: ResumeState | None) -> Result:
        """Train as `run` does, without releasing the rung's resources."""
        plan, config, observer = self.plan, self.plan.config, self.observer
        begun = time.perf_counter()
        self.wait("starting", self.begin, shown=self.starting)
        self.compile_seconds = self.running.compile_seconds
        self.phases["starting"] = max(time.perf_counter() - begun - self.compile_seconds, 0.0)
        self.phases["compiling"] = self.compile_seconds
        if resume_state:
            self.wait("restoring", self.resume, resume_state)
        observer.started(self.seeds, self.running)
        if config.interval and not resume_state:
            self.measure()
        last = config.ticks if self.until is None else self.until
        size, ended = 1, self.done == last
        while not ended:
            count = min([size, last - self.done, *self.distances()])
            seconds, signal, due = self.agree(self.advance(count), observer.stop(), self.checkpointer.due(self.done))
            if signal and not observer.stop():
                observer.stop_too(signal)
            ended = self.done == last or bool(signal)
            if self.checkpointer.keeps and (due or ended):
                self.wait("saving", self.save)
            # A chunk that was cut short says little about the right size, so growth starts from the larger of the two.
            size = int(np.clip(CHUNK_SECONDS / (seconds / count), 1, 4 * max(count, size)))
        # After the last checkpoint, so that a resumed or longer run goes on with the ticks of this row.
        self.keep_rows(self.row_builder.flush())
        metrics = _joined(self.parts)
        params = self.running.params()
        if self.on_nan == "stop":
            self.check_arrays(capture(params, "params."))
        self.wait("finishing", observer.ended, self.running)
        return Result(
            plan,
            metrics,
            params,
            self.compile_seconds,
            self.tick_seconds,
            self.snapshots,
            phases=dict(self.phases),
            ticks_done=self.done,
        )

    def agree(self, seconds: float, signal: int, due: bool) -> tuple[float, int, bool]:
        """Agree with the run's other processes, if any, on a chunk's seconds, on stopping and on saving."""
        if not hasattr(self.running, "agree"):
            return seconds, signal, due
        numbers = self.wait("training", self.running.agree, [seconds, signal, due])
        return numbers[0], int(numbers[1]), bool(numbers[2])

    def wait(self, what: str, call: Callable[..., Any], *arguments: Any, shown: str | None = None) -> Any:
        """Call a function in the rung's thread, keeping the observer informed while it runs."""
        begun, future = time.perf_counter(), self.thread.submit(call, *arguments)
        while not future.done():
            self.observer.waiting(shown or what, time.perf_counter() - begun)
            wait([future], POLL_SECONDS)  # returns as soon as it is done
        self.phases[what] += time.perf_counter() - begun
        error, sentence = future.exception(), ""
        if isinstance(error, UserCodeFailed):
            sentence = str(error)
        # Nothing of ours raises SystemExit in this thread, and it would end the command without a word.
        elif error and (isinstance(error, SystemExit) or raised_in_callback(error)):
            sentence = f"`{self.plan.workload.name}` fails in a function of its own: {brief(error)}."
        elif error and (fault := untraceable(error)):
            name = self.plan.workload.name
            sentence = f"{f'`{name}`' if ':' in name else 'A function of your own'} {fault}."
        if sentence:
            raise UserCodeFailed(f"{sentence} The run ended at {self.plan.workload.tick} {self.done}.") from error
        return future.result()

    def distances(self) -> list[int]:
        """Ticks until the next evaluation, checkpoint or replay, if they are at fixed ticks."""
        periods = self.plan.config.interval, self.checkpointer.every, *self.observer.periods()
        return [every - self.done % every for every in periods if every]

    def advance(self, count: int) -> float:
        """Train for `count` ticks and report their metrics. Returns the seconds they took."""
        config, settings = self.plan.config, self.plan.workload.family
        phase = "training" if self.tick_seconds else "first chunk"
        try:
            reported, seconds = self.wait(phase, _timed, self.running.advance, count, shown="training")
        finally:
            for line in getattr(self.running, "news", list)():
                self.observer.notify(line)
        columns = settings.columns(config, reported)
        if self.on_nan == "stop":
            self.check_loss(columns["loss"], columns.get("updates"))
        self.done += count
        if config.interval:
            due = evaluation_due(self.done, config.interval, config.ticks) or self.done == self.until
            measured = self.measure() if due else settings.measured(config)
            columns |= _in_last_tick(measured, len(self.seeds), count)
        self.tick_seconds.append(seconds / count / len(self.seeds))
        begun = time.perf_counter()
        if self.checkpointer.keeps:
            self.recent.append({name: columns[name] for name in ("return", "episodes") if name in columns})
        self.observer.chunk(self.seeds, self.done - count, columns, seconds)
        self.keep_rows(self.row_builder.add(columns))
        self.phases["recording"] += time.perf_counter() - begun
        return float(seconds)

    def keep_rows(self, rows: Mapping[str, np.ndarray]) -> None:
        """Keep and report rows of metrics, if there are any."""
        count = next(iter(rows.values())).shape[1] if rows else 0
        if count:
            self.parts.append(rows)
            if len(self.parts) > MOST_PARTS:
                self.parts = [_joined(self.parts)]
            self.observer.rows(self.seeds, row_ends(self.kept, count, self.plan.ticks_per_row, self.done), rows)
            self.kept += count

    def measure(self) -> Mapping[str, np.ndarray]:
        """Evaluate the current parameters."""
        if not self.observer.leads:
            self.wait("measuring", self.running.params)  # takes part in gathering them from all hosts
            nothing: Mapping[str, np.ndarray] = self.plan.workload.family.measured(self.plan.config)
            return nothing
        found = self.wait("measuring", _measure, self.plan, self.running, self.done)
        if found.pictures is not None:
            label, kept = self.plan.workload.family.label, self.plan.seeds[: _pictures_kept(self.plan, found.pictures)]
            self.snapshots += [
                Snapshot(self.done, picture, label(found.columns, place), seed)
                for place, (seed, picture) in enumerate(zip(self.seeds, found.pictures, strict=True))
                if seed in kept
            ]
        columns: Mapping[str, np.ndarray] = found.columns
        return columns

    def save(self) -> None:
        """Pass the complete training state to the checkpointer."""
        state = capture(self.running.state(), "state.")
        if self.on_nan == "stop":
            self.check_arrays(state)
        arrays = state | capture({"finished": [result.params for result in self.earlier]})
        shown = [snapshot for result in self.earlier for snapshot in result.snapshots] + self.snapshots
        arrays |= {f"snapshots.{i}": snapshot.picture for i, snapshot in enumerate(shown)}
        arrays |= {f"{TAIL}{name}": values for name, values in self.row_builder.tail.items()}
        facts = {
            "rung": self.plan.rung,
            "group": self.number,
            "done": self.done,
            "ticks": self.plan.config.ticks,
            "compile_seconds": self.compile_seconds,
            "tick_seconds": float(np.median(self.tick_seconds)),
            "snapshots": [[snapshot.tick, snapshot.label, snapshot.seed] for snapshot in shown],
        }
        recent = _joined(self.recent) if self.recent else {}
        score = float(weighted_mean(recent["return"], episode_weights("return", recent))) if recent else float("nan")
        self.recent = []
        self.checkpointer.save(self.number * self.plan.config.ticks + self.done, arrays, facts, score)

    def resume(self, resume_state: ResumeState) -> None:
        """Restore a checkpoint."""
        self.running.take_state(restore(self.running.state(), resume_state.arrays, "state."))
        facts, rows = resume_state.facts, [self.plan.seeds.index(seed) for seed in self.seeds]
        self.done = facts["done"]
        self.kept = self.done // self.plan.ticks_per_row
        metrics = {name: values[rows, : self.kept] for name, values in resume_state.metrics.items()}
        self.parts, self.row_builder.tail = [metrics] if self.kept else [], resume_state.tail
        self.learning = any(bool(np.isfinite(part["loss"]).any()) for part in (metrics, resume_state.tail) if part)
        self.compile_seconds += facts["compile_seconds"]
        self.tick_seconds = [facts["tick_seconds"]]
        self.snapshots = resume_state.snapshots(self.plan, self.seeds)

    def check_loss(self, loss: np.ndarray, updates: np.ndarray | None) -> None:
        """Raise `Diverged` if the loss [seeds, ticks] is nan or infinite after learning has started.

        Before that it is nan. Learning starts with the first update if updates are counted, else with the first
        finite loss.
        """
        finite = np.isfinite(loss)
        begun = finite if updates is None else finite | (updates > 0)
        started = self.learning | np.logical_or.accumulate(begun, axis=1)
        bad = ~finite & (started | np.isinf(loss))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            state = self.wait("looking for the cause", capture, self.running.state(), "state.")
            self.check_world(state)
            leaf = first_bad(state)
            what = f"The loss of seed {self.seeds[row]} stopped being a number"
            raise self.diverged(what, self.done + int(column), int(row), leaf)
        self.learning = bool(started[:, -1].all())

    def check_arrays(self, arrays: Arrays) -> None:
        """Raise `Diverged` if a parameter is NaN or infinite, so that it is not saved."""
        leaf = first_bad(arrays)
        if leaf:
            self.check_world(arrays)
            raise self.diverged("A parameter is not a number", self.done, None, leaf)

    def check_world(self, arrays: Arrays) -> None:
        """Raise `UserCodeFailed` if the world returned numbers that are not finite: no learning rate would help."""
        if said := returned_by_world(self.plan.workload.name, arrays):
            raise UserCodeFailed(f"{said} The run ended at {self.plan.workload.tick} {self.done}.")

    def diverged(self, what: str, tick: int, row: int | None, leaf: BadLeaf | None) -> Diverged:
        """Build the error for a diverged run, with a report of where and when."""
        where = ""
        report: dict[str, Any] = {"tick": tick, "last_checkpoint": self.checkpointer.last}
        if leaf:
            row = leaf.place[0] if leaf.place and leaf.name.startswith("runs.") else row
            agents = self.plan.config.num_learners
            agent = leaf.place[1] if agents > 1 and len(leaf.place) > 1 else None
            where = f" The first bad array is `{leaf.name}`{'' if agent is None else f' of agent {agent}'}."
            report |= {"leaf": leaf.name, "index": list(leaf.place), "agent": agent}
        report["seed"] = None if row is None else self.seeds[row]
        last = (
            f"The last checkpoint is {self.checkpointer.last}."
            if self.checkpointer.last
            else "There is no checkpoint yet."
        )
        name = self.plan.workload.name
        own = f" `xladder check {name}` looks for rewards and observations that are not numbers." if ":" in name else ""
        error = Diverged(
            f"{what} at {self.plan.workload.tick} {tick}.{where} {last} "
            f"A smaller `--learner.lr` is the first thing to try.{own}"
        )
        error.report = report
        return error


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns of several parts [S, T] in one piece."""
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def _timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Call a function and time it, in the rung's thread, so that the caller's polling is not counted."""
    begun = time.perf_counter()
    return call(*arguments), time.perf_counter() - begun


def evaluation_due(done: int, interval: int, ticks: int) -> bool:
    """Whether to evaluate after `done` of `ticks` ticks: at the end, and each interval that is not just before it."""
    return done == ticks or (done % interval == 0 and 2 * (ticks - done) >= interval)


def _measure(plan: Plan, running: Any, tick: int) -> Any:
    import jax

    from xladder.core.compiling import compiled

    with jax.default_device(devices.find(plan.device)):
        return plan.config.family.measure(plan.config, running.params(), tick, compiled)


def _pictures_kept(plan: Plan, pictures: np.ndarray) -> int:
    """Of how many seeds pictures are kept: all, unless a run's pictures [S, …] would take too much memory."""
    evaluations = plan.config.ticks // max(plan.config.interval, 1) + 2
    return max(1, MOST_PICTURE_BYTES // (evaluations * max(pictures[0].nbytes, 1)))


def _in_last_tick(values: Mapping[str, np.ndarray], seeds: int, ticks: int) -> dict[str, np.ndarray]:
    """Columns [seeds, ticks] that are nan except for values [seeds] in the last tick."""
    table = {}
    for name, column in values.items():
        table[name] = np.full((seeds, ticks), np.nan, np.float32)
        table[name][:, -1] = column
    return table
