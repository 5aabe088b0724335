"""Treasure hunt on every rung, in one run on one machine; prints a table and writes JSON.

    python benchmarks/treasurehunt.py                          the CPU rows
    python benchmarks/treasurehunt.py --device gpu             the GPU rows, with PyTorch on CPU and GPU
    python benchmarks/treasurehunt.py --sorrel /path/python    with sorrel for comparison, in that interpreter

Every row is its own process (`xladder.runs.measure`): median time per epoch after learning has started. Ratios are to
the fastest PyTorch, be it `torch` or `compiled`, on CPU or GPU. Random actions cost PyTorch no forward pass, so the
cost of an epoch depends on ε: it is fixed at 0.63, its mean over the 1000 epochs of the default settings, and at 0,
where every action is computed. `together`, because agents that observe in turn cannot act in parallel.
"""

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rounds import measured_on, peer_row, repeated, times

from xladder.errors import XladderError
from xladder.plans import plan
from xladder.runs.compare import measure_apart
from xladder.runs.disk import write_json

EPSILON = 0.63
HERE = Path(__file__).parent


def settings(
    batch: int, epochs: int, observe: str = "together", epsilon: float = EPSILON, precision: str = "float32"
) -> dict:
    return {
        "epochs": epochs,
        "world": {"observe": observe},
        "learner": {"batch_size": batch, "epsilon": epsilon, "epsilon_decay": 0.0, "precision": precision},
    }


def rung_row(
    rung: str,
    batch: int,
    device: str,
    epochs: int,
    seeds: int = 1,
    observe: str = "together",
    epsilon: float = EPSILON,
    precision: str = "float32",
) -> dict:
    halved = f", {precision}" if precision != "float32" else ""
    facts = {
        "name": f"{rung} on {device}" + (f", {seeds} seeds" if seeds > 1 else "") + halved,
        "batch": batch,
        "observe": observe,
        "epsilon": epsilon,
        "seeds": seeds,
    }
    try:
        changes = settings(batch, epochs, observe, epsilon, precision)
        return facts | measure_apart(plan("treasurehunt", rung, seeds=seeds, device=device, changes=changes))
    except XladderError as error:
        return facts | {"error": str(error)}


def sorrel_row(python: str, batch: int, device: str, epsilon: float = EPSILON) -> dict:
    command = [
        python,
        str(HERE / "sorrel_peer.py"),
        "--batch",
        str(batch),
        "--epsilon",
        str(epsilon),
        "--device",
        device,
    ]
    facts = {"batch": batch, "observe": "in_turn", "epsilon": epsilon, "seeds": 1}
    return facts | peer_row(f"sorrel on {device}", command)


