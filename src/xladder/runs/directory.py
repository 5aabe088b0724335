"""The run directory: all files of a run, and how to open it again.

config.json       the plan of the run; `xladder train --config` reads it
environment.json  versions, device, git commit, command line
metrics.csv       one row per tick and seed; per several ticks, if there are many
events/           the same metrics for TensorBoard
timings.json      compile time and time per tick
checkpoints/      full training states; the agents' parameters and snapshots, as safetensors
media/            curves and a replay
log.txt           messages, and the traceback if something failed
finished.json     exists once the run is complete
diverged.json     where the first nan or infinity was found, if the run diverged
lock              held by the process that writes here
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from xladder.bad_numbers import first_bad
from xladder.core.metric_rows import row_ends
from xladder.core.state import capture, flatten
from xladder.core.types import Params
from xladder.errors import UsageError, printable
from xladder.plans import Plan, fit_length
from xladder.results import Result, Snapshot
from xladder.runs import metrics, state_files
from xladder.runs.checkpoints import Checkpoints
from xladder.runs.disk import replace_synced, write_json
from xladder.runs.environment import environment
from xladder.runs.folders import RUNS, WORD, command, file_name, new_folder
from xladder.runs.locks import Lock
from xladder.runs.plan_files import describe_plan, read_config, read_run_plan, run_metadata
from xladder.runs.reading import Unreadable, links_below, read_json, special_below
from xladder.runs.upgrades import is_old_run, refuse_to_resume
from xladder.settings import MOST_COUNT, MOST_EPISODES
from xladder.trainer import OnNan

AGENTS = "checkpoints/agents.safetensors"
FINISHED = "finished.json"
SNAPSHOTS = "checkpoints/snapshots.safetensors"
FEWEST_KEPT = 2  # checkpoints, in case one is damaged
MOST_SESSIONS = 20  # environments of earlier sessions to keep, for a run that is resumed often


@dataclass(frozen=True)
class Keeping:
    """What to save of a run; stored in its config, so that resuming needs no flags."""

    checkpoint_every: int | None = None
    """Ticks between checkpoints; about once a minute if not given, never if 0."""
    keep: int = 2
    """Number of checkpoints to keep, besides the best."""
    on_nan: OnNan = "stop"
    """What to do when a loss or parameter is NaN or infinite."""
    eval_episodes: int | None = None
    """Episodes of the evaluation at the end."""
    record_every: int | None = None
    """How often to save a replay while training, in the unit of the run's length; never if not given."""
    track: tuple[str, ...] = ()
    """Services that get the metrics as well: wandb, trackio."""
    tags: tuple[str, ...] = ()
    """Words to find the run by. They are the run's own: a run that starts from its config does not have them."""

    def check(self) -> None:
        """Raise a `UsageError` for an invalid value; it names the flag, its value and what is allowed."""
        if self.record_every is not None and (type(self.record_every) is not int or self.record_every < 1):
            raise UsageError(f"`--record-every` is {self.record_every}, but it has to be 1 or more.")
        for name, most in (("eval_episodes", MOST_EPISODES), ("checkpoint_every", MOST_COUNT)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value <= most):
                raise UsageError(f"`--{name.replace('_', '-')}` is {value}, but it has to be 0 to {most:,}.")
        if type(self.keep) is not int or self.keep < FEWEST_KEPT:
            raise UsageError(f"`--keep` is {self.keep}, but it has to be 2 or more, in case one checkpoint is damaged.")
        if self.on_nan not in get_args(OnNan):
            raise UsageError(f"`--on-nan` is {self.on_nan!r}, but it has to be one of {', '.join(get_args(OnNan))}.")
        if isinstance(self.tags, str) or not all(isinstance(tag, str) and WORD.fullmatch(tag) for tag in self.tags):
            raise UsageError(
                f"`--tag` is {_listed(self.tags)}, but a tag is made of letters, digits, `.`, `_` and `-`."
            )


