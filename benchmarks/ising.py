"""GFlowNet on the Ising model: rungs and gfnx in one run on one machine, and curves of exact total variation; JSON.

    python benchmarks/ising.py [--gfnx PYTHON]                          the CPU rows, with gfnx in its interpreter
    python benchmarks/ising.py --device gpu --gfnx PYTHON --curve 16    the GPU rows, and curves of 16 seeds

Speed is measured at gfnx's settings: 10 × 10 spins in any order, σ = 0.1, trajectory balance, batch 256, four layers
of 256 (preset `gfnx`). Couplings are known in all rows; see `gfnx_ising_peer.py`. Every row is its own process.

Curves: 3 × 3 spins in any order at J / T = 0.4, ours and gfnx's with the same network, batch and rates, and 4 × 4 spins
row by row at our defaults. Every point is an exact total variation over all lattices, for each seed.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from hypergrid import HERE, KEY, RATE
from rich.console import Console
from rich.table import Table
from rounds import measured_on, peer_row, repeated

from xladder.errors import XladderError
from xladder.plans import plan
from xladder.runs.compare import measure_apart
from xladder.runs.disk import write_json

CURVE = {"side": 3, "strength": 0.4, "batch": 16, "rate": 1e-3, "rate-logz": 0.1}
CURVE_ITERATIONS, EVERY = 5000, 250
RUNGS = ["torch", "sequential", "parallel", "fused"]


def rung_row(rung: str, device: str, iterations: int, seeds: int = 1) -> dict:
    facts = {"name": f"{rung} on {device}" + (f", {seeds} seeds" if seeds > 1 else ""), "iterations": iterations}
    # An evaluation of this size takes longer than the iterations that are timed.
    changes = {"iterations": iterations, "evaluate_every": 10 * iterations}
    try:
        found = measure_apart(plan("ising", rung, preset="gfnx", seeds=seeds, device=device, changes=changes))
    except XladderError as error:
        return facts | {"seeds": seeds, "error": str(error)}
    return facts | {"seeds": seeds} | found | {RATE: 1 / found[KEY]}


def gfnx_row(python: str, device: str, iterations: int, chunk: int, *more: str) -> dict:
    script = str(HERE / "gfnx_ising_peer.py")
    options = ["--device", device, "--iterations", str(iterations), "--chunk", str(chunk)]
    name = f"gfnx on {device}" + (", one pass" if more else "")
    row = peer_row(name, [python, script, *options, *more])
    return {"iterations": iterations, "seeds": 1} | row | ({} if "error" in row else {KEY: 1 / row[RATE]})


def our_curve(name: str, changes: dict, seeds: int, device: str, iterations: int) -> dict:
    from xladder import devices
    from xladder.core.compiling import compiled
    from xladder.families.gflownet.evaluation import measure
    from xladder.rungs import fused

    config = plan("ising", "fused", changes=changes | {"iterations": iterations, "evaluation": "exact"}).config
    run = fused.start(config, list(range(seeds)), devices.find(device))
    points = []
    for done in range(EVERY, iterations + 1, EVERY):
        run.advance(EVERY)
        each = measure(config, run.params(), done, compiled).columns["tv"]
        points.append({"iterations": done, "tv": float(each.mean()), "tv_each": each.tolist()})
    return {"name": name, "batch": config.learner.batch_size, "world": config.world.headline(), "points": points}


def curves(seeds: int, device: str, gfnx: str | None, iterations: int) -> list[dict]:
    world = {"side": CURVE["side"], "coupling": CURVE["strength"], "temperature": 1.0, "order": "any"}
    learner = {"batch_size": CURVE["batch"], "lr": CURVE["rate"], "log_z_lr": CURVE["rate-logz"], "layers": 4}
    found = [
        our_curve("3x3, any order", {"world": world, "learner": learner | {"epsilon": 0.0}}, seeds, device, iterations),
        our_curve("4x4, row by row", {}, seeds, device, iterations),
    ]
    if gfnx:
        flags = [word for name, value in CURVE.items() for word in (f"--{name}", str(value))]
        more = ["--device", device, "--curve", str(seeds), "--every", str(EVERY), "--iterations", str(iterations)]
        found.append(peer_row("gfnx, 3x3, any order", [gfnx, str(HERE / "gfnx_ising_peer.py"), *flags, *more]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3, help="number of repetitions; 0: curves only")
    parser.add_argument("--gfnx", help="a Python that has gfnx")
    parser.add_argument("--rungs", nargs="*", default=RUNGS, choices=RUNGS, help="only these are timed")
    parser.add_argument("--curve", type=int, default=0, help="seeds of the curves; 0: none")
    parser.add_argument("--curve-iterations", type=int, default=CURVE_ITERATIONS)
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/ising-DEVICE.json)")
    options = parser.parse_args()
    console, device = Console(width=120), options.device
    few, many = (20, 400) if device == "gpu" else (2, 10)
    rows = [partial(rung_row, rung, device, few) for rung in RUNGS[:2]]
    rows += [partial(rung_row, rung, device, many) for rung in RUNGS[2:]]
    if device == "gpu":
        rows.append(partial(rung_row, "fused", device, many, seeds=8))
    if options.gfnx:
        rows.append(partial(gfnx_row, options.gfnx, device, many, many // 5))
        rows.append(partial(gfnx_row, options.gfnx, device, many, many // 5, "--once"))
    rows = [row for row in rows if row.func is gfnx_row or row.args[0] in options.rungs] if options.rounds else []
    found = repeated(rows, options.rounds, KEY, console, lambda row: f", {row['iterations']} iterations")
    show(found, console)

    from xladder import devices

    found = {"rows": found, "rounds": options.rounds, **measured_on(devices.find(device))}
    if options.curve:
        found["curves"] = curves(options.curve, device, options.gfnx, options.curve_iterations)
        for curve in found["curves"]:
            console.print(curve.get("error") or f"{curve['name']}: {last(curve)}", highlight=False)
    write_json(options.out or HERE / "results" / f"ising-{device}.json", found)


def last(curve: dict) -> str:
    point = curve["points"][-1]
    spread = f"{min(point['tv_each']):.4f} … {max(point['tv_each']):.4f}"
    return f"TV {point['tv']:.4f} ({spread}) after {point['iterations']} iterations"


def show(rows: list[dict], console: Console) -> None:
    table = Table(title="Ising 10 × 10, trajectory balance, batch 256: per iteration of one seed", title_justify="left")
    for head in ("", "iterations/s", "ms", "× gfnx", "compile s", "peak MB"):
        table.add_column(head, justify="right" if head else "left")
    reference = next((row[KEY] for row in rows if row["name"].startswith("gfnx") and KEY in row), np.nan)
    for row in rows:
        if "error" in row:
            table.add_row(row["name"], row["error"])
            continue
        rest = f"{row.get('compile_seconds') or 0:.1f}", f"{row.get('peak_memory_mb', 0):.0f}"
        table.add_row(
            row["name"], f"{1 / row[KEY]:.2f}", f"{row[KEY] * 1000:.2f}", f"{reference / row[KEY]:.2f}", *rest
        )
    console.print(table)


if __name__ == "__main__":
    main()
