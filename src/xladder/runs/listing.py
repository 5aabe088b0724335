"""Find run directories and say what is in them, without loading a run: only JSON and the ends of tables are read.

Neither JAX nor code of a user's own is imported, links are not followed, and whatever cannot be read becomes a row that
says so. So a listing is quick and safe, whoever wrote the directories.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from xladder.core.state import flatten
from xladder.errors import UsageError
from xladder.runs.locks import is_held
from xladder.runs.reading import Unreadable, is_regular, read_bytes, read_json, why
from xladder.runs.upgrades import NOTE, current_names, is_old, steps_per_tick

State = Literal["running", "finished", "stopped", "diverged", "damaged"]
STATES: tuple[State, ...] = get_args(State)
KINDS: Mapping[str, type] = {"workload": str, "rung": str, "seed": int, "config": dict}
"""What a config.json has to have."""
LAST_DAY = 253_370_000_000.0  # in the year 9998
MARKS = frozenset({"config.json", "metrics.csv", "checkpoints", "lock"})
"""A folder with one of these is a run directory, be it damaged."""
SWEEP, BEST = "sweep.json", "best"  # the plan of a sweep, and the run directory of its winner
DEEPEST = 3  # levels of folders to search for runs
TAIL_BYTES = 16_384  # of metrics.csv
TAIL_ROWS = 100  # to average


@dataclass(frozen=True)
class RunInfo:
    """What there is to know about a run without loading it."""

    path: Path
    name: str
    """The path below the folder that was listed."""
    state: State
    workload: str = ""
    rung: str = ""
    seeds: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The fields of its config by dotted name, such as `learner.lr`; also `rung`, `workload` and those of `options`."""
    started: float = 0.0
    """When it was started, in seconds since 1970."""
    steps: int | None = None
    """Environment steps so far, of the seed that was written last."""
    seconds: float | None = None
    """Time spent training."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """The evaluation at its end, if there was one."""
    recent_return: float | None = None
    """Mean return in the last rows of its metrics."""
    problem: str = ""
    """What is wrong with a damaged one."""
    note: str = ""
    """What to know about one that is whole, such as the older version that wrote it."""

    @property
    def score(self) -> float | None:
        """The evaluated return or, before there is one, that of the last rows."""
        return self.evaluated if self.evaluated is not None else self.recent_return

    @property
    def evaluated(self) -> float | None:
        """The mean return of the evaluation at the end."""
        return _number(self.evaluation.get("mean_return"))

    @property
    def variation(self) -> float | None:
        """The total variation that an evaluated GFlowNet has; not its reward says how good it is."""
        return _number(self.evaluation.get("tv")) if "iterations" in self.settings else None

    @property
    def variations(self) -> list[float]:
        """The total variation of every seed of an evaluated GFlowNet; none where they are not known."""
        each = self.evaluation.get("tv_per_seed")
        found = [_number(one) for one in each] if isinstance(each, list) else []
        return [one for one in found if one is not None] if None not in found else []

    @property
    def collapsed(self) -> int:
        """How many seeds of an evaluated GFlowNet miss modes."""
        found = self.evaluation.get("collapsed")
        return len(found) if isinstance(found, list) else 0

    @property
    def interval(self) -> float | None:
        """Half the width of the 95 % interval of the evaluated return."""
        return _number(self.evaluation.get("ci95"))

    def as_json(self) -> dict[str, Any]:
        """Everything but the settings, JSON-ready."""
        data = asdict(self) | {"path": str(self.path), "score": self.score}
        data["started"] = datetime.fromtimestamp(self.started).isoformat(timespec="seconds")
        return {name: value for name, value in data.items() if name != "settings"}


def list_runs(
    folder: Path,
    *,
    workload: str | None = None,
    rung: str | None = None,
    tags: Sequence[str] = (),
    state: str | None = None,
    sort: Literal["time", "return", "name"] = "time",
) -> list[RunInfo]:
    """The runs in a folder and the folders in it, newest first, best first or by name.

    Args:
        folder: The folder, or a single run directory.
        workload: List only runs of this workload,
        rung: on this rung,
        tags: that have all of these tags,
        state: and are in this state.
        sort: By start, by return (evaluated, else recent) or by name.

    Returns:
        The runs; damaged ones are last when sorted by return.
    """
    found = [read_info(path, _below(path, folder)) for path in find_runs(folder, sweeps=True)]
    wanted = [
        run
        for run in found
        if workload in (None, run.workload)
        and rung in (None, run.rung)
        and state in (None, run.state)
        and set(tags) <= set(run.tags)
    ]
    wanted.sort(key=lambda run: run.name)
    if sort == "time":
        wanted.sort(key=lambda run: -run.started)
    elif sort == "return":
        wanted.sort(key=_worse)
    return wanted


def _worse(run: RunInfo) -> tuple[bool, float]:
    """The order of returns, best first; of GFlowNets, the order of their total variation."""
    if run.variation is not None:
        return False, run.variation
    return run.score is None, -(run.score or 0.0)


def find_runs(folder: Path, sweeps: bool = False) -> list[Path]:
    """The run directories in a folder, in folders in it too; the folder itself if it is one.

    Of a sweep that is its winner or, with `sweeps`, its own folder.

    Raises:
        UsageError: There is no such folder, or there are no runs in it.
    """
    try:
        found = list(search(folder, sweeps))
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise UsageError(f"There is no folder `{folder}`.") from None
        raise UsageError(f"`{folder}` cannot be read: {error.strerror or error}.") from None
    if not found and is_regular(folder / SWEEP):
        raise UsageError(f"`{folder}` is a sweep that has not finished: `xladder resume {folder}` goes on with it.")
    if not found:
        raise UsageError(f"There are no runs in `{folder}`: `xladder train` writes some.")
    return found


def read_info(path: Path, name: str | None = None) -> RunInfo:
    """Read what there is to know about a run; one that cannot be read is `damaged`."""
    name = path.name if name is None else name
    started = _started(path)
    if is_regular(path / SWEEP):
        return _read_sweep(path, name)
    try:
        config = read_config(path)
        settings = _settings(config)
    except Unreadable as error:
        state: State = "running" if is_held(path / "lock") else "damaged"  # its config may not be written yet
        return RunInfo(path, name, state, started=started, problem=str(error))
    table, problem, old = _read_tail(path, settings)
    problem = problem or _incomplete(path, table)
    return RunInfo(
        path,
        name,
        "damaged" if problem else state_of(path),
        config["workload"],
        config["rung"],
        _seeds(config),
        _tags(config),
        settings,
        started,
        None if (steps := table.get("steps")) is None else int(steps),
        table.get("seconds"),
        _evaluation(path),
        table.get("return"),
        problem,
        NOTE if old and not problem else "",
    )


def _read_sweep(path: Path, name: str) -> RunInfo:
    """A sweep as a row: its base settings, and the test of its winner as the evaluation."""
    started = written_at(path / SWEEP)
    try:
        plan = read_json(path / SWEEP).get("plan")
        if not isinstance(plan, dict) or any(type(plan.get(key)) is not kind for key, kind in KINDS.items()):
            raise Unreadable(f"{SWEEP} is not one that xladder wrote")
        done = is_regular(path / "result.json")
        score = read_json(path / "result.json").get("test_score") if done else {}
    except Unreadable as error:
        return RunInfo(path, name, "damaged", started=started, problem=str(error))
    state: State = "running" if is_held(path / "lock") else "finished" if done else "stopped"
    seeds, score = _seeds(plan), score if isinstance(score, dict) else {}
    return RunInfo(
        path, name, state, plan["workload"], plan["rung"], seeds, ("sweep",), _settings(plan), started, evaluation=score
    )


def state_of(path: Path) -> State:
    """Whether a run is running, finished, stopped or diverged."""
    if is_held(path / "lock"):
        return "running"
    if is_regular(path / "diverged.json"):
        return "diverged"
    return "finished" if is_regular(path / "finished.json") else "stopped"


def read_config(path: Path) -> dict[str, Any]:
    """Read a run's config.json as data, without resolving anything that it names."""
    config = read_json(path / "config.json")
    if any(type(config.get(name)) is not kind for name, kind in KINDS.items()) or not _seeds(config):
        raise Unreadable(f"config.json is not one that xladder wrote: it needs {', '.join(KINDS)} and seeds")
    return config


