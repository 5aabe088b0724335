"""Long runs: old rows of metrics go to a file, and saving again and again takes no more memory."""

import os
import subprocess
import sys

import numpy as np
import pytest

from xladder.core import spooled
from xladder.core.spooled import SpooledColumns, allocate


def chunks(seeds, sizes):
    """Columns of two types, as chunks, and the same in one piece."""
    rng = np.random.default_rng(0)
    whole = {
        "return": rng.normal(size=(seeds, sum(sizes))).astype(np.float32),
        "episodes": rng.integers(0, 9, (seeds, sum(sizes))).astype(np.int32),
    }
    ends = np.cumsum(sizes)
    return whole, [
        {name: values[:, end - size : end] for name, values in whole.items()}
        for end, size in zip(ends, sizes, strict=True)
    ]


@pytest.mark.parametrize("buffer_bytes", [100, 8 * 2**20])
def test_columns_come_back_as_they_were_appended(tmp_path, monkeypatch, buffer_bytes):
    monkeypatch.setattr(spooled, "BUFFER_BYTES", buffer_bytes)
    whole, parts = chunks(3, [1, 50, 7, 0, 200])
    columns = SpooledColumns(tmp_path)
    for part in parts:
        columns.append(part)
    found = columns.joined()
    assert columns.ticks == 258 and found.keys() == whole.keys()
    for name, values in whole.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
    found["return"][0, 0] = 7.0  # whoever changes it changes a copy
    assert columns.joined()["return"][0, 0] == whole["return"][0, 0]
    assert not list(tmp_path.iterdir())  # the file has no name


def test_only_the_end_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(spooled, "BUFFER_BYTES", 10_000)
    columns, [chunk] = SpooledColumns(tmp_path), chunks(2, [500])[1]
    for _ in range(100):
        columns.append(chunk)
        assert sum(buffer.nbytes for buffer in columns._buffers) <= 10_000
    assert columns.joined()["return"].shape == (2, 50_000)


def test_a_disk_that_is_full_leaves_them_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(spooled, "BUFFER_BYTES", 1000)
    whole, parts = chunks(2, [30] * 20)
    full = False
    columns = SpooledColumns(tmp_path)

    class Full:
        """A file that takes half of what it is given, as long as the disk is full."""

        def __init__(self, file):
            self.file = file

        def write(self, data):
            if full:
                self.file.write(bytes(data)[: len(bytes(data)) // 2])
                raise OSError(28, "No space left on device")
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    made = spooled.tempfile.TemporaryFile
    monkeypatch.setattr(spooled.tempfile, "TemporaryFile", lambda **options: Full(made(**options)))
    for number, part in enumerate(parts):
        full = number % 3 == 1 or number > 15
        columns.append(part)
    for name, values in whole.items():
        np.testing.assert_array_equal(columns.joined()[name], values)


def test_folder_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(spooled, "BUFFER_BYTES", 100)
    whole, [part] = chunks(2, [60])
    columns = SpooledColumns(tmp_path / "gone")
    columns.append(part)
    np.testing.assert_array_equal(columns.joined()["return"], whole["return"])
    assert allocate((4, 100), tmp_path / "gone").shape == (4, 100)


SAVES = """
import sys
from pathlib import Path
import numpy as np
from xladder.runs.checkpoints import Checkpoint, Checkpoints

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

saves, warm = map(int, sys.argv[2:])
kept = Checkpoints(Path(sys.argv[1]) / "checkpoints", {"a": 1})
arrays, after = {f"array {i}": np.zeros((64, 256), np.float32) for i in range(20)}, []
for step in range(1, saves + 1):
    kept.save(Checkpoint(step, {name: array + step for name, array in arrays.items()}, {}))
    after.append(memory())
window = (saves - warm) // 5
first, last = (np.median(part) for part in (after[warm : warm + window], after[-window:]))
print(f"{first / 2**20:.1f} MB, later {last / 2**20:.1f} MB")
sys.exit(bool(last > 1.03 * first))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="asks Linux")
def test_a_thousand_checkpoints_take_no_more_memory_than_the_first_hundreds(tmp_path):
    """In a process of its own: what other tests allocate would hide it."""
    command = [sys.executable, "-c", SAVES, str(tmp_path), "1000", "300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
