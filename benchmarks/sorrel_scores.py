"""Do agents that were trained here score the same in sorrel itself? Trains, exports, and scores them in both.

    python benchmarks/sorrel_scores.py --device gpu
    python benchmarks/sorrel_scores.py --worlds tag --epochs 300 --episodes 100

Needs Python 3.12 or newer with sorrel 1.6. Agents are trained on `fused` with the preset `demo`, exported with
`export --to sorrel`, and loaded into the models of sorrel's own examples. Both sides play without exploration and at
random; intervals are 95 % over episodes. sorrel's episodes are spread over processes and are played while the next
world's agents are trained. The file is written anew for every world that is finished. On a GPU with 16 cores
`--epochs 300 --episodes 96` takes a few minutes.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rounds import measured_on

HERE = Path(__file__).parent
WORLDS = ("treasurehunt", "tag", "iowa", "cleanup")


def theirs(run: Path, files: list[Path], episodes: int, seed: int, epsilon: float) -> np.ndarray:
    """Some episodes in sorrel, in a process of its own."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import no_notebook  # noqa: F401
    import torch

    from xladder.runs import loading
    from xladder.sorrel.examples import example_env, load_agents, score

    torch.set_num_threads(1)
    env = example_env(loading.load(run).config)
    load_agents(env, files)
    return score(env, episodes, seed, epsilon)


def measure(world: str, options, folder: Path, pool: ProcessPoolExecutor) -> Callable[[], dict]:
    """Train and score here, and begin to score in sorrel. Returns what waits for the latter and makes the row."""
    from xladder.cli.main import main as xladder
    from xladder.core.compiling import compiled
    from xladder.families.multi_agent.evaluation import evaluate
    from xladder.runs import loading

    run, agents = folder / world, folder / f"{world}-agents"
    length = ["--epochs", str(options.epochs)] if options.epochs else []
    words = ["train", world, "--preset", "demo", "--rung", "fused", "--device", options.device, *length]
    if xladder([*words, "--eval-episodes", "0", "--out", str(run)]):
        sys.exit("the run failed")
    if xladder(["export", str(run), "--to", "sorrel", "--out", str(agents)]):
        sys.exit("the export failed")
    loaded = loading.load(run)
    files = [agents / f"seed0-agent{i}.pkl" for i in range(loaded.config.world.num_agents)]
    each = -(-options.episodes // options.workers)
    jobs = {
        name: [pool.submit(theirs, run, files, each, seed, epsilon) for seed in range(options.workers)]
        for name, epsilon in (("greedy", 0.0), ("random", 1.0))
    }
    here = evaluate(loaded.config, loaded.params, options.episodes, 0, compiled)
    found = {("here", "greedy"): here.returns[0].sum(-1), ("here", "random"): here.random[0].sum(-1)}

    def row() -> dict:
        for name, parts in jobs.items():
            found["sorrel", name] = np.concatenate([part.result() for part in parts])
        return {"world": world, "epochs": loaded.config.epochs, "agents": len(files)} | summary(found)

    return row


def summary(found: dict[tuple[str, str], np.ndarray]) -> dict:
    from xladder.core.statistics import mean_and_interval

    row: dict = {}
    for (side, name), returns in found.items():
        mean, interval = mean_and_interval(returns)
        row |= {f"{side}_{name}": [float(mean), float(interval)], f"{side}_episodes": len(returns)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--epochs", type=int, default=0, help="instead of the preset's")
    parser.add_argument("--episodes", type=int, default=160)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="of the training")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "sorrel-scores.json")
    options = parser.parse_args()

    from xladder import devices
    from xladder.runs.disk import write_json

    found = measured_on(devices.find(options.device)) | {"rows": []}
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.workers, spawn) as pool:
        waiting: list[Callable[[], dict]] = []
        for world in [*options.worlds, None]:  # a world's row is finished while the next one's agents are trained
            begun = [measure(world, options, Path(folder), pool)] if world else []
            for row in waiting:
                found["rows"].append(row())
                write_json(options.out, found)
            waiting = begun
    table = Table(title="return of all agents per epoch, 95 % over episodes", title_justify="left")
    for head in ("world", "epochs", "greedy here", "greedy in sorrel", "random here", "random in sorrel"):
        table.add_column(head)
    for row in found["rows"]:
        cells = [row[key] for key in ("here_greedy", "sorrel_greedy", "here_random", "sorrel_random")]
        table.add_row(row["world"], str(row["epochs"]), *(f"{mean:.1f} ± {interval:.1f}" for mean, interval in cells))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
