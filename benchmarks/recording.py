"""What recording costs: chunks of a run whose metrics are recorded, and chunks of nothing but its program, in turn.

    python benchmarks/recording.py                    the table of docs/benchmarks/speed.md is made from it
    python benchmarks/recording.py --steps 500000 --seeds 8

Both train the same population in the same process. Recording is all that a run does besides advancing its program:
joining ticks to rows, checking the loss, `metrics.csv`, events for TensorBoard, the progress line and the log.
Processor time, so that other work on the machine counts less. Without checkpoints, evaluations and pictures, which do
not depend on the number of ticks.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.callbacks import Observers
from xladder.execution import execute
from xladder.plans import plan
from xladder.runs.directory import Keeping, RunDirectory
from xladder.runs.disk import write_json
from xladder.runs.recording import Recorder
from xladder.trainer import Observer

OUT = Path(__file__).parent / "results" / "recording-cpu.json"
WARM = 5  # chunks that are left out: they are short, or nothing is learned yet


class Alternating(Observer):
    """After every chunk of the run, advances its program once more without recording."""

    def __init__(self) -> None:
        self.recorded: list[float] = []
        self.bare: list[float] = []
        """Processor seconds per tick."""

    def started(self, seeds, running) -> None:
        self.running, self.begun = running, time.process_time()

    def chunk(self, seeds, first, columns, seconds) -> None:
        # Rows are written after this, and count as part of the next chunk.
        ticks = columns["loss"].shape[1]
        middle = time.process_time()
        self.running.advance(ticks)
        end = time.process_time()
        self.recorded.append((middle - self.begun) / ticks)
        self.bare.append((end - middle) / ticks)
        self.begun = end


def measured(seeds: int, steps: int) -> dict:
    """One run of CartPole at PureJaxRL's settings."""
    changes = {"steps": steps, "evaluate_episodes": 0}
    chosen = plan("cartpole", "fused", preset="dqn", protocol="cleanrl", seeds=seeds, device="cpu", changes=changes)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory.create(Path(folder) / "run", chosen, Keeping(checkpoint_every=0, eval_episodes=0))
        recorder, alternating = Recorder(directory), Alternating()
        recorder.begin(devices.find("cpu"))
        result = execute(chosen, Observers([recorder, alternating]))
        directory.writer.close()
        directory.lock.release()
        size = directory.writer.position
    ratios = np.array(alternating.recorded[WARM:]) / np.array(alternating.bare[WARM:])
    return {
        "seeds": seeds,
        "ticks": chosen.config.ticks,
        "ticks_per_row": chosen.ticks_per_row,
        "rows": result.metrics["loss"].shape[1],
        "chunks": len(ratios),
        "cpu_us_per_tick": 1e6 * float(np.median(alternating.bare[WARM:])),
        "recording_percent": 100 * (float(np.median(ratios)) - 1),
        "csv_bytes": size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", default="1,8")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows = []
    for seeds in map(int, options.seeds.split(",")):
        rows.append(measured(seeds, options.steps))
        print(rows[-1], flush=True)
    write_json(options.out, {"rows": rows, **measured_on(devices.find("cpu"))})


if __name__ == "__main__":
    main()
