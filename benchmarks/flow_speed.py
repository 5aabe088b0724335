"""GFlowNets on a GPU beside gfnx, in one run: rates of one seed and of a population, and the kernels that bound them.

    python benchmarks/flow_speed.py --device gpu --gfnx PYTHON            hypergrid, bits and ising
    python benchmarks/flow_speed.py --worlds bits --iterations 10         whether it runs, on a CPU

Settings are those of gfnx's baselines (presets `published` and `gfnx`), evaluations and logging are left out on both
sides. Our programs compile in threads and are timed one after another, then gfnx's, each in a process of its own. A
trace of a few iterations counts kernels: with one seed, most of the time is the distance between their starts, whatever
they compute. The JSON is written after every row.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rounds import measured_on, peer_row, traced_kernels

from xladder import devices
from xladder.plans import plan
from xladder.rungs import fused
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
# World → preset, seeds of a population, gfnx's script, iterations to time.
WORLDS = {
    "hypergrid": ("published", 64, "gfnx_peer.py", 2000),
    "bits": ("gfnx", 16, "gfnx_bits_peer.py", 500),
    "ising": ("gfnx", 8, "gfnx_ising_peer.py", 200),
}
TRACED = 4  # iterations
RATE = "iterations_per_second"


def ours(run, iterations: int, profile: bool) -> dict:
    """Iterations of all seeds together per second, the best of three, and what the device did meanwhile."""
    run.advance(iterations)
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        run.advance(iterations)
        seconds.append(time.perf_counter() - begun)
    rates = [iterations * len(run.seeds) / each for each in seconds]
    found = {RATE: max(rates), "all": rates, "compile_seconds": run.compile_seconds}
    if profile:
        run.advance(TRACED)  # compiles
        kernels = traced_kernels(lambda: run.advance(TRACED))
        found["kernels_per_iteration"] = sum(count for count, _ in kernels.values()) / TRACED
        found["busy_ms_per_iteration"] = sum(us for _, us in kernels.values()) / TRACED / 1000
        slowest = sorted(kernels.items(), key=lambda item: -item[1][1])[:12]
        found["slowest_kernels"] = [
            {"name": name[:80], "per_iteration": count / TRACED, "us_each": us / count} for name, (count, us) in slowest
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--iterations", type=int, help="to time, if not as many as the table says")
    parser.add_argument("--single", action="store_true", help="no populations")
    parser.add_argument("--gfnx", help="a Python that has gfnx")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/flow-speed-DEVICE.json)")
    options = parser.parse_args()
    console, device = Console(width=120), devices.find(options.device)
    out = options.out or HERE / "results" / f"flow-speed-{options.device}.json"
    rows: list[dict] = []
    facts = measured_on(device)

    def keep(row: dict) -> None:
        rows.append(row)
        console.print({key: value for key, value in row.items() if key != "slowest_kernels"}, markup=False)
        write_json(out, {"rows": rows, **facts})

    def started(world: str, seeds: int):
        preset = WORLDS[world][0]
        never = {"evaluate_every": 10**6, "iterations": 10**6} if world != "hypergrid" else {"evaluate_every": 10**6}
        config = plan(world, "fused", preset=preset, changes=never).config
        return fused.start(config, list(range(seeds)), device)

    with ThreadPoolExecutor(3) as pool:
        sizes = [(world, seeds) for world in options.worlds for seeds in (1, WORLDS[world][1])]
        sizes = [size for size in sizes if size[1] == 1 or not options.single]
        runs = {size: pool.submit(started, *size) for size in sizes}
        runs = {size: future.result() for size, future in runs.items()}
    for (world, seeds), run in runs.items():
        iterations = options.iterations or WORLDS[world][3]
        keep({"world": world, "name": "fused", "seeds": seeds} | ours(run, iterations, options.device == "gpu"))
    if not options.gfnx:
        return
    for world in options.worlds:
        iterations = options.iterations or WORLDS[world][3]
        words = ["--device", options.device, "--iterations", str(iterations), "--chunk", str(max(1, iterations // 5))]
        row = {"world": world} | peer_row("gfnx", [options.gfnx, str(HERE / WORLDS[world][2]), *words])
        if RATE in row:
            mine = {r["seeds"]: r[RATE] / row[RATE] for r in rows if r["world"] == world and r["name"] == "fused"}
            row["times_faster"] = mine
        keep(row)


if __name__ == "__main__":
    main()