def limits(device: str, batches: list[int]) -> dict:
    """A bound for this machine: the arithmetic of one epoch's learning at the rate of one large matrix product."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    from xladder.families.multi_agent.program import Program

    many = 1 if device == "cpu" else 640  # agents in parallel: 128 seeds of 5
    a, b = jnp.ones((many, 3072, 250)), jnp.ones((many, 250, 250))
    product = jax.jit(lambda a, b: a @ b)
    rate = 2 * a.size * 250 / min(times(lambda: product(a, b).block_until_ready(), 100))  # a bound: the best seen
    found = {"product_gflops": rate / 1e9}
    for batch in batches:
        config = plan("treasurehunt", "fused", changes=settings(batch, 1)).config
        found[f"learning_limit_ms_batch_{batch}"] = 1000 * learning_flops(config) / rate
    program = Program(config)
    run = jax.jit(program.init)(0)
    before = jnp.zeros((config.world.num_agents, config.learner.n_frames - 1, program.learner.cells), jnp.int8)
    play = jax.jit(lambda run, tick: program.rollout(program.draw_rollout(run.key, tick), run.agents, before))
    found["acting_ms"] = 1000 * float(np.median(times(lambda: jax.block_until_ready(play(run, 1)), 20)))
    return found


def learning_flops(config) -> float:
    """Multiply-adds, twice, of one update per agent: three forward passes and one backward."""
    c, w = config.learner, config.world
    rows, inputs = c.batch_size * c.quantiles, c.n_frames * 6 * (2 * w.radius + 1) ** 2
    hidden = rows * c.width * (c.width + 5)
    first, cosines = c.batch_size * inputs * c.width, rows * c.cosines * c.width
    forward = hidden + first + cosines
    backward = 2 * hidden + first + cosines  # no gradient with respect to the inputs
    return 2.0 * w.num_agents * (3 * forward + backward)


def cold_and_cached_compile(device: str) -> dict:
    """Compile time of `fused` in seconds, without and with the compilation cache."""
    code = (
        "import sys, jax; jax.config.update('jax_compilation_cache_dir', sys.argv[1]);"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0);"
        "from xladder import devices; from xladder.rungs import fused; from xladder.plans import plan;"
        "print(fused.start(plan('treasurehunt', 'fused').config, [0], devices.find(sys.argv[2])).compile_seconds)"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        times = []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code, folder, device], capture_output=True, text=True, check=True
            )
            times.append(float(done.stdout.strip().splitlines()[-1]))
    return {"compile_cold_s": times[0], "compile_cached_s": times[1]}


def cpu_rows(epochs: int) -> list[partial]:
    rungs = ("torch", "compiled", "sequential", "parallel", "fused")
    rows = [partial(rung_row, rung, batch, "cpu", epochs) for batch in (256, 64) for rung in rungs]
    for batch in (256, 64):
        rows += [partial(rung_row, rung, batch, "cpu", epochs, epsilon=0.0) for rung in ("torch", "compiled", "fused")]
    rows.append(partial(rung_row, "fused", 256, "cpu", epochs, observe="in_turn"))
    rows.append(partial(rung_row, "fused", 64, "cpu", epochs, seeds=4))
    return rows


def gpu_rows(epochs: int) -> list[partial]:
    rows = [partial(rung_row, "torch", 256, "cpu", epochs)]
    for rung, times_longer in {"torch": 1, "compiled": 5, "sequential": 1, "parallel": 20, "fused": 20}.items():
        rows.append(partial(rung_row, rung, 256, "gpu", times_longer * epochs))
    rows.append(partial(rung_row, "fused", 256, "gpu", 20 * epochs, observe="in_turn"))
    return rows + [
        partial(rung_row, "fused", 256, "gpu", 2 * epochs, seeds=seeds, precision=precision)
        for seeds in (128, 512)
        for precision in ("float32", "bfloat16")
    ]


def sorrel_rows(python: str, device: str) -> list[partial]:
    if device == "gpu":
        return [partial(sorrel_row, python, 256, where) for where in ("cuda", "cpu")]
    return [partial(sorrel_row, python, batch, "cpu", e) for batch in (256, 64) for e in (EPSILON, 0.0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="number of repetitions")
    parser.add_argument("--sorrel", help="a Python that has sorrel")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/treasurehunt-DEVICE.json)")
    options = parser.parse_args()
    console = Console(width=120)
    rows = (cpu_rows if options.device == "cpu" else gpu_rows)(options.epochs)
    rows += sorrel_rows(options.sorrel, options.device) if options.sorrel else []
    rows = repeated(
        rows, options.rounds, "seconds_per_epoch", console, lambda row: f", batch {row['batch']}, ε {row['epsilon']}"
    )
    bounds = limits(options.device, [256, 64]) | cold_and_cached_compile(options.device)
    show(rows, bounds, console)

    from xladder import devices

    found = {"rows": rows, "rounds": options.rounds, "limits": bounds, **measured_on(devices.find(options.device))}
    write_json(options.out or HERE / "results" / f"treasurehunt-{options.device}.json", found)


def show(rows: list[dict], bounds: dict, console: Console) -> None:
    table = Table(title="treasurehunt: time per epoch (of one seed)", title_justify="left")
    for head in ("", "batch", "observe", "ε", "ms per epoch", "× PyTorch", "compile s", "peak MB"):
        table.add_column(head, justify="left" if head in ("", "observe") else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["name"], str(row["batch"]), row["observe"], f"{row['epsilon']:.2f}", row["error"])
            continue
        same = [r for r in rows if (r["batch"], r["epsilon"]) == (row["batch"], row["epsilon"])]
        pytorch = [r["seconds_per_epoch"] for r in same if r.get("rung") in ("torch", "compiled")]
        table.add_row(
            row["name"],
            str(row["batch"]),
            row["observe"],
            f"{row['epsilon']:.2f}",
            f"{row['seconds_per_epoch'] * 1000:.3f}",
            f"{min(pytorch) / row['seconds_per_epoch']:.2f}" if pytorch else "",
            f"{row.get('compile_seconds', 0):.1f}",
            f"{row.get('peak_memory_mb', 0):.0f}",
        )
    console.print(table)
    for name, value in bounds.items():
        console.print(f"{name} {value:.2f}", highlight=False)


if __name__ == "__main__":
    main()
