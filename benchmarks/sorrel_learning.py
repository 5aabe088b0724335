"""Learning curves of sorrel itself beside ours, at the same settings; prints a table, writes JSON and a picture.

    python benchmarks/sorrel_learning.py --worlds treasurehunt --preset default --seeds 8 --epochs 1000
    python benchmarks/sorrel_learning.py --worlds tag iowa --preset sorrel --device gpu
    python benchmarks/sorrel_learning.py --join a.json b.json      one picture of several files, nothing is trained

The picture of results/sorrel-learning.json is docs/images/sorrel-learning.png, of another file one beside it.

Needs Python 3.12 or newer with sorrel 1.6. Every seed of sorrel is a process of its own with `--threads` of PyTorch;
ours train at the same time as one population on `fused`. Afterwards all agents are scored without exploration. Who has
not finished after `--limit` seconds stops there, and curves are compared as far as all seeds of a world have come.
"""

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pictures
from rich.console import Console
from rich.table import Table
from rounds import measured_on

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "sorrel-learning.json"
PICTURE = HERE.parent / "docs" / "images" / "sorrel-learning.png"
WORLDS = ("treasurehunt", "tag", "iowa", "cleanup")
SHOWN = 40  # points of a curve


def settings(world: str, preset: str, epochs: int):
    from xladder.plans import plan

    return plan(world, "fused", preset=preset, changes={"epochs": epochs}).config


