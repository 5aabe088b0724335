"""Does every rung learn what sorrel learns? Trains the default settings for 1000 epochs on several seeds and scores them.

    python benchmarks/learning.py [--device gpu] [--torch-seeds 5] [--fused-seeds 32] [--epochs 1000]

Prints, with 95 % intervals over seeds, the mean return of the last tenth (ε ≈ 0.4) and without exploring, beside what
was measured with sorrel 1.6.0 at the same settings. The seeds of the `torch` rung run in processes side by side.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import xladder
from xladder import devices
from xladder.runs.directory import environment, write_json
from xladder.runs.statistics import mean_and_interval

HERE = Path(__file__).parent
SORREL = {"last_tenth": 152.0, "greedy": 196.0, "random": 16.0, "note": "sorrel 1.6.0, one run, measured before"}


def train(rung: str, seed: int, seeds: int, epochs: int, device: str, out: Path) -> subprocess.Popen:
    words = ["train", "treasurehunt", "--rung", rung, "--seed", str(seed), "--seeds", str(seeds)]
    words += ["--epochs", str(epochs), "--device", device, "--out", str(out), "--eval-episodes", "0"]
    return subprocess.Popen([sys.executable, "-m", "xladder.cli.main", *words], stdout=subprocess.DEVNULL)


def summarise(runs: list[Path], episodes: int) -> dict:
    last, greedy, chance = [], [], []
    for run in runs:
        result = xladder.load(run)
        returns = result.metrics["return"]
        last += list(returns[:, -max(1, returns.shape[1] // 10) :].mean(1))
        found = score_by_seed(result, episodes)
        greedy += found[0]
        chance += found[1]
    summary = {"seeds": len(last)}
    for name, values in {"last_tenth": last, "greedy": greedy, "random": chance}.items():
        mean, interval = mean_and_interval(np.array(values))
        summary |= {name: float(mean), f"{name}_ci95": float(interval), f"{name}_std": float(np.std(values))}
    return summary


def score_by_seed(result, episodes: int) -> tuple[list[float], list[float]]:
    from xladder.core.evaluation import evaluate

    found = evaluate(result.config, result.params, episodes)
    return [float(x) for x in found.returns.sum(-1).mean(1)], [float(found.random.sum(-1).mean())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--torch-seeds", type=int, default=5)
    parser.add_argument("--fused-seeds", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "learning.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        torch_runs = [folder / f"torch-{seed}" for seed in range(options.torch_seeds)]
        started = [train("torch", s, 1, options.epochs, options.device, run) for s, run in enumerate(torch_runs)]
        started.append(train("fused", 0, options.fused_seeds, options.epochs, options.device, folder / "fused"))
        if any(process.wait() for process in started):
            sys.exit("a run failed")
        rows = {
            "torch": summarise(torch_runs, options.episodes),
            "fused": summarise([folder / "fused"], options.episodes),
            "sorrel": SORREL,
        }
    table = Table(title=f"treasurehunt, default settings, {options.epochs} epochs: total return per epoch")
    for head in ("", "seeds", "last tenth (ε ≈ 0.4)", "without exploring", "random play"):
        table.add_column(head)
    for name, row in rows.items():
        cells = [
            f"{row[k]:.1f}" + (f" ± {row[f'{k}_ci95']:.1f}" if f"{k}_ci95" in row else "")
            for k in ("last_tenth", "greedy", "random")
        ]
        table.add_row(name, str(row.get("seeds", "")), *cells)
    Console(width=110).print(table)
    write_json(options.out, {"rows": rows, "epochs": options.epochs, **environment(devices.find(options.device))})


if __name__ == "__main__":
    main()
