"""How well the distribution over sets of items is learned, exactly, beside torchgfn after as many trajectories.

    python benchmarks/sets.py --seeds 16                                  ours alone
    python benchmarks/sets.py --seeds 16 --torchgfn PYTHON                with torchgfn, in its own interpreter

Both have the same energies, trajectory balance, a learned backward policy, two layers of 256, batches of 16 and the
same rates, and neither explores. Prints the exact total variation after some iterations, and writes everything as JSON.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console
from rounds import measured_on, peer_row

from xladder import devices
from xladder.core.compiling import compiled
from xladder.families.gflownet.evaluation import measure
from xladder.plans import plan
from xladder.rungs import fused
from xladder.runs.disk import write_json

HERE = Path(__file__).parent


def learn(items: int, most: int, seeds: int, points: list[int], device) -> list[dict]:
    """What all seeds have learned after some iterations."""
    learner = {"epsilon": 0.0, "epsilon_end": 0.0, "batch_size": 16, "width": 256, "layers": 2, "backward": "learned"}
    changes = {
        "loss": "tb",
        "iterations": points[-1],
        "world": {"items": items, "most": most},
        "learner": {**learner, "trunk": "shared", "lr": 1e-3, "log_z_lr": 0.1},
    }
    config = plan("sets", "fused", changes=changes).config
    run, rows, done = fused.start(config, list(range(seeds)), device), [], 0
    for iterations in points:
        run.advance(iterations - done)
        done = iterations
        columns = measure(config, run.params(), done, compiled).columns
        row = {name: np.asarray(columns[name]).tolist() for name in ("tv", "logz_error")}
        rows.append({"iterations": iterations, **row})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--items", type=int, default=10)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--points", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--torchgfn", help="a Python that has torchgfn")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/sets-curves-DEVICE.json)")
    options = parser.parse_args()
    device, console = devices.find(options.device), Console(width=120)
    found = measured_on(device)
    found["fused"] = {"points": learn(options.items, options.most, options.seeds, options.points, device)}
    if options.torchgfn:
        sizes = ["--items", str(options.items), "--most", str(options.most), "--seeds", str(options.seeds)]
        words = [options.torchgfn, str(HERE / "torchgfn_sets.py"), *sizes, "--points", *map(str, options.points)]
        found["torchgfn"] = peer_row("torchgfn", words)
    for name in ("fused", "torchgfn"):
        for row in found.get(name, {}).get("points", []):
            mean, low, high = np.mean(row["tv"]), min(row["tv"]), max(row["tv"])
            said = (
                f"total variation {mean:.4f} ({low:.4f} … {high:.4f}), |log Z error| {np.mean(row['logz_error']):.4f}"
            )
            console.print(f"{name:<9} {row['iterations']:>6,} iterations  {said}", highlight=False)
    if "error" in found.get("torchgfn", {}):
        console.print(f"torchgfn: {found['torchgfn']['error']}", highlight=False, markup=False)
    write_json(options.out or HERE / "results" / f"sets-curves-{options.device}.json", found)


if __name__ == "__main__":
    main()
