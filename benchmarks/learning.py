"""Does a rung learn as well as sorrel, or as another rung? Several seeds of a preset, evaluated; the default for 1000
epochs.

    python benchmarks/learning.py --rung fused --seeds 32 --device gpu
    python benchmarks/learning.py --rung fused --preset demo --seeds 8
    python benchmarks/learning.py --rung torch --runs DIR DIR …    evaluates runs made by `xladder train`

Prints, with 95 % intervals over seeds, the mean return of the last tenth and without exploration; for the default
settings beside what was measured with sorrel 1.6.0. Writes the curves as well.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rounds import measured_on

import xladder
from xladder import devices
from xladder.cli.main import main as command
from xladder.core.compiling import compiled
from xladder.core.statistics import mean_and_interval
from xladder.families.multi_agent.evaluation import evaluate
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
SORREL = {"last_tenth": 152.0, "greedy": 196.0, "greedy_std": 48.0, "random": 16.0, "random_ci95": 3.3}


def summarise(runs: list[Path], episodes: int) -> dict:
    values = {"last_tenth": [], "greedy": [], "random": []}
    curves = []
    for run in runs:
        result = xladder.load(run)
        returns = result.metrics["return"]
        found = evaluate(result.config, result.params, episodes, 0, compiled)
        curves += returns.round(2).tolist()
        values["last_tenth"] += list(returns[:, -max(1, returns.shape[1] // 10) :].mean(1))
        values["greedy"] += list(found.returns.sum(-1).mean(1))
        values["random"] += list(found.random[0].sum(-1))  # the same boards for every run: count episodes, not runs
    summary = {"seeds": len(values["greedy"]), "episodes": episodes, "epochs": returns.shape[1]}
    for name, entries in values.items():
        mean, interval = mean_and_interval(np.array(entries[: episodes if name == "random" else None]))
        summary |= {name: float(mean), f"{name}_ci95": float(interval)}
    return summary | {"curves": curves}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rung", default="fused")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--runs", type=Path, nargs="+", help="evaluate these runs instead of training new ones")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/learning-[PRESET-]RUNG.json)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = options.runs or [Path(folder) / "run"]
        if not options.runs:
            words = ["--rung", options.rung, "--preset", options.preset]
            words += ["--seeds", str(options.seeds), "--device", options.device]
            if command(["train", "treasurehunt", *words, "--eval-episodes", "0", "--out", str(runs[0])]):
                sys.exit("the run failed")
        row = summarise(runs, options.episodes)
    peer = {"sorrel": SORREL} if options.preset == "default" else {}
    table = Table(title=f"treasurehunt, preset {options.preset}, {row['epochs']} epochs: total return per epoch")
    for head in ("", "seeds", "last tenth", "without exploration", "random play"):
        table.add_column(head)
    for name, one in {options.rung: row, **peer}.items():
        cells = [
            f"{one[k]:.1f}" + (f" ± {one[f'{k}_ci95']:.1f}" if f"{k}_ci95" in one else "")
            for k in ("last_tenth", "greedy", "random")
        ]
        table.add_row(name, str(one.get("seeds", 1)), *cells)
    Console(width=110).print(table)
    name = options.rung if options.preset == "default" else f"{options.preset}-{options.rung}"
    out = options.out or HERE / "results" / f"learning-{name}.json"
    facts = {"rung": options.rung, "preset": options.preset, **row, **peer}
    write_json(out, facts | measured_on(devices.find(options.device)))


if __name__ == "__main__":
    main()
