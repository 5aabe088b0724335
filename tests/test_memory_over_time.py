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


MEMORY = """
import sys
from pathlib import Path
import numpy as np
from xladder.runs.checkpoints import Checkpoint, Checkpoints

def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))

def compare(after, warm):
    window = (len(after) - warm) // 5
    first, last = (np.median(part) for part in (after[warm : warm + window], after[-window:]))
    print(f"{len(after)} checkpoints: {first:.1f} MB, later {last:.1f} MB")
    assert "orbax" not in sys.modules, "which keeps some memory of every save"
    sys.exit(bool(last > 1.03 * first))
"""
SAVES = """
kept = Checkpoints(Path(sys.argv[1]) / "checkpoints", {"a": 1})
arrays, after = {f"array {i}": np.zeros((64, 256), np.float32) for i in range(20)}, []
for step in range(1, 1001):
    kept.save(Checkpoint(step, {name: array + step for name, array in arrays.items()}, {}))
    after.append(memory())
compare(after, 300)
"""
TRAINS = """
from xladder.cli.main import main
after, save = [], Checkpoints.save

def watched(*given):
    found = save(*given)
    after.append(memory())
    return found

Checkpoints.save = watched
assert main(f"train hypergrid --iterations 13000 --checkpoint-every 10 --out {sys.argv[1]}/run".split()) == 0
compare(after, 300)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux")
@pytest.mark.parametrize("script", [SAVES, TRAINS], ids=["saves alone", "a run"])
def test_a_thousand_checkpoints_take_no_more_memory_than_the_first_hundreds(script, tmp_path):
    """In a process of its own: what other tests allocate would hide it."""
    command = [sys.executable, "-c", MEMORY + script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    print(done.stdout[-200:])
