"""GFlowNet on bit sequences: rungs and gfnx in one run on one machine, and curves of the published metrics; JSON.

    python benchmarks/bits.py [--gfnx PYTHON]                          the CPU rows, with gfnx in its interpreter
    python benchmarks/bits.py --device gpu --gfnx PYTHON --curve 16    the GPU rows, and curves of 16 seeds

Speed is measured at gfnx's settings: 120 bits in words of 8 at any place, 60 modes, trajectory balance, batch 16, a
transformer of three layers of 64 (preset `gfnx`). Every row is its own process.

Curves: 50,000 iterations (800,000 trajectories) of the same settings, ours and gfnx's with the same modes and the same
test set. Points have the modes found so far and the Spearman correlation of log p and log R, for each seed.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from hypergrid import HERE, KEY, RATE
from rich.console import Console
from rounds import measured_on, peer_row, repeated

from xladder.errors import XladderError
from xladder.plans import plan
from xladder.runs.compare import measure_apart
from xladder.runs.disk import write_json

PEER = str(HERE / "gfnx_bits_peer.py")
RUNGS = ["torch", "hybrid", "sequential", "parallel", "fused"]


def rung_row(rung: str, device: str, iterations: int, seeds: int = 1) -> dict:
    facts = {"name": f"{rung} on {device}" + (f", {seeds} seeds" if seeds > 1 else ""), "iterations": iterations}
    # No evaluation within so few iterations: it samples, which takes longer than they do.
    changes = {"iterations": iterations, "evaluate_every": iterations + 1}
    try:
        found = measure_apart(plan("bits", rung, preset="gfnx", seeds=seeds, device=device, changes=changes))
    except XladderError as error:
        return facts | {"seeds": seeds, "error": str(error)}
    return facts | {"seeds": seeds} | found | {RATE: 1 / found[KEY]}


def gfnx_row(python: str, device: str, iterations: int) -> dict:
    options = ["--device", device, "--iterations", str(iterations), "--chunk", str(iterations // 5)]
    row = peer_row(f"gfnx on {device}", [python, PEER, *options])
    return {"iterations": iterations, "seeds": 1} | row | ({} if "error" in row else {KEY: 1 / row[RATE]})


def our_curve(seeds: int, device: str, iterations: int, every: int) -> dict:
    from xladder import devices
    from xladder.core.compiling import compiled
    from xladder.families.gflownet.evaluation import own_metrics
    from xladder.rungs import fused

    config = plan("bits", "fused", preset="gfnx", changes={"iterations": iterations}).config
    run = fused.start(config, list(range(seeds)), devices.find(device))
    points = []
    for done in range(every, iterations + 1, every):
        modes = run.advance(every)["modes_found"][:, -1]
        each = own_metrics(config, run.params(), done, compiled)["spearman"]
        points.append({"iterations": done, "spearman_each": each.tolist(), "modes_found_each": modes.tolist()})
        print(describe({"name": f"fused, {done:,} iterations", "points": points}), flush=True)
    return {"name": "fused", "world": config.world.headline(), "points": points}


def describe(curve: dict) -> str:
    """A curve's last point: means over seeds, and the extremes."""
    if "error" in curve:
        return f"{curve['name']}: {curve['error']}"
    last = curve["points"][-1]
    parts = []
    for name in ("spearman", "modes_found"):
        each = np.array(last[f"{name}_each"], float)
        parts.append(f"{name} {each.mean():.3f} (lowest {each.min():.3f}, highest {each.max():.3f})")
    return f"{curve['name']}: {', '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3, help="number of repetitions")
    parser.add_argument("--gfnx", help="a Python that has gfnx")
    parser.add_argument("--rungs", nargs="*", default=RUNGS, choices=RUNGS, help="only these are timed")
    parser.add_argument("--curve", type=int, default=0, help="seeds of the curves; 0: none")
    parser.add_argument("--curve-iterations", type=int, default=50_000)
    parser.add_argument("--curve-only", action="store_true", help="no timing")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/bits-DEVICE.json)")
    options = parser.parse_args()
    console, device = Console(width=120), options.device
    few, many = (20, 1000) if device == "gpu" else (5, 25)
    rows = [partial(rung_row, rung, device, few) for rung in RUNGS[:3]]
    rows += [partial(rung_row, rung, device, many) for rung in RUNGS[3:]]
    if device == "gpu":
        rows.append(partial(rung_row, "fused", device, many, seeds=16))
    if options.gfnx:
        rows.append(partial(gfnx_row, options.gfnx, device, many))
    rows = [] if options.curve_only else [row for row in rows if row.func is gfnx_row or row.args[0] in options.rungs]
    found = repeated(rows, options.rounds, KEY, console, lambda row: f", {row['iterations']} iterations")

    from xladder import devices

    found = {"rows": found, "rounds": options.rounds, **measured_on(devices.find(device))}
    if options.curve:
        every = max(1, options.curve_iterations // 5)
        curves = [our_curve(options.curve, device, options.curve_iterations, every)]
        if options.gfnx:
            words = ["--curve", str(options.curve), "--iterations", str(options.curve_iterations), "--chunk", "1"]
            peer = [options.gfnx, PEER, "--device", device, "--every", str(every), *words]
            curves.append(peer_row("gfnx", peer))
        for curve in curves:
            console.print(describe(curve), highlight=False)
        found["curves"] = curves
    write_json(options.out or HERE / "results" / f"bits-{device}.json", found)


if __name__ == "__main__":
    main()