@dataclass
class RunDirectory:
    """The folder of one run."""

    path: Path
    plan: Plan
    writer: metrics.MetricsWriter
    lock: Lock
    keeping: Keeping
    was_there: bool
    """Whether the folder already existed, empty, before the run."""
    pending: list[tuple[Sequence[int], np.ndarray, Mapping[str, np.ndarray], float]] = field(default_factory=list)
    """Rows that could not be written yet."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """The configs that the run had before it was lengthened, as `{"config": …}`."""
    resumed_by: str = ""
    """The command that resumes the run, if it is not a plain `xladder resume`."""

    @classmethod
    def create(cls, path: str | Path | None, plan: Plan, keeping: Keeping | None = None) -> RunDirectory:
        """Create and lock the folder of a new run, and write its config. Fast, so a bad path is reported at once."""
        if keeping and keeping.record_every and plan.rung == "hosts":
            raise UsageError("`--record-every` is not possible on `hosts`, where the agents are on several machines.")
        if not _is_utf8(str(Path(path or RUNS).absolute())):
            raise UsageError(f"`{Path(path or RUNS)}` is not valid UTF-8: choose another `--out`.")
        folder = Path(path) if path else new_folder(f"{file_name(plan.workload.name)}-{plan.rung}")
        was_there, directory = folder.is_dir() and path is not None, None
        try:
            if was_there and any(folder.iterdir()):
                raise UsageError(f"`{folder}` is not empty: choose another `--out`, nothing is overwritten.")
            folder.mkdir(parents=True, exist_ok=was_there or path is None)
            lock = Lock(folder / "lock")
            directory = cls(folder, plan, writer_of(folder, plan), lock, keeping or Keeping(), was_there)
            for name in ("media", "checkpoints"):
                (folder / name).mkdir()
            directory.write_config()
        except OSError as error:
            with suppress(OSError):  # leave the folder as it was found
                if directory:
                    directory.discard()
                elif not was_there:
                    folder.rmdir()
            raise UsageError(f"`{folder}` cannot be written: {error.strerror or error}.") from None
        return directory

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """Open and lock the folder of a run to resume it."""
        folder = Path(path)
        found = read_run_plan(folder)
        keeping = read_keeping(folder / "config.json")
        refuse_links(folder)
        if is_old_run(folder):
            refuse_to_resume(folder, found.workload.name)
        try:
            lock = Lock(folder / "lock")
            for name in ("media", "checkpoints"):  # empty folders get lost where a run is copied file by file
                (folder / name).mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"`{folder}` cannot be written: {error.strerror or error}.") from None
        return cls(folder, found, writer_of(folder, found), lock, keeping, True, earlier=_read_earlier(folder))

    @property
    def checkpoints(self) -> Checkpoints:
        """The run's checkpoints."""
        plan = run_metadata(self.plan)
        return Checkpoints(self.path / "checkpoints", plan, self.keeping.keep, [plan | e for e in self.earlier])

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        return self.resumed_by or command("resume", self.path, self.plan)

    @property
    def way_on(self) -> str:
        """The command to suggest when a run ended early: resume it, unless that would overwrite trained agents."""
        lost = (self.path / AGENTS).exists() and not self.checkpoints.newest()
        return command("eval", self.path, self.plan) if lost else self.resume_command

    def discard(self) -> None:
        """Remove the folder again if nothing has been trained in it."""
        if (self.path / "metrics.csv").exists():
            return
        self.lock.release()
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        if not self.was_there:
            self.path.rmdir()
        if self.path.parent == RUNS:
            with suppress(OSError):  # other runs are in it
                self.path.parent.rmdir()

    def log(self, text: str) -> None:
        """Append a line to log.txt; failures are ignored, because a log is not worth ending a run for."""
        with suppress(OSError), (self.path / "log.txt").open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def write_config(self) -> None:
        """Write config.json."""
        more = {"earlier": self.earlier} if self.earlier else {}
        write_json(self.path / "config.json", describe_plan(self.plan) | {"run": asdict(self.keeping)} | more)

    def lengthen(self, length: int) -> list[str]:
        """Make a run longer that was trained to its end, or part of the way. Returns what that means for schedules."""
        plan = self.plan
        config, unit = plan.config, plan.workload.length
        now = getattr(config, unit)
        if length <= now:
            raise UsageError(f"`--{unit}` is {length:,}, but `{self.path}` has {now:,} already: give more.")
        longer, notes = config.family.lengthened(config, length)
        longer, rounded = fit_length(longer)
        notes = [rounded, *notes] if rounded else notes
        self.earlier.append({"config": describe_plan(plan)["config"]})
        self.plan = replace(plan, config=longer)
        self.writer = writer_of(self.path, self.plan)
        self.write_config()
        return notes

    def write_environment(self, device: Any, note: str) -> None:
        """Record the environment of this session and of earlier ones; without environment variables."""
        before = self.read_environment()
        earlier = before.pop("earlier", [])
        sessions = [*(earlier if isinstance(earlier, list) else []), *([before] if before else [])]
        current = environment(device) | {"note": note} | ({"earlier": sessions[-MOST_SESSIONS:]} if sessions else {})
        write_json(self.path / "environment.json", current)

    def read_environment(self) -> dict[str, Any]:
        """Read environment.json; empty if it cannot be read, because it is only informative."""
        try:
            return read_json(self.path / "environment.json")
        except Unreadable:
            return {}

    def record_rung(self, note: str, threads: int | None) -> None:
        """Record the rung's note. A measured thread count becomes part of the plan, because it affects rounding."""
        with suppress(OSError):
            facts = {"rung": note} | ({"threads": threads} if threads else {})
            write_json(self.path / "environment.json", self.read_environment() | facts)
            if threads and threads != self.plan.options.threads:
                self.plan = replace(self.plan, options=replace(self.plan.options, threads=threads))
                self.write_config()

    def append(self, seeds: Sequence[int], ends: np.ndarray, columns: Mapping[str, np.ndarray], elapsed: float) -> None:
        """Append rows to the metrics. If that fails, they are written with the next ones."""
        self.pending.append((seeds, ends, columns, elapsed))
        self.write_pending()

    def write_pending(self) -> None:
        """Write the rows that could not be written yet."""
        while self.pending:
            self.writer.append(*self.pending[0])
            del self.pending[0]

    def write_metrics(self, result: Result) -> None:
        """Write the metrics of a run that was not recorded during training."""
        seeds, rows = next(iter(result.metrics.values())).shape
        ends = row_ends(0, rows, result.plan.ticks_per_row, result.plan.config.ticks)
        seconds = float(np.median(result.tick_seconds)) * seeds * int(ends[-1]) if result.tick_seconds else 0.0
        self.append(result.plan.seeds, ends, result.metrics, seconds)

    def save_agents(self, params: Params) -> None:
        """Write the agents' parameters, leaves [seed, agent, …]."""
        self.save_arrays(AGENTS, dict(flatten(params)))

    def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Write the pictures of the seeds, so that they can be drawn again."""
        if snapshots:
            labels = json.dumps([[snapshot.tick, snapshot.label, snapshot.seed] for snapshot in snapshots])
            arrays = {str(i): snapshot.picture for i, snapshot in enumerate(snapshots)}
            self.save_arrays(SNAPSHOTS, arrays, {"snapshots": labels})

    def save_arrays(
        self, name: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Write arrays into a safetensors file of the run."""
        draft = self.path / f"{name}.tmp"
        draft.unlink(missing_ok=True)
        state_files.write(draft, "safetensors", arrays, metadata)
        replace_synced(draft, self.path / name)

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / FINISHED).exists()

    def mark_begun(self) -> None:
        """Mark the run as unfinished, and remove the results of earlier sessions that are no longer valid."""
        for name in (FINISHED, "diverged.json"):
            (self.path / name).unlink(missing_ok=True)

    def mark_finished(self) -> None:
        """Mark the run as complete."""
        write_json(self.path / FINISHED, {"ticks": self.plan.config.ticks, "seeds": len(self.plan.seeds)})

    def finish(self, result: Result, score: Mapping[str, Any] | None = None) -> dict[str, Path]:
        """Write agents, timings and pictures at the end of a run. Returns the pictures by name."""
        from xladder.pictures.curves import draw_curves

        if score:
            self.writer.add_scores(score)
        self.writer.close()
        self.save_agents(result.params)
        self.save_snapshots(result.snapshots)
        seconds = float(np.median(result.tick_seconds or [np.nan]))
        tick, name = self.plan.workload.tick, self.plan.workload.name
        write_json(
            self.path / "timings.json",
            {
                "compile_seconds": result.compile_seconds,
                f"seconds_per_{tick}": seconds,
            }
            | ({"evaluation": dict(score)} if score else {}),
        )
        family, media = self.plan.workload.family, self.path / "media"
        seeds = f"{len(self.plan.seeds)} seed{'s' * (len(self.plan.seeds) > 1)}"
        title = " · ".join(filter(None, (name, family.title(result.config), self.plan.rung, seeds)))
        panels, references = family.panels(result.config), family.references(score)
        length, each = self.plan.workload.length, self.plan.config.units_per_tick * self.plan.ticks_per_row
        unit = None if length == f"{tick}s" else length
        draw_curves(media / "curves.png", result.metrics, title, tick, panels, references, unit, each)
        curves = {"curves": media / "curves.png"}
        if first_bad(capture(result.params, "params.")):  # with nan in the parameters there is nothing else to draw
            return curves
        return curves | family.draw(result, score, media, title)

    def add_phases(self, phases: Mapping[str, float]) -> None:
        """Add to timings.json where the time of the run went, in seconds."""
        file = self.path / "timings.json"
        write_json(file, read_json(file) | {"phases": {name: round(seconds, 3) for name, seconds in phases.items()}})


