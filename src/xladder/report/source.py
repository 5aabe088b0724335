"""One run directory as data for a page, read again when its files change.

Everything is shown that can be read: a run may be in training, stopped, damaged or hostile, or need code that is not
here.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.state import flatten
from xladder.errors import DamagedRun, UsageError, XladderError, brief, printable
from xladder.pictures.curves import Panel
from xladder.plans import Plan, format_seeds
from xladder.report import files
from xladder.report.curves import make_panels, make_times, numbers, points_per_line
from xladder.results import Result
from xladder.runs.directory import AGENTS, FINISHED, SNAPSHOTS
from xladder.runs.listing import search
from xladder.runs.loading import read_snapshots
from xladder.runs.metrics import Table, arrange, parse_header, parse_rows
from xladder.runs.plan_files import describe_plan, parse_plan_to_replay, parse_plan_to_show

LONGEST = 1000  # characters of a value
MOST_ENTRIES = 400  # of a config or an environment
MOST_SCORES, MOST_LISTED = 200, 40  # names in an evaluation, and numbers in a list
LOG_LINES = 100
HIDDEN = ("seed", "steps", "seconds", "episodes", "updates")  # columns without a panel of their own
OTHER_PANELS = 8
PIECE = 1 << 25  # bytes of metrics.csv that are parsed at once, to bound memory use
WATCHED = (
    "config.json",
    "metrics.csv",
    "environment.json",
    "timings.json",
    "log.txt",
    FINISHED,
    "diverged.json",
    AGENTS,
)


class GrowingTable:
    """The metrics of a run; each update reads only the lines that were added."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self._rows: list[np.ndarray] = []
        self._position, self._stamp = 0, (0, 0, 0)

    def update(self, folder: Path) -> bool:
        """Read what was added. Returns whether there is anything new."""
        now = files.stamp(folder, "metrics.csv")
        if now is None or now == self._stamp:
            return False
        if now[0] != self._stamp[0] or now[1] < self._position:  # replaced, or cut when the run was resumed
            self._start_over()
        self._stamp = now
        try:
            return self._read(folder)
        except ValueError:
            if not self._position:
                raise DamagedRun("`metrics.csv` is not a valid table of metrics.") from None
            self._start_over()  # it was cut and has grown again in between
            self._stamp = now
            try:
                return self._read(folder)
            except ValueError:
                raise DamagedRun("`metrics.csv` is not a valid table of metrics.") from None

    def arranged(self, tick: str) -> Table:
        """All rows by seed and tick."""
        if len(self._rows) > 1:
            self._rows = [np.concatenate(self._rows)]
        try:
            return arrange(self.header, self._rows[0], tick) if self._rows else Table([], {})
        except ValueError as error:
            raise DamagedRun(f"`metrics.csv` is not a valid table of metrics ({error}).") from None

    def _read(self, folder: Path) -> bool:
        found = False
        while True:
            text = files.read_bytes(folder, "metrics.csv", files.LARGEST_METRICS, self._position, PIECE) or b""
            text = text[: text.rfind(b"\n") + 1]
            if not text:
                return found
            size = len(text)
            if not self._position:
                first, _, text = text.partition(b"\n")
                self.header = parse_header(first)
            rows = parse_rows(self.header, text)
            self._position += size
            if len(rows):
                self._rows.append(rows)
                found = True

    def _start_over(self) -> None:
        self.header, self._rows, self._position = [], [], 0


