"""Train a sweep: leg after leg, each a population of trials and seeds; compare trials between them; test the winner.

A leg is a run directory of its own in `legs/`, with checkpoints, so a sweep that was stopped or killed goes on where it
was: finished legs are read, the one that was interrupted is resumed, and all decisions follow from their metrics.

Shapes: R rows, one for each trial of a leg and seed.
"""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder import devices
from xladder.callbacks import Observers
from xladder.core.state import Arrays, unflatten
from xladder.core.statistics import mean_and_interval
from xladder.errors import DamagedRun, UsageError
from xladder.execution import execute
from xladder.plans import Plan
from xladder.progress import Drawing
from xladder.results import Result
from xladder.runs import metrics, resuming
from xladder.runs.directory import AGENTS, Keeping, RunDirectory, refuse_links
from xladder.runs.disk import write_json
from xladder.runs.folders import command
from xladder.runs.keeping import DiskCheckpointer
from xladder.runs.listing import BEST, SWEEP
from xladder.runs.locks import Lock
from xladder.runs.reading import parse_json, read_bytes, why
from xladder.runs.recording import Recorder, save
from xladder.sweeps.legs import Row, begin_leg, check_leg, finish_leg
from xladder.sweeps.schedule import Scores, exploit
from xladder.sweeps.sweep import Sweep, describe_sweep, parse_sweep
from xladder.trainer import Observer, ResumeState

if TYPE_CHECKING:
    from xladder.protocols import Config

RESULT = "result.json"
MOST_BYTES = 1 << 26  # of sweep.json: it lists all trials
SHARE_OF_MEMORY = 0.5
Inherit = Callable[[], ResumeState | None]
Watch = Callable[[Plan, RunDirectory], AbstractContextManager[tuple[Drawing, Sequence[Observer]]]]


@dataclass
class Member:
    """A trial while it trains."""

    number: int
    values: dict[str, Any]
    config: Config
    leg: int = -1
    """The leg that it was trained in last; −1 if not at all."""
    row: int = 0
    """Its first row there."""
    ticks: int = 0
    """How far it was trained, in ticks of the base settings."""
    learned: bool = False
    """Whether it has made an update."""
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    """How well each seed does, float [seeds]; in the metric's own sign."""


@dataclass(frozen=True)
class Outcome:
    """The result of a sweep."""

    folder: Path
    """The folder of the sweep."""
    trials: Sequence[Mapping[str, Any]]
    """A row per trial, best first, with its number, settings, score and ticks trained."""
    best: Mapping[str, Any]
    """The settings of the winner."""
    tuning_score: tuple[float, float]
    """Its mean on the tuning seeds, and the half width of the 95 % interval."""
    test_score: Mapping[str, Any]
    """The evaluation of the winner, trained on the test seeds."""
    default_score: Mapping[str, Any]
    """The evaluation of the base settings, trained on the same seeds."""
    command: str
    """The command that trains the winner."""
    stopped: int = 0
    """The signal that stopped the sweep, or 0; then only `folder` and `trials` have a meaning."""


class SweepDirectory:
    """The folder of a sweep."""

    def __init__(self, path: Path, sweep: Sweep):
        self.path, self.sweep = path, sweep
        self.lock = Lock(path / "lock")

    @classmethod
    def create(cls, path: Path, sweep: Sweep) -> SweepDirectory:
        """Create and lock the folder of a new sweep."""
        try:
            if path.is_dir() and any(path.iterdir()):
                raise UsageError(f"`{path}` is not empty: choose another `--out`, nothing is overwritten.")
            path.mkdir(parents=True, exist_ok=True)
            made = cls(path, sweep)
            write_json(path / SWEEP, describe_sweep(sweep))
            (path / "legs").mkdir()
        except OSError as error:
            raise UsageError(f"`{path}` cannot be written: {error.strerror or error}.") from None
        return made

    @classmethod
    def open(cls, path: Path) -> SweepDirectory:
        """Open and lock the folder of a sweep to resume it."""
        try:
            data = parse_json(read_bytes(path / SWEEP, 0, MOST_BYTES))
        except OSError as error:
            raise UsageError(f"`{path / SWEEP}` {why(error)}.") from None
        except ValueError:
            raise UsageError(f"`{path / SWEEP}` is not a sweep that xladder wrote: it is not valid JSON.") from None
        refuse_links(path)
        return cls(path, parse_sweep(data, f"`{path / SWEEP}`"))

    @property
    def resume_command(self) -> str:
        """The command that resumes the sweep."""
        return command("resume", self.path, self.sweep.plan)