def search(folder: Path, sweeps: bool = False, levels: int = DEEPEST) -> Iterator[Path]:
    """The run directories below a folder, as `find_runs` finds them; folders that may not be read are left out."""
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    names = {entry.name for entry in entries}
    if SWEEP in names:
        if sweeps:
            yield folder
        elif BEST in names and not (folder / BEST).is_symlink():
            yield folder / BEST
        return
    if MARKS & names:
        yield folder
        return
    for entry in entries if levels else ():
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            try:
                yield from search(folder / entry.name, sweeps, levels - 1)
            except OSError:
                continue  # a folder that may not be read is not listed either


def _below(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path != folder else path.name or str(path)


def _seeds(config: Mapping[str, Any]) -> tuple[int, ...]:
    """All seeds of a config; none if they are not what a run writes."""
    first, seeds = config["seed"], config.get("seeds")
    if type(seeds) is int and 0 < seeds <= 100_000:
        return tuple(range(first, first + seeds))
    if isinstance(seeds, list) and all(type(seed) is int for seed in seeds):
        return tuple(seeds)
    return ()


def _tags(config: Mapping[str, Any]) -> tuple[str, ...]:
    run = config.get("run")
    tags = run.get("tags") if isinstance(run, dict) else None
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    options = config.get("options")
    named = {"workload": config["workload"], "rung": config["rung"]}
    try:
        fields = dict(flatten(config["config"]))
        more = dict(flatten({"options": options})) if isinstance(options, dict) else {}
    except RecursionError:
        raise Unreadable("config.json is nested too deeply") from None
    return {**named, **fields, **more}


def _evaluation(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path / "timings.json").get("evaluation")
    except Unreadable:  # there is none before the end, and it is only informative
        return {}
    return found if isinstance(found, dict) else {}


def written_at(file: Path) -> float:
    """When a file was written; an archive may say any time, also one that no calendar has."""
    return min(max(os.lstat(file).st_mtime, 0.0), LAST_DAY)


def _started(path: Path) -> float:
    """When a run was started: the first line of its log says so, also in a copy."""
    try:
        return datetime.fromisoformat(read_bytes(path / "log.txt", 0, 19).decode("ascii")).timestamp()
    except (OSError, ValueError, OverflowError):
        for file in (path / "config.json", path):
            try:
                return written_at(file)
            except OSError:
                continue
    return 0.0


def _read_tail(path: Path, settings: Mapping[str, Any]) -> tuple[dict[str, float], str, bool]:
    """Steps, seconds and mean return at the end of metrics.csv, what is wrong with it, and whether 0.1 wrote it."""
    file, old = path / "metrics.csv", False
    try:
        header = read_bytes(file, 0, 4096).partition(b"\n")[0].decode("ascii").strip().split(",")
        old, header = is_old(header), current_names(header)
        text = read_bytes(file, -TAIL_BYTES, TAIL_BYTES).decode("ascii")
        lines = text[: text.rfind("\n") + 1].splitlines()[-TAIL_ROWS:]
        rows = [cells for line in lines if len(cells := line.split(",")) == len(header) and cells[0] != "seed"]
        if not rows:
            return {}, "", old
        place = {name: header.index(name) for name in ("steps", "seconds")[old:]}
        found = {name: float(rows[-1][i]) for name, i in place.items()} | {"tick": float(rows[-1][1])}
        if old and (each := steps_per_tick(settings)):
            found["steps"] = each * (found["tick"] + 1)
        mean = _mean_return(header, rows)
        if not all(map(math.isfinite, found.values())):
            raise ValueError
    except FileNotFoundError:
        return {}, "", old  # nothing has been trained yet
    except OSError as error:
        return {}, f"metrics.csv {why(error)}", old
    except (ValueError, OverflowError):  # also numbers whose sum no float holds
        return {}, "metrics.csv is not a table that xladder wrote", old
    return found | ({} if mean is None else {"return": mean}), "", old


def _incomplete(path: Path, table: Mapping[str, float]) -> str:
    """What metrics.csv of a finished run lacks; nothing for agents that were imported, which have none."""
    if not is_regular(path / "finished.json") or not is_regular(path / "metrics.csv") or is_held(path / "lock"):
        return ""
    try:
        ticks = read_json(path / "finished.json").get("ticks")
    except Unreadable:
        return ""
    if not table:
        return "metrics.csv has no rows that can be read"
    return "metrics.csv does not reach the end" if type(ticks) is int and table["tick"] + 1 < ticks else ""


def _mean_return(header: Sequence[str], rows: Sequence[Sequence[str]]) -> float | None:
    """Mean over episodes, or over ticks where there is no number of episodes; None if nothing was measured."""
    if "return" not in header:
        return None
    value, episodes = header.index("return"), header.index("episodes") if "episodes" in header else None
    pairs = [(float(row[value]), 1.0 if episodes is None else float(row[episodes] or 0)) for row in rows if row[value]]
    total = math.fsum(weight for _, weight in pairs)
    return math.fsum(number * weight for number, weight in pairs) / total if total > 0 else None


def _number(value: Any) -> float | None:
    """A finite number from a file; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None
