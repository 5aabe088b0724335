"""How well the posterior over graphs with five nodes is learned, exactly, at five points of the published run.

    python benchmarks/dags.py --device gpu --seeds 16
    python benchmarks/dags.py --device gpu --seeds 16 --gfnx PYTHON     with gfnx, in its own interpreter

Preset `published`: 128 trajectories per iteration, 100,000 iterations. Prints for each point the exact total variation
and the error of log Z, for each seed the median of five measurements in the 400 iterations before it, and the
correlation of edge, path and Markov blanket probabilities with the exact posterior's. Writes everything as JSON.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rounds import measured_on, peer_row

from xladder import devices
from xladder.core.statistics import mean_and_interval
from xladder.plans import plan
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
POINTS, NEAR, APART = 5, 5, 100
NAMES = (
    "tv",
    "logz_error",
    "jsd",
    "edge_correlation",
    "path_correlation",
    "blanket_correlation",
    "expected_shd",
    "auroc",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--losses", default="mdb", help="one or several, such as mdb,tb,db")
    parser.add_argument("--lr", type=float, help="Adam's learning rate, if not the preset's")
    parser.add_argument("--gfnx", help="a Python that has gfnx and xladder")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/dags-DEVICE.json)")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    device, console = devices.find(options.device), Console(width=120)
    runs = [learn(loss, options, device, console) for loss in options.losses.split(",")]
    found = {**measured_on(device), "iterations": options.iterations, "seeds": options.seeds}
    found["runs"] = runs
    if options.gfnx:
        script = [options.gfnx, str(HERE / "gfnx_dags.py"), "--device", options.device]
        peer = peer_row("gfnx", [*script, "--iterations", str(options.iterations), "--seeds", str(options.seeds)])
        console.print(json.dumps(peer), highlight=False)
        found["peer"] = peer
    write_json(options.out or HERE / "results" / f"dags-{options.device}.json", found)


def learn(loss: str, options: argparse.Namespace, device, console: Console) -> dict:
    from xladder.core.compiling import compiled
    from xladder.families.gflownet.evaluation import measure
    from xladder.rungs import fused

    seeds, iterations = options.seeds, options.iterations
    learner = ({"lr": options.lr} if options.lr else {}) | ({} if loss == "mdb" else {"weighting": "trajectories"})
    changes = {"loss": loss, "iterations": iterations, "learner": learner}
    config = plan("dags", "fused", preset="published", changes=changes).config
    run = fused.start(config, list(range(seeds)), device)
    points, seconds, timed = [], 0.0, 0
    part = iterations // POINTS
    apart = min(APART, part // NEAR)
    for point in range(1, POINTS + 1):
        row, measured = {"iterations": point * part}, []
        for near in range(NEAR):
            begun, ticks = time.perf_counter(), part - (NEAR - 1) * apart if near == 0 else apart
            metrics = run.advance(ticks)
            if point > 1:  # the first chunks compile
                seconds, timed = seconds + time.perf_counter() - begun, timed + ticks
            measured.append(measure(config, run.params(), point, compiled).columns)
        row["length"] = float(metrics["length"].mean())
        for name in NAMES:
            each = np.median([columns[name] for columns in measured], axis=0)  # per seed
            mean, interval = mean_and_interval(each)
            row |= {name: float(mean), f"{name}_ci95": float(interval), f"{name}_each": each.tolist()}
        points.append(row)
        console.print(
            f"{loss:<6} {row['iterations']:>7,} iterations  TV {row['tv']:.4f} ± {row['tv_ci95']:.4f} (worst "
            f"{max(row['tv_each']):.4f})  |log Z error| {row['logz_error']:.4f}  correlation of edges "
            f"{row['edge_correlation']:.5f}, paths {row['path_correlation']:.5f}, blankets "
            f"{row['blanket_correlation']:.5f}",
            highlight=False,
        )
    rate = timed / seconds
    console.print(f"{loss:<6} {rate:.0f} iterations/s of {seeds} seeds", highlight=False)
    return {"loss": loss, "lr": config.learner.lr, "points": points, "iterations_per_second": rate}


if __name__ == "__main__":
    main()