def refuse_links(folder: Path) -> None:
    """Raise a `UsageError` if there is a link in a folder that is about to be written to: it may lead anywhere."""
    for link in links_below(folder):
        raise UsageError(f"`{printable(link)}` is a link, and a run writes to its own folder only: remove it.")
    for special in special_below(folder):
        raise UsageError(f"`{printable(special)}` is neither a file nor a folder: remove it.")


def _listed(tags: Any) -> str:
    return printable(tags if isinstance(tags, str) else ", ".join(map(str, tags)))


def writer_of(folder: Path, plan: Plan) -> metrics.MetricsWriter:
    """Create the writer of a run's metrics."""
    config, workload = plan.config, plan.workload
    steps, measured = config.env_steps_per_tick, workload.family.measured(config)
    rows = -(-config.ticks // plan.ticks_per_row)
    return metrics.MetricsWriter(folder, workload.tick, plan.seeds, rows, steps, measured)


def read_keeping(file: Path) -> Keeping:
    """Read what a config.json says about saving; defaults if it says nothing. Call `read_plan` first to validate it."""
    settings = read_config(file).get("run") or {}
    try:
        lists = {name: settings.pop(name, []) for name in ("tags", "track")}
        keeping = Keeping(**settings, track=tuple(lists["track"]), tags=tuple(lists["tags"]))
        whole = all(v is None or (type(v) is int and v >= 0) for k, v in settings.items() if k != "on_nan")
        words = all(isinstance(found, list) and all(type(w) is str for w in found) for found in lists.values())
        sound = whole and words and keeping.keep is not None
    except (TypeError, AttributeError):
        sound = False
    if not sound or keeping.on_nan not in ("stop", "continue"):
        raise UsageError(f"`run` in `{file}` was not written by xladder.")
    return keeping


def _read_earlier(folder: Path) -> list[dict[str, Any]]:
    """The configs that a run had before it was lengthened."""
    found = read_config(folder / "config.json").get("earlier") or []
    if not isinstance(found, list) or any(not isinstance(e, dict) or set(e) != {"config"} for e in found):
        raise UsageError(f"`earlier` in `{folder / 'config.json'}` was not written by xladder.")
    return found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
