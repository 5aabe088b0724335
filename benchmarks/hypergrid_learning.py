"""How well the sampler has learned, exactly, at five points of the published run (20⁴ easy, 62,500 iterations).

    python benchmarks/hypergrid_learning.py --losses tb,db,subtb --seeds 4

Prints total variation and the error of log Z: for each seed the median of five measurements in the 400 iterations
before each point (single ones are noisy), then the mean over seeds with its 95 % interval. Writes them as JSON with
device, versions and command. Also reports the time of the whole run without measurements.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.core.statistics import mean_and_interval
from xladder.plans import plan
from xladder.runs.disk import write_json

POINTS = 5
NEAR, APART = 5, 100  # measurements before each point and iterations between them: single ones are noisy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", default="tb,db,subtb")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=62_500)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    device = devices.find(options.device)
    runs = [learn(loss, options.seeds, options.iterations, device) for loss in options.losses.split(",")]
    found = {**measured_on(device), "iterations": options.iterations}
    found |= {"seeds": options.seeds, "runs": runs}
    if options.out:
        write_json(options.out, found)
    print(json.dumps({k: v for k, v in found.items() if k != "runs"}))


def learn(loss: str, seeds: int, iterations: int, device) -> dict:
    from xladder.core.compiling import compiled
    from xladder.families.gflownet.evaluation import measure
    from xladder.rungs import fused

    config = plan("hypergrid", "fused", preset="published", changes={"loss": loss, "iterations": iterations}).config
    run = fused.start(config, list(range(seeds)), device)
    points, seconds = [], 0.0
    for point in range(1, POINTS + 1):
        row, measured = {"iterations": point * iterations // POINTS}, []
        for near in range(NEAR):
            begun = time.perf_counter()
            metrics = run.advance(iterations // POINTS - (NEAR - 1) * APART if near == 0 else APART)
            seconds += time.perf_counter() - begun
            measured.append(measure(config, run.params(), point, compiled).columns)
        row["length"] = float(metrics["length"].mean())
        for name in ("tv", "logz_error", "modes"):
            each = np.median([columns[name] for columns in measured], axis=0)  # per seed
            mean, interval = mean_and_interval(each)
            at_once = float(np.mean(measured[-1][name]))
            row |= {name: float(mean), f"{name}_ci95": float(interval), f"{name}_at_the_point": at_once}
            row[f"{name}_each"] = each.tolist()
        points.append(row)
        print(
            f"{loss:<6} {row['iterations']:>6} iterations  TV {row['tv']:.4f} ± {row['tv_ci95']:.4f}  "
            f"|log Z error| {row['logz_error']:.4f} ± {row['logz_error_ci95']:.4f}  modes {row['modes']:.0f}  "
            f"{row['length']:.1f} steps  {seconds:.0f} s",
            flush=True,
        )
    rate = iterations / seconds
    print(f"{loss:<6} whole run: {rate:.0f} iterations/s, {rate * seeds:.0f} over {seeds} seeds", flush=True)
    return {"loss": loss, "points": points, "seconds": seconds, "iterations_per_second": rate}


if __name__ == "__main__":
    main()
