"""Sorrel's worlds on `fused` beside sorrel itself, in one run on one machine; prints a table and writes JSON.

    python benchmarks/sorrel_worlds.py --device gpu
    python benchmarks/sorrel_worlds.py --worlds tag cleanup --seeds 1

Needs Python 3.12 or newer with sorrel 1.6. Settings are those of its examples, and both sides learn once per epoch.
`fused` trains one seed, and a population: its time is per epoch of one seed. sorrel runs on the CPU, as shipped,
with several numbers of PyTorch threads of which the fastest counts. `--profile` counts the kernels of an epoch.

The JSON is written after every row, so what was measured is kept if a run is ended early.
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path

import no_notebook  # noqa: F401
import numpy as np
from rich.console import Console
from rich.table import Table
from rounds import measured_on, traced_kernels

from xladder import devices
from xladder.plans import plan
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
WORLDS = ("treasurehunt", "tag", "iowa", "cleanup")


def settings(world: str):
    return plan(world, "fused", preset="sorrel").config


def ours(world: str, seeds: int, device, epochs: int, profile: bool) -> dict:
    import jax

    from xladder.rungs import fused

    jax.config.update("jax_enable_compilation_cache", False)
    config = settings(world)
    begun = time.perf_counter()
    run = fused.start(config, list(range(seeds)), device)
    started = time.perf_counter() - begun
    config_turns = config.world.max_turns
    filled = -(-2 * config.learner.batch_size // config_turns) + 2
    run.advance(filled)  # until there are batches to learn from
    rounds = []
    for _ in range(3):
        begun = time.perf_counter()
        run.advance(epochs)
        rounds.append((time.perf_counter() - begun) / epochs)
    acts = config_turns * config.world.num_agents
    whole = float(np.median(rounds))
    row = {
        "name": "fused",
        "seeds": seeds,
        "ms_per_epoch": 1000 * whole / seeds,
        "ms_per_epoch_of_all_seeds": 1000 * whole,
        "us_per_action": 1e6 * whole / acts,
        "compile_s": run.compile_seconds,
        "start_s": started,
        "epochs": epochs,
        "rounds_ms": [1000 * x for x in rounds],
    }
    phases = run.phases()
    row |= {f"ms_{name}": 1000 * seconds for name, seconds in phases.items()}
    return row | (kernels(run, acts) if profile else {})


def kernels(run, acts: int) -> dict:
    """The kernels of one epoch, counted and timed in a trace of two."""
    found = traced_kernels(lambda: run.advance(2))
    total = sum(count for count, _ in found.values())
    slowest = sorted(found.items(), key=lambda item: -item[1][1])[:25]
    return {
        "kernels_per_epoch": total / 2,
        "kernels_per_action": total / 2 / acts,
        "busy_ms_per_epoch": sum(us for _, us in found.values()) / 2000,
        "slowest_kernels": [
            {"name": name[:90], "ms_per_epoch": us / 2000, "per_epoch": count / 2, "us_each": us / count}
            for name, (count, us) in slowest
        ],
    }


def theirs(world: str, threads: int, epochs: int) -> dict:
    import torch

    from xladder.sorrel.examples import example_env, run_epoch

    torch.set_num_threads(threads)
    env, config = example_env(settings(world)), settings(world)
    filled = -(-2 * config.learner.batch_size // config.world.max_turns) + 1
    for number in range(filled):
        run_epoch(env, number)
    times = []
    for number in range(epochs):
        begun = time.perf_counter()
        run_epoch(env, filled + number)
        times.append(time.perf_counter() - begun)
    return {"name": "sorrel", "threads": threads, "seeds": 1, "ms_per_epoch": 1000 * float(np.median(times))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--epochs", type=int, default=50, help="of `fused`, in each of three rounds")
    parser.add_argument("--sorrel-epochs", type=int, default=7, help="of sorrel; 0 leaves it out")
    parser.add_argument("--threads", nargs="*", type=int, default=sorted({1, min(4, devices.cores())}))
    parser.add_argument("--profile", action="store_true", help="count the kernels of an epoch (on a GPU)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    console = Console(width=120)
    device = devices.find(options.device)
    out = options.out or HERE / "results" / f"sorrel-worlds-{options.device}.json"
    found = measured_on(device) | {"load_average": os.getloadavg(), "rows": []}
    for world in options.worlds:
        rows = []
        counts = options.threads if options.sorrel_epochs else []
        calls = [partial(theirs, world, n, options.sorrel_epochs) for n in counts]
        calls += [partial(ours, world, n, device, options.epochs, options.profile) for n in options.seeds]
        for call in calls:
            row = {"world": world, **call()}
            peers = [r["ms_per_epoch"] for r in rows if r["name"] == "sorrel"]
            if row["name"] == "fused" and peers:
                row["times_faster"] = min(peers) / row["ms_per_epoch"]
            rows.append(row)
            found["rows"].append(row)
            write_json(out, found)
            which = f"{row['threads']} threads" if row["name"] == "sorrel" else f"{row['seeds']} seeds"
            compiled = f", compiled in {row['compile_s']:.1f} s" if "compile_s" in row else ""
            console.print(f"{world}, {row['name']}, {which}: {row['ms_per_epoch']:.2f} ms{compiled}", highlight=False)
    show(found["rows"], console)


def show(rows: list[dict], console: Console) -> None:
    table = Table(title="ms per epoch of one seed, settings of sorrel's examples", title_justify="left")
    for head in ("world", "", "seeds", "ms", "× sorrel", "acting", "learning", "µs per action", "compile s"):
        table.add_column(head, justify="left" if head in ("world", "") else "right")
    for row in rows:
        cells = [row["world"], row["name"], str(row["seeds"]), f"{row['ms_per_epoch']:.2f}"]
        if row["name"] == "sorrel":
            cells[1] = f"sorrel, {row['threads']} threads"
        else:
            cells += [
                f"{row['times_faster']:.1f}" if "times_faster" in row else "",
                *(f"{row[key]:.2f}" for key in ("ms_sampling", "ms_update", "us_per_action")),
                f"{row['compile_s']:.1f}",
            ]
        table.add_row(*cells)
    console.print(table)
    for row in rows:
        if "kernels_per_action" in row:
            console.print(
                f"{row['world']}, {row['seeds']} seeds: {row['kernels_per_epoch']:.0f} kernels per epoch, "
                f"{row['kernels_per_action']:.1f} per action; {row['busy_ms_per_epoch']:.2f} ms busy",
                highlight=False,
            )
            for one in row["slowest_kernels"][:15]:
                times = f"{one['ms_per_epoch']:8.3f} ms {one['per_epoch']:8.0f} × {one['us_each']:6.1f} µs"
                console.print(f"   {times}  {one['name']}", highlight=False)


if __name__ == "__main__":
    main()
