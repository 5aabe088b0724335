"""GFlowNet on the hypergrid: every rung, and other libraries, in one run on one machine; a table and JSON.

    python benchmarks/hypergrid.py                                      the CPU rows
    python benchmarks/hypergrid.py --device gpu                         the GPU rows
    python benchmarks/hypergrid.py --gfnx PYTHON --torchgfn PYTHON      with other libraries, each in its interpreter

The published settings: 20⁴ cells, reward easy, trajectory balance, batch 16, two layers of 256. Every row is its own
process (`xladder.runs.measure`). Trajectories grow as the policy learns, so the same first iterations are timed on all
rungs, 2,000 of them where they are fast; `benchmarks/hypergrid_learning.py` times whole runs.
"""

import argparse
import os
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

HERE = Path(__file__).parent
KEY, RATE = "seconds_per_iteration", "iterations_per_second"


def settings(iterations: int) -> dict:
    """Changes to the published settings, to time their first iterations."""
    # ε decays as in the whole run, not within these few iterations.
    learner = {"explore_until": 1.0, "epsilon_end": 0.1 * max(0.0, 1 - iterations / 30_000)}
    return {"iterations": iterations, "evaluate_every": iterations, "learner": learner}


def rung_row(rung: str, device: str, iterations: int, seeds: int = 1) -> dict:
    facts = {
        "name": f"{rung} on {device}" + (f", {seeds} seeds" if seeds > 1 else ""),
        "iterations": iterations,
        "seeds": seeds,
    }
    changes = settings(iterations)
    try:
        found = measure_apart(plan("hypergrid", rung, preset="published", seeds=seeds, device=device, changes=changes))
    except XladderError as error:
        return facts | {"error": str(error)}
    return facts | found | {"iterations_per_second": 1 / found[KEY]}


def peer(name: str, python: str, device: str, iterations: int) -> dict:
    script = str(HERE / f"{name}_peer.py")
    row = peer_row(f"{name} on {device}", [python, script, "--device", device, "--iterations", str(iterations)])
    return {"iterations": iterations, "seeds": 1} | row | ({} if "error" in row else {KEY: 1 / row[RATE]})


def limits(device: str) -> dict:
    """The arithmetic of one update at the rate of one large matrix product: packed steps, forward and backward."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    a, b = jnp.ones((3072, 250)), jnp.ones((250, 250))
    product = jax.jit(lambda a, b: a @ b)
    rate = 2 * a.size * 250 / min(times(lambda: product(a, b).block_until_ready(), 100))
    steps, batch = 9, 16  # mean length of trajectories in the first 2,000 iterations
    rows = steps * batch
    each = 2 * 256 * (256 + 9)
    return {
        "product_gflops": rate / 1e9,
        "sampling_limit_ms": 1000 * rows * each / rate,
        "update_limit_ms": 1000 * rows * 3 * each / rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3, help="number of repetitions")
    parser.add_argument("--gfnx", help="a Python that has gfnx")
    parser.add_argument("--torchgfn", help="a Python that has torchgfn")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/hypergrid-DEVICE.json)")
    options = parser.parse_args()
    console, device = Console(width=120), options.device
    rows = [partial(rung_row, rung, device, 300) for rung in ("torch", "compiled", "hybrid", "sequential")]
    rows += [partial(rung_row, rung, device, 2000) for rung in ("parallel", "fused")]
    rows.append(partial(rung_row, "fused", device, 2000, seeds=64 if device == "gpu" else 4))
    if options.gfnx:
        rows.append(partial(peer, "gfnx", options.gfnx, device, 2000))
    if options.torchgfn:
        rows.append(partial(peer, "torchgfn", options.torchgfn, device, 300))
    found = repeated(rows, options.rounds, KEY, console, lambda row: f", {row['iterations']} iterations")
    bounds = limits(device)
    show(found, bounds, console)

    from xladder import devices

    found = {"rows": found, "rounds": options.rounds, "limits": bounds, **measured_on(devices.find(device))}
    write_json(options.out or HERE / "results" / f"hypergrid-{device}.json", found)


def show(rows: list[dict], bounds: dict, console: Console) -> None:
    table = Table(title="hypergrid 20⁴, trajectory balance, batch 16: per iteration of one seed", title_justify="left")
    for head in ("", "iterations/s", "ms", "sampling ms", "update ms", "× PyTorch", "compile s", "peak MB"):
        table.add_column(head, justify="right" if head else "left")
    pytorch = [row[KEY] for row in rows if row.get("rung") in ("torch", "compiled") and KEY in row]
    reference = min(pytorch, default=np.nan)  # ratios are to the faster of the two
    for row in rows:
        if "error" in row:
            table.add_row(row["name"], row["error"])
            continue
        parts = [
            f"{row[k] * 1000:.3f}" if row.get(k) is not None else "" for k in ("sampling_seconds", "update_seconds")
        ]
        table.add_row(
            row["name"],
            f"{1 / row[KEY]:.0f}",
            f"{row[KEY] * 1000:.3f}",
            *parts,
            f"{reference / row[KEY]:.1f}",
            f"{row.get('compile_seconds') or 0:.1f}",
            f"{row.get('peak_memory_mb', 0):.0f}",
        )
    console.print(table)
    for name, value in bounds.items():
        console.print(f"{name} {value:.3f}", highlight=False)


if __name__ == "__main__":
    main()