class Source:
    """A run directory.

    Args:
        folder: The folder.
        name: What the page calls it.
    """

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self.plan: Plan | None = None
        self.metrics: dict[str, np.ndarray] = {}
        """Name → float [seed, row], of the last `describe`."""
        self._table = GrowingTable()
        self._seen: Any = None
        self._config: Any = None

    def changed(self) -> bool:
        """Whether any file has changed since the last call."""
        now = [files.stamp(self.folder, name) for name in WATCHED], self.is_locked()
        before, self._seen = self._seen, now
        return now != before

    def describe(self, amount: int) -> dict[str, Any]:
        """The run as JSON-ready data, without scenes; `amount` is about how many numbers its curves have.

        Raises:
            DamagedRun: There is nothing to show.
        """
        config = files.read_json(self.folder, "config.json")
        if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
            raise DamagedRun("`config.json` is missing or was not written by xladder.")
        notes: list[str] = []
        if config != self._config:
            self._config, self.plan = config, None
        if self.plan is None:
            try:
                self.plan = parse_plan_to_show(config, "`config.json`")
            except XladderError as error:
                notes.append(f"Only the files of the run are shown: {error}")
        plan = self.plan
        table = self._read_metrics(plan, notes)
        timings, environment = (self._read_facts(name, notes) for name in ("timings.json", "environment.json"))
        score = timings.pop("evaluation", None)
        score = score if isinstance(score, dict) else None
        tick_units = plan.config.units_per_tick if plan else _steps_per_tick(table)
        each = tick_units * table.ticks_per_row
        tick = plan.workload.tick if plan else _tick_of(self._table.header)
        panels = self._panels(plan, table.columns)
        most = points_per_line(panels, len(table.seeds), amount)
        state = self._state()
        done, seconds = _progress(table, tick_units)
        return {
            "name": self.name,
            "workload": text(config.get("workload")),
            "rung": text(config.get("rung")),
            "seeds": format_seeds(plan) if plan else f"{len(table.seeds)} seeds",
            "state": state,
            "unit": plan.workload.length if plan else "steps",
            "tick": tick,
            "done": done,
            "total": plan.config.ticks * tick_units if plan else None,
            "seconds": seconds,
            "panels": make_panels(panels, table.columns, table.seeds, tick, each, most),
            "times": make_times(table.columns, each),
            "references": self._references(plan, score),
            "summary": self._lines(plan, "summary", table.columns),
            "score": _score_rows(score or {}),
            "score_lines": self._lines(plan, "describe_score", score) if score else [],
            "timings": entries(timings),
            "environment": entries(_environment(environment)),
            "config": entries(describe_plan(plan) if plan else config),
            "log": [line[:LONGEST] for line in self._log(notes)],
            "notes": [text(note) for note in notes],
            "scenes": [],
            "scenes_note": "",
        }

    def result(self) -> Result:
        """The run with its agents, for scenes. Call `describe` first.

        Raises:
            XladderError: It has no agents, they are damaged, or they need code that was not imported.
        """
        if self.plan is None:
            raise DamagedRun("The world of this run is not known here.")
        if not files.check_inside(self.folder, AGENTS, files.LARGEST_AGENTS):
            raise DamagedRun("The run has no trained agents yet: they are saved when training ends.")
        snapshots = files.check_inside(self.folder, SNAPSHOTS, files.LARGEST_AGENTS)
        from xladder.runs.loading import load_agents

        plan = parse_plan_to_replay(self._config, "`config.json`")
        params = load_agents(self.folder, plan)
        pictures = read_snapshots(self.folder) if snapshots else []
        return Result(plan, self.metrics, params, 0.0, [], pictures, self.folder)

    def scenes(self) -> tuple[list[Any], str]:
        """The family's scenes, and why there are none if there are none. Needs JAX and may take some seconds."""
        try:
            result = self.result()
            found = list(result.plan.workload.family.scenes(result))
        except XladderError as error:
            return [], text(error)
        except Exception as error:  # a world of the user's own may fail in any way
            return [], f"The replay could not be made ({text(brief(error))})."
        return found, "" if found else "There is nothing to replay in this workload."

    def is_locked(self) -> bool:
        """Whether the process that wrote the lock still runs, as far as this machine can tell."""
        with suppress(XladderError, OSError):
            holder = (files.read_bytes(self.folder, "lock", 4096) or b"").decode(errors="replace")
            found = re.match(r"process (\d{1,9}) on (\S+) since", holder)
            if found and found[2] == socket.gethostname():
                try:
                    # Not the lock itself: whoever tries it holds it for a moment, and a run could fail to start.
                    os.kill(int(found[1]), 0)
                except PermissionError:
                    return True
                except ProcessLookupError:
                    return False
                return True
        return False

    def _state(self) -> str:
        if files.stamp(self.folder, FINISHED):
            return "finished"
        if files.stamp(self.folder, "diverged.json"):
            return "diverged"
        return "training" if self.is_locked() else "stopped"

    def _read_metrics(self, plan: Plan | None, notes: list[str]) -> Table:
        try:
            self._table.update(self.folder)
            tick = plan.workload.tick if plan else _tick_of(self._table.header)
            table = self._table.arranged(tick)
        except XladderError as error:
            notes.append(str(error))
            table = Table([], {})
        self.metrics = {name: values for name, values in table.columns.items() if name not in ("steps", "seconds")}
        return table

    def _read_facts(self, name: str, notes: list[str]) -> dict[str, Any]:
        try:
            data = files.read_json(self.folder, name)
        except XladderError as error:
            notes.append(str(error))
            return {}
        return dict(data) if isinstance(data, dict) else {}

    def _log(self, notes: list[str]) -> list[str]:
        try:
            return files.read_tail(self.folder, "log.txt", LOG_LINES)
        except (XladderError, OSError) as error:
            notes.append(str(error))
            return []

    def _panels(self, plan: Plan | None, columns: Mapping[str, np.ndarray]) -> list[Panel]:
        if plan:
            with suppress(Exception):  # of a world of the user's own
                return list(plan.workload.family.panels(plan.config))
        names = [name for name in columns if name not in HIDDEN and not name.startswith("return_")]
        return [Panel((name,), text(name), wide=name == "return") for name in names[:OTHER_PANELS]]

    def _references(self, plan: Plan | None, score: Mapping[str, Any] | None) -> dict[str, float]:
        if plan and score:
            with suppress(Exception):  # the file may hold anything
                found = plan.workload.family.references(score)
                return {text(name): float(value) for name, value in found.items() if np.isfinite(value)}
        return {}

    def _lines(self, plan: Plan | None, method: str, given: Any) -> list[str]:
        if plan and given:
            with suppress(Exception):  # the file may hold anything
                family = plan.workload.family
                if method == "summary":
                    lines = family.summary(plan.config, given)
                else:  # JSON has no nan
                    known = {name: np.nan if name.endswith("ci95") and x is None else x for name, x in given.items()}
                    lines = family.describe_score(known)
                return [text(line) for line in lines]
        return []