def theirs(world: str, preset: str, seed: int, epochs: int, episodes: int, threads: int, end: float) -> dict:
    """One seed of sorrel, in a process of its own."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import no_notebook  # noqa: F401
    import torch

    from xladder.sorrel.examples import example_env, run_epoch, score

    torch.set_num_threads(threads)
    env = example_env(settings(world, preset, epochs), seed=seed)
    curve, begun = [], time.time()
    while len(curve) < epochs and time.time() < end:
        curve.append(run_epoch(env, len(curve)).reward)
    seconds = (time.time() - begun) / max(1, len(curve))
    greedy = score(env, episodes, seed)
    chance = score(env, episodes, seed, epsilon=1.0)
    return {
        "curve": curve,
        "greedy": float(greedy.mean()),
        "random": [float(x) for x in chance],
        "seconds_per_epoch": seconds,
    }


def ours(world: str, preset: str, seeds: int, epochs: int, episodes: int, device: str) -> dict:
    """All seeds of ours, as one population."""
    import xladder
    from xladder.core.compiling import compiled
    from xladder.families.multi_agent.evaluation import evaluate

    config = settings(world, preset, epochs)
    begun = time.time()
    result = xladder.train(world, rung="fused", seeds=seeds, device=device, config=config)
    seconds = (time.time() - begun) / epochs
    found = evaluate(config, result.params, episodes, 0, compiled)
    return {
        "curves": result.metrics["return"].tolist(),
        "greedy": [float(x) for x in found.returns.sum(-1).mean(1)],
        "random": [float(x) for x in found.random[0].sum(-1)],
        "seconds_per_epoch_of_all_seeds": seconds,
    }


def gather(parts: list[dict]) -> dict:
    """The seeds of sorrel that have finished, cut to the shortest curve."""
    length = min(len(part["curve"]) for part in parts)
    return {
        "curves": [part["curve"][:length] for part in parts],
        "greedy": [part["greedy"] for part in parts],
        "random": [x for part in parts for x in part["random"]],
        "seconds_per_epoch": float(np.median([part["seconds_per_epoch"] for part in parts])),
    }


def summarise(side: dict, epochs: int) -> dict:
    """Means with 95 % intervals: over seeds, and for random play over epochs."""
    from xladder.core.statistics import mean_and_interval

    last = [np.mean(curve[:epochs][-max(1, epochs // 10) :]) for curve in side["curves"]]
    found = {"last_tenth": last, "greedy": side["greedy"], "random": side["random"]}
    rows = {name: mean_and_interval(np.array(values)) for name, values in found.items()}
    return {name: [float(mean), float(interval)] for name, (mean, interval) in rows.items()} | {"seeds": len(last)}


def show(found: dict, console: Console) -> None:
    table = Table(title="total return per epoch, 95 % intervals over seeds", title_justify="left")
    for head in ("world", "preset", "epochs", "", "seeds", "last tenth of training", "greedy", "random play"):
        table.add_column(head)
    for entry in found["entries"]:
        for name in ("sorrel", "fused"):
            if name not in entry["summary"]:
                continue
            row = entry["summary"][name]
            cells = [f"{row[key][0]:.1f} ± {row[key][1]:.1f}" for key in ("last_tenth", "greedy", "random")]
            table.add_row(entry["world"], entry["preset"], str(entry["epochs"]), name, str(row["seeds"]), *cells)
    console.print(table)


def draw(found: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from xladder.core.statistics import mean_and_interval

    entries = found["entries"]
    figure, axes = plt.subplots(1, len(entries), figsize=(4.4 * len(entries), 3.2), squeeze=False, layout="constrained")
    for axis, entry in zip(axes[0], entries, strict=True):
        size = max(1, entry["epochs"] // SHOWN)
        for name, colour in (("sorrel", "#d95f02"), ("fused", "#1b6ca8")):
            if name not in entry:
                continue
            curves = np.array([curve[: entry["epochs"]] for curve in entry[name]["curves"]])
            blocks = curves[:, : len(curves[0]) // size * size].reshape(len(curves), -1, size).mean(-1)
            mean, interval = mean_and_interval(blocks)
            at = size * (0.5 + np.arange(blocks.shape[1]))
            axis.plot(at, mean, color=colour, label=f"{name}, {len(curves)} seeds")
            axis.fill_between(at, mean - interval, mean + interval, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(f"{entry['world']}, settings `{entry['preset']}`", fontsize=10)
        axis.set_xlabel("epoch")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("return of all agents")
    axes[0][0].legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=["tag", "iowa", "cleanup"])
    parser.add_argument("--preset", default="sorrel")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--episodes", type=int, default=20, help="of each seed, without exploration")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="of ours")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes for sorrel")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, for each of them")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which sorrel stops training")
    parser.add_argument("--join", type=Path, nargs="+", help="draw these files instead")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    console = Console(width=120)

    import json

    from xladder import devices
    from xladder.runs.disk import write_json

    if options.join:
        files = [json.loads(path.read_text()) for path in options.join]
        found = files[0] | {"entries": [entry for file in files for entry in file["entries"]]}
        found["command"] = "; ".join(file["command"] for file in files)
    else:
        found = measured_on(devices.find(options.device)) | {"entries": []}
        entries = {
            world: {"world": world, "preset": options.preset, "epochs": options.epochs, "summary": {}}
            for world in options.worlds
        }
        found["entries"] = list(entries.values())
        end = time.time() + options.limit
        sizes = (options.epochs, options.episodes)
        with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
            jobs = {
                pool.submit(theirs, world, options.preset, seed, *sizes, options.threads, end): (world, seed)
                for seed in range(options.seeds)
                for world in options.worlds
            }
            for world in options.worlds:
                side = ours(world, options.preset, options.seeds, *sizes, options.device)
                entries[world] |= {"fused": side}
                entries[world]["summary"]["fused"] = summarise(side, options.epochs)
                write_json(options.out, found)
                console.print(f"{world}: ours has finished", highlight=False)
            parts: dict[str, list[dict]] = {world: [] for world in options.worlds}
            for job in as_completed(jobs):
                world, seed = jobs[job]
                parts[world].append(job.result())
                entry, side = entries[world], gather(parts[world])
                entry["sorrel"], entry["epochs"] = side, len(side["curves"][0])
                for name in ("sorrel", "fused"):
                    entry["summary"][name] = summarise(entry[name], entry["epochs"])
                write_json(options.out, found)
                done = len(parts[world][-1]["curve"])
                console.print(f"{world}: seed {seed} of sorrel has finished {done} epochs", highlight=False)
    write_json(options.out, found)
    show(found, console)
    if options.out == RESULTS:
        draw(found, PICTURE)
        pictures.note(PICTURE.name)
    else:
        draw(found, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
