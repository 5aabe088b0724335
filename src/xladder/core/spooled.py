"""Columns of numbers that grow with a run, of which memory holds the end only.

A run of some hours has millions of ticks. Rows are collected in one buffer; when it is full it goes to a file without
a name, which disappears with the process, however that ends. Shapes: S seeds, T ticks.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

BUFFER_BYTES = 8 * 2**20


def allocate(shape: tuple[int, ...], folder: Path | None = None) -> np.ndarray:
    """A float array to be filled; a large one is in a file without a name, so that memory need not hold it.

    Args:
        shape: Its shape.
        folder: Where the file is made; the system's folder for temporary files if None.
    """
    size = 8 * math.prod(shape)
    if size > BUFFER_BYTES:
        with suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # else a disk that is full would kill the process later
            return np.asarray(np.memmap(file, float, "r+", shape=shape))
    return np.empty(shape)


class SpooledColumns:
    """Columns by name, float [S, T], that chunks are appended to.

    Args:
        folder: Where the file is made; the system's folder for temporary files if None.
    """

    def __init__(self, folder: Path | None = None):
        self.folder, self.ticks = folder, 0
        self._dtype: np.dtype | None = None
        self._buffers: list[np.ndarray] = []
        """Rows that are not in the file, a record per tick; several buffers only if the file cannot be written."""
        self._used = 0  # rows of the last buffer
        self._file: IO[bytes] | None = None
        self._written = 0  # rows in the file

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Append a chunk, [S, T] each. The first chunk says which columns there are, and their types."""
        if self._dtype is None:
            self._dtype = np.dtype([(name, values.dtype, (len(values),)) for name, values in columns.items()])
        count, begin = next(iter(columns.values())).shape[1], 0
        while begin < count:
            if not self._buffers or self._used == len(self._buffers[-1]):
                self._spill()
                self._buffers.append(np.empty(max(1, BUFFER_BYTES // self._dtype.itemsize), self._dtype))
                self._used = 0
            free = self._buffers[-1][self._used :]
            taken = min(count - begin, len(free))
            for name in self._dtype.names or ():
                free[name][:taken] = columns[name][:, begin : begin + taken].T
            begin += taken
            self._used += taken
        self.ticks += count

    def joined(self) -> dict[str, np.ndarray]:
        """All rows, as arrays [S, T]; those of a long run are read from the file as they are used."""
        assert self._dtype is not None
        names = self._dtype.names or ()
        if self._file is None:
            rows = self._in_memory()
            return {name: np.ascontiguousarray(rows[name].T) for name in names}
        self._spill()
        # Copy on write: who changes an array changes it for himself.
        stored: Any = np.asarray(np.memmap(self._file, self._dtype, "c", shape=(self._written,)))
        if self._buffers:  # could not be written
            stored = np.concatenate([stored, self._in_memory()])
        return {name: stored[name].T for name in names}

    def _in_memory(self) -> np.ndarray:
        rows = [*self._buffers[:-1], *(last[: self._used] for last in self._buffers[-1:])]
        return np.concatenate([np.empty(0, self._dtype), *rows])

    def _spill(self) -> None:
        """Move the buffers to the file; where that is not possible, for lack of space, they stay in memory."""
        assert self._dtype is not None
        if not self._buffers:
            return
        rows = [*self._buffers[:-1], self._buffers[-1][: self._used]]
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - lives as long as the columns
            self._file.seek(self._written * self._dtype.itemsize)
            for some in rows:
                self._file.write(some.data)
            self._file.flush()
        except OSError:
            if not self._written:
                self._file = None
            self._buffers, self._used = rows, len(rows[-1])
            return
        self._written += sum(map(len, rows))
        self._buffers = []