class SweepRun:
    """Trains a sweep in its directory.

    Args:
        directory: The directory.
        watch: Shows a leg while it trains.
        notify: Called with lines for the user.
    """

    def __init__(self, directory: SweepDirectory, watch: Watch, notify: Callable[[str], None]):
        from xladder.rungs import fused, mesh
        from xladder.sweeps.population import Populations

        self.directory, self.sweep, self.watch, self.notify = directory, directory.sweep, watch, notify
        self.seeds = self.sweep.plan.seeds
        plan = self.sweep.plan
        self.device = devices.find(plan.device)
        start: Any = partial(mesh.start, mesh=plan.options.mesh) if plan.rung == "mesh" else fused.start
        self.populations = Populations(start)
        self.members = [Member(t.number, dict(t.values), t.config) for t in self.sweep.trials]
        self.legs: list[RunDirectory] = []
        self.stopped = 0
        self.trained = False
        """Whether a leg was trained, rather than read: then all earlier ones were checked, and files may be written."""

    def run(self) -> Outcome:
        """Train all trials as far as they get, then the winner and the base settings on the test seeds."""
        stages = self.sweep.stages()
        alive = list(self.members)
        for number, stage in enumerate(stages):
            if len(stages) > 1:
                self.notify(self._announcement(number, len(stages), len(alive), stage.until))
            self.train(alive, stage.until)
            if self.stopped:
                return self._outcome(None, None)
            scores = Scores(self.sweep.sign * np.stack([member.scores for member in alive]))
            if number + 1 == len(stages):
                break
            if not any(member.learned for member in alive):
                self.notify("nothing has been learned yet, so there is nothing to compare: all go on")
            elif self.sweep.method == "halve":
                alive = [alive[i] for i in scores.order()[: stages[number + 1].trials]]
            elif self.sweep.method == "pbt":
                self.exploit_and_explore(alive, scores, number)
            if self.trained:
                self.write_trials()
        winner = self.ranked()[0]
        if self.trained:
            self.write_trials()
        tested = self.test(winner)
        self.write_trials()
        if self.stopped:
            return self._outcome(winner, None)
        outcome = self._outcome(winner, tested)
        self.finish(outcome)
        return outcome

    def _announcement(self, number: int, count: int, trials: int, until: int) -> str:
        plan = self.sweep.plan
        units = until * plan.config.units_per_tick
        what = "generation" if self.sweep.method == "pbt" else "stage"
        some = f"{trials} trial{'s' * (trials > 1)}"
        return f"{what} {number + 1} of {count}: {some} to {units:,} {plan.workload.length}"

    # Legs.

    def train(self, members: Sequence[Member], until: int) -> None:
        """Train some trials up to a tick, in as many legs as they need."""
        for shared, group in self._grouped(members).items():
            width = self.width(shared, len(group))
            # A setting that changes the size of a tick changes how many there are.
            ticks = round(until * shared.ticks / self.sweep.training.ticks)
            for begin in range(0, len(group), width):
                some = group[begin : begin + width]
                padded = [*some, *[some[0]] * (width - len(some))]
                rows = [
                    Row(member.config, seed, member.values, member.leg, member.row + place)
                    for member in padded
                    for place, seed in enumerate(self.seeds)
                ]
                found = self.train_leg(shared, rows, ticks, partial(self._inherited, padded))
                if found is None:
                    return
                scores = self.sweep.sign * self.sweep.score(found)
                for place, member in enumerate(some):
                    member.leg, member.row, member.ticks = len(self.legs) - 1, place * len(self.seeds), until
                    mine = slice(member.row, member.row + len(self.seeds))
                    member.scores, member.learned = scores[mine], bool(np.isfinite(found["loss"][mine]).any())

    def width(self, shared: Any, trials: int) -> int:
        """How many trials train together; the same in all stages, so that nothing is compiled again.

        On a CPU, where time grows with the rows, as many as reach the last stage; elsewhere all, as memory allows.
        """
        stages = self.sweep.stages()
        most = stages[-1].trials if self.device.platform == "cpu" else stages[0].trials
        total = sum(1 for trial in self.members if self._shared(trial.config) == shared)
        each = shared.family.memory_bytes(shared) * len(self.seeds)
        fits = int(SHARE_OF_MEMORY * devices.memory_bytes(self.device) / each) if each else total
        return max(1, min(most, total, fits))

    def train_leg(
        self, shared: Any, rows: Sequence[Row], until: int, inherit: Inherit = lambda: None
    ) -> dict[str, np.ndarray] | None:
        """Train a population up to a tick. Returns its metrics [R, T], or None if it was stopped.

        They are read from its table also if it was trained just now, so that a sweep that was killed and resumed
        compares the same digits as one that was left alone.
        """
        # A leg may end anywhere, and the next one continues its rows: a row per tick is always complete.
        plan = replace(self.sweep.plan, config=shared, seeds=tuple(range(len(rows))), ticks_per_row=1)
        path = self.directory.path / "legs" / f"{len(self.legs):03d}"
        if (path / "config.json").exists():
            directory = RunDirectory.open(path)
        else:
            if (path / "metrics.csv").exists():
                raise DamagedRun(f"`{path}` has lost its config.json: restore the file, or remove the folder.")
            if path.exists():  # a kill while it was created
                shutil.rmtree(path)
            directory = RunDirectory.create(path, plan, Keeping(on_nan="continue", eval_episodes=0))
        directory.resumed_by = self.directory.resume_command
        try:
            check_leg(directory, plan, rows, until)
            if not directory.is_finished:
                self.trained = True
                resume_state = self._begun(directory, rows, until, inherit)
                if not self._execute(directory, shared, rows, until, resume_state):
                    return None
        finally:
            directory.writer.close()
            directory.lock.release()
        self.legs.append(directory)
        return metrics.read(path / "metrics.csv", plan.workload.tick)[0]

    def _begun(self, directory: RunDirectory, rows: Sequence[Row], until: int, inherit: Inherit) -> ResumeState | None:
        """What a leg goes on from: its own checkpoint, or if it has none what it inherits, or nothing."""
        checkpoint = resuming.find_latest(directory, self.notify)
        if checkpoint:
            return resuming.rewind(directory, checkpoint, directory.log)
        directory.writer.start_over()
        begin_leg(directory, rows, until)
        inherited = inherit()
        if inherited:
            before = next(iter(inherited.metrics.values())).shape[1]
            directory.append(directory.plan.seeds, np.arange(1, before + 1), inherited.metrics, 0.0)
        return inherited

    def _execute(
        self,
        directory: RunDirectory,
        shared: Any,
        rows: Sequence[Row],
        until: int,
        resume_state: ResumeState | None,
    ) -> bool:
        """Train a leg. Returns whether it came to its end, rather than being stopped."""
        each = [(row.config, row.seed) for row in rows]

        def around(_: Any) -> Callable[..., Any]:
            return lambda config, seeds, device: self.populations.begin(shared, each, device)

        recorder = Recorder(directory)
        recorder.begin(self.device)
        with self.watch(directory.plan, directory) as (drawn, observers):
            everybody = Observers([recorder, drawn, *observers])
            checkpointer = DiskCheckpointer(directory, recorder.announce)
            result = execute(directory.plan, everybody, checkpointer, resume_state, "continue", around, until)
            self.stopped = everybody.stop()
        if self.stopped:
            return False
        directory.write_pending()
        directory.writer.sync()
        directory.save_agents(result.params)
        finish_leg(directory, rows, until)
        directory.mark_finished()
        return True

    def _inherited(self, members: Sequence[Member]) -> ResumeState | None:
        """The state that a leg starts from: the rows of its trials in the legs before it; None at the start."""
        from xladder.sweeps.population import gather_rows, set_hyperparams

        if members[0].leg < 0:
            return None
        places = sorted({member.leg for member in members})
        states = [self._state(leg) for leg in places]
        each = range(len(self.seeds))
        rows = [(places.index(member.leg), member.row + seed) for member in members for seed in each]
        arrays = gather_rows([arrays for arrays, _ in states], rows)
        arrays = set_hyperparams(arrays, [member.config for member in members for _ in each])
        tick = self.sweep.plan.workload.tick
        tables = [metrics.read(self.legs[leg].path / "metrics.csv", tick)[0] for leg in places]
        table = {name: np.stack([tables[which][name][row] for which, row in rows]) for name in tables[0]}
        return ResumeState(arrays, {**states[0][1], "snapshots": [], "compile_seconds": 0.0}, table)

    def _state(self, leg: int) -> tuple[Arrays, Mapping[str, Any]]:
        """The final state of a leg, as its last checkpoint holds it."""
        found = resuming.find_latest(self.legs[leg], self.notify)
        if found is None:
            raise DamagedRun(f"`{self.legs[leg].path}` has no checkpoint to go on from.")
        return {name: array for name, array in found.arrays.items() if name.startswith("state.")}, found.facts

    def _grouped(self, members: Sequence[Member]) -> dict[Any, list[Member]]:
        """Trials that can share a program, by the config they share."""
        groups: dict[Any, list[Member]] = {}
        for member in members:
            groups.setdefault(self._shared(member.config), []).append(member)
        return groups

    def _shared(self, config: Config) -> Any:
        from xladder.sweeps.population import shared_config

        return shared_config(config, self.sweep.training)

    # Population-based training.

    def exploit_and_explore(self, members: Sequence[Member], scores: Scores, generation: int) -> None:
        """Replace the worst trials by copies of the best ones, and change the copies' settings a little."""
        from xladder.sweeps.space import with_values

        rng = np.random.default_rng([self.sweep.seed, generation])
        before = [(member.leg, member.row, dict(member.values)) for member in members]
        for member, source in zip(members, exploit(scores), strict=True):
            if members[source] is member:
                continue
            member.leg, member.row, values = before[source]
            member.values = {axis.name: axis.perturb(values[axis.name], rng) for axis in self.sweep.axes}
            member.config = with_values(self.sweep.training, member.values)

    # The end.

    def ranked(self) -> list[Member]:
        """All trials: those that trained longest first, and among them the best first."""

        def rank(member: Member) -> tuple[int, float, int]:
            means = Scores(self.sweep.sign * member.scores[None]).means if member.ticks else [-math.inf]
            return -member.ticks, -float(means[0]), member.number

        return sorted(self.members, key=rank)

    def test(self, winner: Member) -> dict[str, tuple[Result, dict[str, Any]]] | None:
        """Train the winner and the base settings on the test seeds, and evaluate both."""
        seeds = self.sweep.test_seeds
        contenders: dict[str, tuple[Any, dict[str, Any]]] = {
            "best": (winner.config, winner.values),
            "default": (self.sweep.training, {}),
        }
        self.notify(f"testing the best trial and the base settings on {len(seeds)} other seed{'s' * (len(seeds) > 1)}")
        found: dict[str, Result] = {}
        for shared, names in self._contenders(contenders).items():
            rows = [Row(contenders[name][0], seed, contenders[name][1]) for name in names for seed in seeds]
            width = self._compiled_width(shared, len(rows))
            padded = [*rows, *[rows[0]] * (width - len(rows))]
            table = self.train_leg(shared, padded, shared.ticks)
            if table is None:
                return None
            params, seconds = self._agents(self.legs[-1].path), self._seconds(self.legs[-1].path)
            for place, name in enumerate(names):
                mine = slice(place * len(seeds), (place + 1) * len(seeds))
                plan = replace(self.sweep.plan, config=contenders[name][0], seeds=seeds, ticks_per_row=1)
                found[name] = Result(
                    plan, {k: v[mine] for k, v in table.items()}, _take(params, mine), 0.0, seconds, [], None
                )
        episodes = self.sweep.plan.workload.family.train_episodes
        return {name: (result, result.evaluate(episodes)) for name, result in found.items()}

    def _contenders(self, contenders: Mapping[str, tuple[Any, dict[str, Any]]]) -> dict[Any, list[str]]:
        groups: dict[Any, list[str]] = {}
        for name, (config, _) in contenders.items():
            groups.setdefault(self._shared(config), []).append(name)
        return groups

    def _compiled_width(self, shared: Any, rows: int) -> int:
        """The rows of a population that is compiled already, if that saves time: not on a CPU, where rows cost time.

        It follows from the legs, and not from what this process has compiled, so that it is the same after a kill.
        """
        counts = [len(leg.plan.seeds) for leg in self.legs if leg.plan.config == shared]
        known = [count for count in counts if count >= rows]
        return min(known) if known and self.device.platform != "cpu" else rows

    def _agents(self, path: Path) -> Any:
        from safetensors.numpy import load_file

        return unflatten(load_file(path / AGENTS))

    def _seconds(self, path: Path) -> list[float]:
        """The time of a tick of a whole leg, as a run reports it: per seed."""
        columns = metrics.read_table(path / "metrics.csv", self.sweep.plan.workload.tick).columns["seconds"]
        return [float(np.nanmax(columns)) / columns.size]

    def rows(self) -> list[dict[str, Any]]:
        """A row per trial, best first."""
        base, rows = self.sweep.training, list[dict[str, Any]]()
        for member in self.ranked():
            mean, interval = mean_and_interval(member.scores) if member.ticks else (np.nan, np.nan)
            rows.append(
                {
                    "trial": member.number,
                    **member.values,
                    self.sweep.metric: float(mean) if np.isfinite(member.scores).all() else math.nan,  # a seed diverged
                    "ci95": float(interval),
                    self.sweep.plan.workload.length: member.ticks * base.units_per_tick,
                }
            )
        return rows

    def write_trials(self) -> None:
        """Write trials.csv: all trials so far, best first."""
        rows = self.rows()
        with (self.directory.path / "trials.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def _outcome(self, winner: Member | None, tested: Mapping[str, tuple[Result, dict[str, Any]]] | None) -> Outcome:
        scores = {name: score for name, (_, score) in tested.items()} if tested else {"best": {}, "default": {}}
        mean, interval = mean_and_interval(winner.scores) if winner else (math.nan, math.nan)
        if tested and winner:
            save(tested["best"][0], self._fresh(BEST), score=tested["best"][1])
        return Outcome(
            folder=self.directory.path,
            trials=self.rows() if winner else [],
            best=winner.values if winner else {},
            tuning_score=(float(mean), float(interval)),
            test_score=scores["best"],
            default_score=scores["default"],
            command=self.sweep.command(winner.values) if winner else "",
            stopped=self.stopped,
        )

    def _fresh(self, name: str) -> Path:
        """A folder of this name; what a kill has left there is removed."""
        path = self.directory.path / name
        if path.exists():
            shutil.rmtree(path)
        return path

    def finish(self, outcome: Outcome) -> None:
        """Write the picture and the result, and remove what only resuming would need."""
        from xladder.pictures.sweeps import Coordinate, draw_trials

        media = self.directory.path / "media"
        media.mkdir(exist_ok=True)
        plan = self.sweep.plan
        title = f"{plan.workload.name}: {len(self.sweep.trials)} trials on {len(self.seeds)} seeds"
        settings = [
            Coordinate(axis.name, axis.heights([row[axis.name] for row in outcome.trials]), axis.marks())
            for axis in self.sweep.axes
        ]
        scores = np.array([row[self.sweep.metric] for row in outcome.trials], float)
        score = Coordinate(self.sweep.metric, *_spread(scores))
        lengths = np.array([row[plan.workload.length] for row in outcome.trials])
        draw_trials(media / "sweep.png", settings, score, self.sweep.sign, lengths < lengths.max(), title)
        write_json(
            self.directory.path / RESULT,
            {
                "best": dict(outcome.best),
                "metric": self.sweep.metric,
                "tuning_seeds": list(self.seeds),
                "tuning_score": outcome.tuning_score[0],
                "tuning_ci95": outcome.tuning_score[1],
                "test_seeds": list(self.sweep.test_seeds),
                "test_score": dict(outcome.test_score),
                "default_score": dict(outcome.default_score),
                "command": outcome.command,
            },
        )
        for leg in self.legs:  # only now: before the result is written, the sweep may have to be resumed
            shutil.rmtree(leg.path / "checkpoints", ignore_errors=True)


def _spread(scores: np.ndarray) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """Scores [N] from 0 to 1, and labels for 0, ½ and 1."""
    known = scores[np.isfinite(scores)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    if high == low:
        return np.where(np.isfinite(scores), 0.5, np.nan), [(0.5, f"{low:.3g}")]
    marks = [(share, f"{low + share * (high - low):.3g}") for share in (0.0, 0.5, 1.0)]
    return (scores - low) / (high - low), marks


def _take(tree: Any, rows: slice) -> Any:
    if isinstance(tree, Mapping):
        return {name: _take(branch, rows) for name, branch in tree.items()}
    return tree[rows]
