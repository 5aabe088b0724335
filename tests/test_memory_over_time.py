"""Long runs: saving again and again takes no more memory, and neither do their metrics."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import TINY_GRID
from xladder.plans import plan
from xladder.trainer import MOST_PARTS, Observer, Trial


def test_rows_that_are_kept_do_not_depend_on_the_number_of_chunks():
    trial = Trial.__new__(Trial)
    trial.plan, trial.observer, trial.seeds = plan("hypergrid", config=TINY_GRID), Observer(), (0,)
    trial.parts, trial.kept, trial.done = [], 0, 0
    for _ in range(3 * MOST_PARTS):
        trial.done += 1
        trial.keep_rows({"loss": np.full((1, 1), trial.done)})
        assert len(trial.parts) <= MOST_PARTS
    np.testing.assert_array_equal(np.concatenate([part["loss"][0] for part in trial.parts]), np.arange(trial.done) + 1)


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
