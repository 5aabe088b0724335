"""Does a rung learn as well as sorrel, or as another rung? Several seeds of a preset, evaluated; the default for 1000
epochs.

    python benchmarks/learning.py --rung fused --seeds 32 --device gpu
    python benchmarks/learning.py --rung fused --preset demo --seeds 8
    python benchmarks/learning.py --rung torch --runs DIR DIR …    evaluates runs made by `xladder train`
    python benchmarks/learning.py --precisions --seeds 32 --device gpu    float32 beside bfloat16
    python benchmarks/learning.py --table                          what that found, into docs/benchmarks/speed.md

Prints, with 95 % intervals over seeds, the mean return of the last tenth and without exploration; for the default
settings beside what was measured with sorrel 1.6.0. Writes the curves as well; those of two precisions by tenths.
"""

import argparse
import json
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
PRECISIONS = ("float32", "bfloat16")
PRECISION = HERE / "results" / "learning-precision-gpu.json"
PAGE = HERE.parent / "docs" / "benchmarks" / "speed.md"
MARKS = ("<!-- precision -->", "<!-- end of precision -->")
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


def trained(folder: Path, options: argparse.Namespace, *words: str) -> Path:
    """A new run of the preset."""
    given = ["--rung", options.rung, "--preset", options.preset, "--seeds", str(options.seeds)]
    given += ["--device", options.device, "--eval-episodes", "0", *words]
    if command(["train", "treasurehunt", *given, "--out", str(folder)]):
        sys.exit("the run failed")
    return folder


def precisions(options: argparse.Namespace) -> None:
    """Train the same seeds in float32 and in bfloat16 and write both learning curves by tenths."""
    found = {}
    for precision in PRECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            words = ["--learner.precision", precision, *(["--epochs", str(options.epochs)] if options.epochs else [])]
            row = summarise([trained(Path(folder) / "run", options, *words)], options.episodes)
        tenths = [part.mean(1) for part in np.array_split(np.array(row.pop("curves")), 10, axis=1)]
        found[precision] = row | {"tenths": [part.round(2).tolist() for part in tenths]}
        print(f"{precision}: last tenth {row['last_tenth']:.1f} ± {row['last_tenth_ci95']:.1f}", flush=True)
    out = options.out or HERE / "results" / f"learning-precision-{options.device}.json"
    facts = {"rung": options.rung, "preset": options.preset} | measured_on(devices.find(options.device))
    write_json(out, {"precisions": found, **facts})


def table() -> str:
    """What precision does to learning, in Markdown."""
    if not PRECISION.exists():
        return "What bfloat16 does to the learning curve of the treasure hunt has not been measured yet.\n"
    measured = json.loads(PRECISION.read_text())
    exact, low = (measured["precisions"][name] for name in PRECISIONS)

    def text(values: object) -> str:
        mean, interval = mean_and_interval(np.array(values))
        return f"{mean:.1f} ± {interval:.1f}".replace("-", "−")

    lines = [
        f"What bfloat16 does to learning: {exact['seeds']} seeds of the treasure hunt in each precision, return of all",
        "agents with 95 % intervals over seeds; the difference is that of the same seeds.",
        f"`{measured['command']}`, {measured['device']}:",
        "",
        f"| epochs | {' | '.join(PRECISIONS)} | bfloat16 − float32 |",
        "|---|---|---|---|",
    ]
    edges = np.linspace(0, exact["epochs"], 11).astype(int)
    for begin, end, *values in zip(edges, edges[1:], exact["tenths"], low["tenths"], strict=False):
        difference = text(np.subtract(*values[::-1]))
        lines.append(f"| {begin:,} to {end:,} | {' | '.join(map(text, values))} | {difference} |")
    cells = [f"{one['greedy']:.1f} ± {one['greedy_ci95']:.1f}" for one in (exact, low)]
    lines.append(f"| then, without exploration | {' | '.join(cells)} | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rung", default="fused")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--runs", type=Path, nargs="+", help="evaluate these runs instead of training new ones")
    parser.add_argument("--precisions", action="store_true", help="train in float32 and in bfloat16 and compare")
    parser.add_argument("--epochs", type=int, help="with --precisions: if not as many as the preset says")
    parser.add_argument("--table", action="store_true", help="write what --precisions found into the docs")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/learning-[PRESET-]RUNG.json)")
    options = parser.parse_args()
    if options.table:
        before, rest = PAGE.read_text().split(MARKS[0])
        PAGE.write_text(f"{before}{MARKS[0]}\n{table()}{MARKS[1]}{rest.split(MARKS[1])[1]}")
        return
    if options.precisions:
        return precisions(options)
    with tempfile.TemporaryDirectory() as folder:
        runs = options.runs or [trained(Path(folder) / "run", options)]
        row = summarise(runs, options.episodes)
    peer = {"sorrel": SORREL} if options.preset == "default" else {}
    shown = Table(title=f"treasurehunt, preset {options.preset}, {row['epochs']} epochs: total return per epoch")
    for head in ("", "seeds", "last tenth", "without exploration", "random play"):
        shown.add_column(head)
    for name, one in {options.rung: row, **peer}.items():
        cells = [
            f"{one[k]:.1f}" + (f" ± {one[f'{k}_ci95']:.1f}" if f"{k}_ci95" in one else "")
            for k in ("last_tenth", "greedy", "random")
        ]
        shown.add_row(name, str(one.get("seeds", 1)), *cells)
    Console(width=110).print(shown)
    name = options.rung if options.preset == "default" else f"{options.preset}-{options.rung}"
    out = options.out or HERE / "results" / f"learning-{name}.json"
    facts = {"rung": options.rung, "preset": options.preset, **row, **peer}
    write_json(out, facts | measured_on(devices.find(options.device)))


if __name__ == "__main__":
    main()