def text(value: Any) -> str:
    """Untrusted text for a page, cut to a reasonable length."""
    return printable(value, LONGEST)


def _score_rows(score: Mapping[str, Any]) -> list[list[Any]]:
    """Names and values of an evaluation, without what is nested, which lines of text say."""

    def nested(value: Any) -> bool:
        return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))

    return [[text(name), plain(value)] for name, value in list(score.items())[:MOST_SCORES] if not nested(value)]


def plain(value: Any) -> Any:
    """A value of an untrusted file as a number, text or a short list."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return numbers(np.array([value], float))[0]
    return [plain(one) for one in value[:MOST_LISTED]] if isinstance(value, list) else text(value)


def entries(data: Mapping[str, Any]) -> list[list[str]]:
    """Names and values of nested settings as text."""
    try:
        flat = list(flatten(data))
    except (RecursionError, TypeError, AttributeError):
        return []
    return [[text(name), _shown(value)] for name, value in flat[:MOST_ENTRIES]]


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_shown(one) for one in value[:MOST_LISTED])[:LONGEST]
    return "–" if value is None else text(f"{value:.7g}" if isinstance(value, float) else value)


def _environment(data: dict[str, Any]) -> dict[str, Any]:
    """The environment without that of earlier sessions, of which only the number is shown."""
    earlier = data.pop("earlier", None)
    return data | ({"earlier sessions": len(earlier)} if isinstance(earlier, list) and earlier else {})


def _steps_per_tick(table: Table) -> int:
    """Environment steps of a tick, as the table has them."""
    steps = table.columns.get("steps", np.empty((0, 0)))
    known = np.argwhere(np.isfinite(steps))
    if not len(known):
        return 1
    seed, row = known[0]
    return max(1, int(steps[seed, row]) // max(1, int(table.ends[seed, row])))


def _tick_of(header: list[str]) -> str:
    """The name of a tick: the column after the seeds."""
    return text(header[1]) if len(header) > 1 else "tick"


def _progress(table: Table, each: int) -> tuple[int, float | None]:
    """Units of length that the slowest seed has done, and the seconds of training so far."""
    seconds = table.columns.get("seconds")
    if seconds is None or not np.isfinite(seconds).any():
        return 0, None
    measured = np.isfinite(seconds)
    return int(table.ends.max(1).min()) * each, float(seconds[measured].max())


def find_runs(paths: list[Path], most: int = 64) -> list[Path]:
    """The run directories among `paths`, and those in folders among them, not through links.

    Raises:
        UsageError: A path does not exist or holds no runs.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            name = printable(path)
            raise UsageError(f"`{name}` is a file, not a folder." if path.exists() else f"There is no folder `{name}`.")
        runs = [path] if (path / "config.json").exists() else runs_in(path, most)
        if not runs:
            raise UsageError(f"`{printable(path)}` holds no runs: no folder in it has a config.json and metrics.")
        found |= {run.resolve(): run for run in runs}
    if len(found) > most:
        raise UsageError(f"These are {len(found)} runs, and a page shows at most {most}: name fewer.")
    return list(found.values())


def runs_in(folder: Path, most: int) -> list[Path]:
    """The run directories below a folder, oldest name first; folders behind links are left out."""
    try:
        below = (path for path in search(folder) if path != folder)
        return list(islice((path for path in below if (path / "config.json").is_file()), most + 1))
    except OSError:
        return []


def names_of(folders: list[Path]) -> list[str]:
    """Short names that tell the folders apart: the last part of each path, or more if these are the same."""
    whole = [folder.resolve() for folder in folders]
    for parts in range(1, 6):
        names = ["/".join(path.parts[-parts:]) for path in whole]
        if len(set(names)) == len(names):
            break
    return [text(name) for name in names]
