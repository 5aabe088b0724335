"""A script in PyTorch becomes one XLA program, and learns the same: `python -m tests.walks.from_pytorch`."""

import json
import sys
from pathlib import Path

import numpy as np

from tests.walks import score_of, walk

PAGE = "docs/tutorials/from-pytorch.md"
EXTRAS = "torch,gym"
STEPS = 8_000


def check(folder: Path) -> None:
    """Script and `hybrid` learn alike, `fused` plays well, and a step of it takes less time than one of the script.

    That parity passed is asserted on the page itself.
    """
    script, hybrid = (np.load(folder / f"{name}.npz") for name in ("mine", "hybrid"))
    ends = [float(found["returns"][-100:].mean()) for found in (script, hybrid)]
    assert min(ends) > float(script["returns"][:100].mean()) + 0.5, ends
    assert abs(ends[0] - ends[1]) < 0.5, ends
    score = score_of(folder / "runs/lake")
    assert score["mean_return"] > score["random_return"] + 1, score
    config = json.loads((folder / "runs/lake/config.json").read_text())
    timings = json.loads((folder / "runs/lake/timings.json").read_text())
    per_step = timings["seconds_per_tick"] / config["config"]["learner"]["steps_per_update"]
    assert per_step < float(script["seconds"]) / STEPS / 2, (per_step, float(script["seconds"]))
    assert (folder / "learning.png").stat().st_size > 1000


if __name__ == "__main__":
    walk(sys.modules[__name__])
    print(f"{PAGE}: the walk ends where it should.")
