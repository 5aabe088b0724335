"""How long checkpoints of large replay memories take to write, to write again after few changes, and to read.

    python benchmarks/large_checkpoints.py --megabytes 508 7056 --folder /a/disk --json results/large-checkpoints.json

Memories hold noise, which no file system compresses. Two consecutive checkpoints share nothing, so the first two are
written whole. 7,056 MB are a million Atari frames; as many bytes have to be free on the disk twice, in memory as well.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rounds import command, measured_on

from xladder.runs.checkpoints import Checkpoint, Checkpoints
from xladder.runs.disk import write_json

ROW = 84 * 84  # bytes of a frame
CHANGED = 0.01  # of the rows, between later checkpoints


def timed(call: Callable[[], Any]) -> dict[str, float]:
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def measure(megabytes: int, folder: Path) -> dict:
    """Save a memory four times, and read the last checkpoint."""
    rng = np.random.default_rng(0)
    rows = megabytes * 10**6 // ROW
    memory = np.empty((1, rows, ROW), np.uint8)
    for begin in range(0, rows, 10_000):
        part = memory[0, begin : begin + 10_000]
        part[:] = rng.integers(0, 256, part.shape, np.uint8)
    checkpoints, changed = Checkpoints(folder, {}), max(1, round(CHANGED * rows))
    names = ("first", "second", "third, 1 % changed", "fourth, 1 % changed")
    found: dict[str, Any] = {"megabytes": memory.nbytes / 1e6, "rows": rows}
    for number, name in enumerate(names):
        if number > 1:
            begin = number * changed
            memory[0, begin : begin + changed] = rng.integers(0, 256, (changed, ROW), np.uint8)
        state = Checkpoint(number, {"memory": memory}, {})
        found[name] = timed(lambda state=state: checkpoints.save(state))
        print(f"{megabytes} MB, {name}: {found[name]}", flush=True)
    found["read"] = timed(lambda: checkpoints.load(number))
    print(f"{megabytes} MB, read: {found['read']}", flush=True)
    return found


def main() -> None:
    """Measure and write the file."""
    import jax

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", nargs="+", type=int, default=[508])
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure (that of temporary files)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, load = [], os.getloadavg()[0]
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows.append(measure(megabytes, Path(folder) / "checkpoints"))
    if options.json:
        facts = {
            "command": command(),
            "load_before": load,
            "environment": measured_on(jax.devices()[0]),
        }
        write_json(options.json, facts | {"rows": rows})


if __name__ == "__main__":
    main()
