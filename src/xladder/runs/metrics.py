"""Metrics on disk: one CSV with a row per tick and seed, and the same as TensorBoard events."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.statistics import mean_and_interval
from xladder.errors import DamagedRun

MOST_SEEDS_IN_EVENTS = 16  # with more, TensorBoard gets only the mean over seeds
MOST_EVENTS = 2000  # per curve: TensorBoard shows half as many, and writing one can take longer than an iteration


class MetricsWriter:
    """Appends chunks to `metrics.csv` and `events/`."""

    def __init__(self, folder: Path, tick: str, seeds: Sequence[int], ticks: int):
        self.folder, self.tick, self.stride = folder, tick, -(-ticks // MOST_EVENTS)
        self.path = folder / "metrics.csv"
        self.by_seed = len(seeds) <= MOST_SEEDS_IN_EVENTS
        self.position = 0
        """Number of valid bytes in metrics.csv."""
        self.elapsed = 0.0
        self._digest = hashlib.sha256()  # of those bytes
        self._events: dict[str, Any] = {}

    def append(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], elapsed: float) -> None:
        """Append a chunk whose first tick is `first`; `columns` are [seeds, ticks]. nan becomes an empty cell."""
        lines = [] if self.position else [",".join(["seed", self.tick, *columns, "elapsed_seconds"]) + "\r\n"]
        for s, seed in enumerate(seeds):
            rows = zip(*(map(_cell, values[s].tolist()) for values in columns.values()), strict=True)
            # Numbers need no quotes, so a join suffices; `csv` would be several times slower.
            lines += [f"{seed},{t},{','.join(row)},{elapsed:.3f}\r\n" for t, row in enumerate(rows, first)]
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
            self._add_events(seeds, first, columns)

    def sync(self) -> dict[str, Any]:
        """Sync the metrics to disk. Returns the metadata that a checkpoint stores about them."""
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
                digest.update(file.read(position))
        if digest.hexdigest() != metadata["metrics_sha256"]:
            raise DamagedRun(
                f"`{self.path}` has changed since the checkpoint was saved, so the run cannot resume from it: restore "
                "the file, or start a new run with `xladder train --config`."
            )
        shutil.rmtree(self.folder / "events", ignore_errors=True)
        self.position, self.elapsed, self._digest = position, metadata["elapsed_seconds"], digest
        os.truncate(self.path, position)
        table = read(self.path, self.tick)
        self._add_events(read_seeds(self.path), 0, table)
        return table

    def _add_events(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray]) -> None:
        for name, values in columns.items():
            for s, seed in enumerate(seeds) if self.by_seed else [(0, -1)]:
                series = values[s] if self.by_seed else mean_and_interval(values)[0]
                events = self._writer(f"seed-{seed}" if self.by_seed else "mean")
                for t in self._chosen(series, first):
                    events.write_event(_event(name, float(series[t - first]), t))
        for events in self._events.values():
            events.flush()

    def _chosen(self, series: np.ndarray, first: int) -> list[int]:
        """Choose the ticks of a chunk to write as events: a subset in long runs, but every rarely measured value."""
        measured = first + np.flatnonzero(np.isfinite(series))
        rarely = len(measured) * self.stride <= len(series)
        return measured.tolist() if rarely else measured[measured % self.stride == 0].tolist()

    def close(self) -> None:
        """Flush the events."""
        for events in self._events.values():
            events.close()
        self._events = {}

    def _writer(self, name: str) -> Any:
        # Not `SummaryWriter`: its queue blocks forever once the disk is full and its thread has died.
        if name not in self._events:
            from tensorboardX.event_file_writer import EventsWriter

            folder = self.folder / "events" / name
            folder.mkdir(parents=True, exist_ok=True)
            self._events[name] = EventsWriter(str(folder / "events"))
        return self._events[name]


def read_seeds(path: Path) -> list[int]:
    """The seeds in `metrics.csv`, in the order of the first axis of `read`."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(dict.fromkeys(int(row["seed"]) for row in csv.DictReader(file)))


def read(path: Path, tick: str) -> dict[str, np.ndarray]:
    """Read `metrics.csv` as name → float [seed, tick]; nan where a cell is empty or a seed ended earlier."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            return {}
        names = [name for name in rows[0] if name not in ("seed", tick, "elapsed_seconds")]
        # In the order they were written, which is the plan's.
        seeds = {seed: i for i, seed in enumerate(dict.fromkeys(int(row["seed"]) for row in rows))}
        ticks = 1 + max(int(row[tick]) for row in rows)
        if ticks > len(rows):
            raise ValueError("ticks are missing")
        table = {name: np.full((len(seeds), ticks), np.nan) for name in names}
        for row in rows:
            s, t = seeds[int(row["seed"])], int(row[tick])
            for name in names:
                if row[name]:
                    table[name][s, t] = float(row[name])
    except (ValueError, KeyError, TypeError, IndexError, UnicodeDecodeError, csv.Error) as error:
        raise DamagedRun(f"`{path}` is not a valid table of metrics ({error}).") from None
    return table


def _event(name: str, value: float, tick: int) -> Any:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    return Event(wall_time=time.time(), step=tick, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)]))


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.7g}"
