"""Metrics on disk: one CSV with rows by tick and seed, and the same as TensorBoard events.

A row is one tick, or in long runs several (`core/metric_rows.py`); it has the number of its last tick. Besides the
metrics, it has `steps`, the environment steps so far (iterations of a GFlowNet), and `seconds`, the time of training.

Shapes: R rows.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xladder.core.statistics import mean_and_interval
from xladder.devices import memory_of_machine
from xladder.errors import DamagedRun
from xladder.runs.events import EventsFile
from xladder.runs.reading import MOST_TABLE_BYTES, Unreadable, inside
from xladder.runs.upgrades import current_names

MOST_SEEDS_IN_EVENTS = 16  # with more, TensorBoard gets only the mean over seeds
ROWS_AT_ONCE = 4096
LARGEST = 1e300  # number of a table: float32 has none beyond 4e38, and larger ones could not be added up
BLOCK_BYTES = 8 * 2**20  # that are read at once
FLUSH_SECONDS = 5.0  # between writes of events: encoding many at once takes less time
MOST_EVENTS = 1000  # per curve: TensorBoard shows as many
MOST_LINE = 2**20  # bytes of a row
CELL_BYTES = 32  # of a cell while a table is read and arranged


class MetricsWriter:
    """Appends rows to `metrics.csv` and `events/`.

    Args:
        folder: The run directory.
        tick: The name of a tick.
        seeds: The seeds of the run.
        rows: How many rows a seed has at the end of the run.
        steps_per_tick: Environment steps of a tick.
        measured: The columns that evaluations fill.
    """

    def __init__(
        self,
        folder: Path,
        tick: str,
        seeds: Sequence[int],
        rows: int,
        steps_per_tick: int = 1,
        measured: Collection[str] = (),
    ):
        self.folder, self.tick, self.stride = folder, tick, -(-rows // MOST_EVENTS)
        self.steps_per_tick, self.measured = steps_per_tick, measured
        self.path = folder / "metrics.csv"
        self.by_seed = len(seeds) <= MOST_SEEDS_IN_EVENTS
        self.position = 0
        """Number of valid bytes in metrics.csv."""
        self.elapsed = 0.0
        self._digest = hashlib.sha256()  # of those bytes
        self._events: dict[str, EventsFile] = {}
        self._rows, self._last_end = 0, 0  # of the seeds that are being trained
        self._flushed = time.monotonic()  # when events were last written
        self.position_in_steps = 0
        """Environment steps of the last row."""

    def append(self, seeds: Sequence[int], ends: np.ndarray, columns: Mapping[str, np.ndarray], elapsed: float) -> None:
        """Append rows.

        Args:
            seeds: The seeds that they are of.
            ends: Ticks of the run at the end of each row, int [R].
            columns: Metrics by name, [seeds, R]. nan becomes an empty cell.
            elapsed: Seconds spent training.
        """
        lines = [] if self.position else [",".join(["seed", self.tick, "steps", *columns, "seconds"]) + "\r\n"]
        for s, seed in enumerate(seeds):
            lines += format_rows(seed, ends, self.steps_per_tick, [v[s] for v in columns.values()], elapsed)
        text = "".join(lines).encode()
        with self.path.open("r+b" if self.position else "wb") as file:
            if file.seek(0, os.SEEK_END) < self.position:
                raise OSError("another process has truncated it")
            # A write that failed may have left half a line.
            file.truncate(self.position)
            file.seek(self.position)
            file.write(text)
        self.position += len(text)
        self._digest.update(text)
        self.elapsed = elapsed
        with suppress(OSError):  # they are only a copy, rewritten when a run is resumed
            self._add_events(seeds, ends, columns)

    def sync(self) -> dict[str, Any]:
        """Sync the metrics to disk. Returns the metadata that a checkpoint stores about them."""
        if not self.position:  # a checkpoint before the first row is complete
            self.path.touch()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        return {
            "metrics_bytes": self.position,
            "metrics_sha256": self._digest.hexdigest(),
            "elapsed_seconds": self.elapsed,
        }

    def start_over(self) -> None:
        """Discard everything written so far. The old metrics are kept under another name."""
        shutil.rmtree(self.folder / "events", ignore_errors=True)
        if self.path.exists():
            os.replace(self.path, self.path.with_suffix(".csv.old"))

    def rewind(self, metadata: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Discard what was written after a checkpoint, and rewrite the events. Returns the metrics up to it."""
        position = metadata["metrics_bytes"]
        digest = hashlib.sha256()
        if self.path.is_file():
            with self.path.open("rb") as file:
                while (left := position - file.tell()) > 0 and (block := file.read(min(left, BLOCK_BYTES))):
                    digest.update(block)
        if digest.hexdigest() != metadata["metrics_sha256"]:
            raise DamagedRun(
                f"`{self.path}` has changed since the checkpoint was saved, so the run cannot resume from it: restore "
                "the file, or start a new run with `xladder train --config`."
            )
        shutil.rmtree(self.folder / "events", ignore_errors=True)
        self.position, self.elapsed, self._digest = position, metadata["elapsed_seconds"], digest
        os.truncate(self.path, position)
        table = read_table(self.path, self.tick)
        metrics = {name: values for name, values in table.columns.items() if name not in ("steps", "seconds")}
        if metrics:  # not if the first row is incomplete
            self._add_events(table.seeds, table.ends.max(0), metrics)
        return metrics

    def add_scores(self, scores: Mapping[str, Any]) -> None:
        """Add the evaluation at the end of a run to the events."""
        with suppress(OSError):
            events, step = self._writer("score"), self.position_in_steps
            for name, value in scores.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value):
                    events.add(f"score/{name}", [float(value)], [step])
            events.flush()

    def _add_events(self, seeds: Sequence[int], ends: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        # Seeds that are trained one after another begin with the first row again.
        first = 0 if self._rows and ends[0] <= self._last_end else self._rows
        for name, values in columns.items():
            for s, seed in enumerate(seeds) if self.by_seed else [(0, -1)]:
                series = values[s] if self.by_seed else mean_and_interval(values)[0]
                events = self._writer(f"seed-{seed}" if self.by_seed else "mean")
                chosen = self._chosen(series, first)
                events.add(self.tag(name), series[chosen].tolist(), (ends[chosen] * self.steps_per_tick).tolist())
        self._rows, self._last_end = first + len(ends), int(ends[-1])
        self.position_in_steps = self._last_end * self.steps_per_tick
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._flushed = time.monotonic()
            for events in self._events.values():
                events.flush()

    def tag(self, name: str) -> str:
        """A metric's name in TensorBoard: what is measured while training and what evaluations find are two groups."""
        return f"eval/{name.removeprefix('eval_')}" if name in self.measured else f"train/{name}"

    def _chosen(self, series: np.ndarray, first: int) -> np.ndarray:
        """Choose the rows to write as events: a subset in long runs, but every rarely measured value."""
        measured = np.flatnonzero(np.isfinite(series))
        rarely = len(measured) * self.stride <= len(series)
        return measured if rarely else measured[(first + measured) % self.stride == 0]

    def close(self) -> None:
        """Flush the events."""
        for events in self._events.values():
            with suppress(OSError):
                events.close()
        self._events = {}

    def _writer(self, name: str) -> EventsFile:
        if name not in self._events:
            self._events[name] = EventsFile(self.folder / "events" / name)
        return self._events[name]


class Table(NamedTuple):
    """The rows of a metrics.csv."""

    seeds: list[int]
    """The seeds, in the order they were written, which is the plan's."""
    columns: dict[str, np.ndarray]
    """Name → float [seed, row]; nan where a cell is empty or a seed ended earlier. With `seconds`, and `steps`
    unless version 0.1 wrote the table."""
    ends: np.ndarray = np.zeros((0, 0), int)
    """Ticks at the end of each row, int [seed, row]; 0 where a seed ended earlier."""
    ticks_per_row: int = 1


def read_table(path: Path, tick: str) -> Table:
    """Read `metrics.csv` of any length, also while a run writes it: an incomplete last line is left out."""
    try:
        inside(path.parent, path.name, MOST_TABLE_BYTES)
    except Unreadable as error:
        raise DamagedRun(f"`{path}` is not a valid table of metrics: {error}.") from None
    try:
        with path.open("rb") as file:
            header, rows, half, cells = parse_header(file.readline(MOST_LINE + 1)), [], b"", 0
            while block := file.read(BLOCK_BYTES):
                whole, newline, half = (half + block).rpartition(b"\n")
                if len(half) > MOST_LINE:
                    raise ValueError(f"a row has more than {MOST_LINE:,} bytes")
                rows.append(parse_rows(header, whole + newline))
                cells += rows[-1].size
                if cells * CELL_BYTES > memory_of_machine():
                    raise ValueError("it has more rows than this machine has memory for")
        return arrange(header, np.concatenate(rows), tick) if rows else Table([], {})
    except ValueError as error:
        raise DamagedRun(f"`{path}` is not a valid table of metrics ({error}).") from None
    except OSError as error:
        raise DamagedRun(f"`{path}` cannot be read: {error.strerror or error}.") from None


def parse_header(line: bytes) -> list[str]:
    """The names of the columns, by their names of today; a `ValueError` if they are not in ASCII, or far too long."""
    if len(line) > MOST_LINE:
        raise ValueError(f"its first row has more than {MOST_LINE:,} bytes")
    return current_names(line.decode("ascii").rstrip("\r\n").split(","))


def parse_rows(header: Sequence[str], text: bytes) -> np.ndarray:
    """float [rows, columns] from complete lines; a `ValueError` if they are not numbers."""
    if not text:
        return np.empty((0, len(header)))
    if "seconds" not in header:
        raise ValueError("there is no column 'seconds'")
    for empty in (b",,", b",\r", b",\n"):  # the C parser of NumPy, which is fast, does not take empty cells
        while empty in text:
            text = text.replace(empty, b",nan" + empty[1:])
    numbers = np.loadtxt(io.BytesIO(text), delimiter=",", ndmin=2)
    if numbers.shape[1] != len(header):
        raise ValueError(f"its rows have {numbers.shape[1]} cells, and {len(header)} columns have names")
    if (np.isfinite(numbers) & (np.abs(numbers) > LARGEST)).any():
        raise ValueError(f"it has numbers beyond {LARGEST:g}, which no training gives")
    return numbers


def arrange(header: Sequence[str], numbers: np.ndarray, tick: str) -> Table:
    """Arrange rows by seed and tick; a `ValueError` if that is not possible."""
    place = {name: i for i, name in enumerate(header)}
    if missing := {"seed", tick} - place.keys():
        raise ValueError(f"there is no column {min(missing)!r}")
    if not len(numbers):
        return Table([], {})
    with np.errstate(invalid="ignore"):  # nan and infinity become numbers that are refused below
        seed, when = (numbers[:, place[name]].astype(np.int64) for name in ("seed", tick))
    seeds, found, row = np.unique(seed, return_index=True, return_inverse=True)
    order = np.argsort(found)
    row = np.argsort(order)[row]
    if when.min() < 0:
        raise ValueError("ticks are missing")
    first, last = np.full(len(seeds), np.iinfo(np.int64).max), np.zeros(len(seeds), np.int64)
    np.minimum.at(first, row, when)
    np.maximum.at(last, row, when)
    # A seed's rows have as many ticks as its first one, except for the last; only the last seed can have ended early.
    size = 1 + int(first.max())
    rows = 1 + int(when.max()) // size
    cut = (((when + 1) % size > 0) & (when != last[row])).any() or (first[:-1] != size - 1).any()
    # Seeds are trained at once or one after another, so that only the last one can have far fewer rows.
    if cut or len(seeds) * rows > 2 * len(numbers):
        raise ValueError("ticks are missing")
    at, columns, ends = when // size, {}, np.zeros((len(seeds), rows), np.int64)
    for name, i in place.items():
        if name not in ("seed", tick):
            columns[name] = np.full((len(seeds), rows), np.nan)
            columns[name][row, at] = numbers[:, i]
    ends[row, at] = when + 1
    return Table(seeds[order].tolist(), columns, ends, size)


def read(path: Path, tick: str) -> tuple[dict[str, np.ndarray], int]:
    """Read the metrics in `metrics.csv` as name → float [seed, row], without `steps` and `seconds`.

    Returns:
        The metrics, and the ticks of the seed that trained least.
    """
    table = read_table(path, tick)
    found = {name: values for name, values in table.columns.items() if name not in ("steps", "seconds")}
    return found, int(table.ends.max(1).min()) if table.seeds else 0


def format_rows(
    seed: int, ends: np.ndarray, steps_per_tick: int, columns: Sequence[np.ndarray], elapsed: float
) -> Iterator[str]:
    """The lines of a seed's rows from columns [R]; `ends` as for `append`, nan is an empty cell.

    Many rows are formatted at once: one by one, and cell by cell, they would take longer than a short tick does.
    """
    line = f"{seed},%d,%d,{','.join(['%.7g'] * len(columns))},{elapsed:.3f}\r\n"
    for begin in range(0, len(columns[0]), ROWS_AT_ONCE):
        parts = [values[begin : begin + ROWS_AT_ONCE].tolist() for values in columns]
        stops = ends[begin : begin + ROWS_AT_ONCE]
        ticks, steps = (stops - 1).tolist(), (stops * steps_per_tick).tolist()
        text = line * len(ticks) % tuple(chain.from_iterable(zip(ticks, steps, *parts, strict=True)))
        yield text.replace("nan", "")
