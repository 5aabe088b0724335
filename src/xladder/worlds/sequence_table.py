"""Reading a table of sequences and their values: CSV or NPZ. Every fault is a sentence.

A CSV file has the columns `sequence` and `value`; an NPZ file has two arrays of these names, the sequences as strings.
"""

from __future__ import annotations

import csv
import math
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from xladder.errors import UsageError
from xladder.worlds.table_files import MOST_ENTRIES, check_recorded, find_table, lines_of

FLAG = "world.table"
COLUMNS = ("sequence", "value")
MADE_UP = "ACGT"


def read_table(path: str) -> dict[str, float]:
    """Sequence → value of a table; of a made-up one if the path is empty."""
    check_recorded(path, FLAG)
    return _read(path)


@lru_cache(maxsize=4)
def _read(path: str) -> dict[str, float]:
    if not path:
        return made_up()
    if not Path(path).expanduser().is_file():
        raise UsageError(f"`--world.table` is {path}, which is not a file: give a CSV or NPZ file of sequences.")
    file = find_table(path, FLAG)
    pairs = _from_npz(file) if file.suffix.lower() == ".npz" else _from_csv(file)
    found: dict[str, float] = {}
    for place, (sequence, value) in enumerate(pairs, start=1):
        where = f"`{path}`, entry {place}"
        if not sequence:
            raise UsageError(f"{where}: the sequence is empty.")
        if sequence in found:
            raise UsageError(f"{where}: the sequence `{sequence[:40]}` is there twice.")
        if not math.isfinite(value):
            raise UsageError(f"{where}: the value of `{sequence[:40]}` is {value}, but it has to be a finite number.")
        if value < 0:
            raise UsageError(f"{where}: the value of `{sequence[:40]}` is {value:g}, but rewards cannot be negative.")
        found[sequence] = value
    if not found:
        raise UsageError(f"`--world.table` is {path}, which has no entries.")
    return found


def made_up() -> dict[str, float]:
    """A table of all 256 sequences of four letters: values fall with the distance to two of them, and are uneven."""
    rng = np.random.default_rng(8)
    peaks, table = ("ACGT", "TTAA"), {}
    for number in range(4**4):
        sequence = "".join(MADE_UP[number // 4**place % 4] for place in range(4))
        nearest = min(sum(a != b for a, b in zip(sequence, peak, strict=True)) for peak in peaks)
        table[sequence] = float(np.exp(-1.5 * nearest) * rng.uniform(0.8, 1.2))
    return table


def _from_csv(file: Path) -> list[tuple[str, float]]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.DictReader(lines_of(stream, str(file), FLAG))
            lacking = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if lacking:
                raise UsageError(f"`{file}` has no column `{lacking[0]}`: it needs `sequence` and `value`.")
            return [(row["sequence"] or "", _number(file, row["value"])) for row in rows]
    except UnicodeDecodeError as error:
        raise UsageError(f"`{file}` is not a CSV file: it holds bytes that are no text in UTF-8.") from error
    except csv.Error as error:
        raise UsageError(f"`{file}` is not a CSV file: {error}.") from error


def _from_npz(file: Path) -> list[tuple[str, float]]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            lacking = [name for name in COLUMNS if name not in arrays]
            if lacking:
                raise UsageError(f"`{file}` has no array `{lacking[0]}`: it needs `sequence` and `value`.")
            _check_entries(file)
            sequences, values = arrays["sequence"], arrays["value"]
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise UsageError(f"`{file}` is not an NPZ file of plain arrays: {error}.") from error
    if sequences.ndim != 1 or sequences.shape != values.shape or sequences.dtype.kind not in "US":
        raise UsageError(
            f"`{file}`: `sequence` is {sequences.dtype} {list(sequences.shape)} and `value` {values.dtype} "
            f"{list(values.shape)}, but they have to be strings and numbers, equally many."
        )
    strings = sequences.astype(str).tolist()
    return [(sequence, _number(file, value)) for sequence, value in zip(strings, values.tolist(), strict=True)]


def _check_entries(file: Path) -> None:
    """Raise a `UsageError` if an array of an NPZ file has more entries than a table; its header says how many."""
    with zipfile.ZipFile(file) as archive:
        for name in COLUMNS:
            with archive.open(f"{name}.npy") as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
                shape = read(stream)[0]
            if math.prod(shape) > MOST_ENTRIES:
                raise UsageError(f"`{file}`: `{name}` has {math.prod(shape):,} entries: {MOST_ENTRIES:,} are possible.")


def _number(file: Path, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"`{file}`: the value {value!r} is not a number.") from None
