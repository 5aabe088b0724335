"""`fused` against PyTorch at its best: rungs `torch`, `compiled` and `fused` in one run on one machine.

    python benchmarks/strongest_torch.py --device gpu --out results.json      about three minutes on one GPU
    python benchmarks/strongest_torch.py --cases treasurehunt-64,cartpole     some of it
    python benchmarks/strongest_torch.py --alternate                          `torch` and `compiled` on a busy CPU

Every rung has its own process. The same ticks of each case are timed on all rungs, after learning has started: medians
of chunks, with the seconds of compiling beside. `differs` is the largest relative difference of the first losses from
those of `torch`, which draws the same random numbers. A case that fails is printed with its traceback, and the others
go on in a fresh process. ε is constant, because random actions cost PyTorch nothing.

On a busy CPU `--alternate` compares both PyTorch rungs in one process, chunk by chunk in turn, by the processor time of
one thread: waiting for other programs is not counted, nor are more threads.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from statistics import median

import numpy as np

HERE = Path(__file__).parent
FIRST = 10  # losses that are compared
LIMIT = 240  # seconds for the process of a rung
TREASURE = {"world": {"observe": "together"}, "epochs": 100_000}
GRID = {"iterations": 62_500, "learner": {"explore_until": 1.0, "epsilon": 0.1, "epsilon_end": 0.1}}
POLE = {
    "steps": 10_000_000,
    "evaluate_episodes": 0,
    "learner": {"epsilon": 0.1, "epsilon_end": 0.1, "learning_starts": 128},
}
# Workload, preset, changes, ticks before timing, ticks per chunk.
CASES = {
    "treasurehunt-64": ("treasurehunt", "default", {**TREASURE, "learner": {"batch_size": 64}}, 12, 6),
    "treasurehunt-256": ("treasurehunt", "default", {**TREASURE, "learner": {"batch_size": 256}}, 12, 6),
    "hypergrid-20^4": ("hypergrid", "published", GRID, 50, 40),
    "cartpole": ("cartpole", "default", POLE, 60, 200),
}
for name in ("treasurehunt-64", "treasurehunt-256"):
    CASES[name][2]["learner"] |= {"epsilon": 0.63, "epsilon_decay": 0.0}
CHUNKS = 9


def measure(case: str, rung: str, device_name: str) -> dict:
    """Train a case on a rung and return its row."""
    from xladder import devices
    from xladder.plans import plan
    from xladder.registry import RUNGS

    workload, preset, changes, warm, ticks = CASES[case]
    config = plan(workload, rung, preset=preset, device=device_name, changes=changes).config
    begun = time.perf_counter()
    running = RUNGS[rung].start(config, [0], devices.find(device_name))
    started = time.perf_counter() - begun
    losses = np.reshape(running.advance(warm)["loss"], (warm, -1)).mean(1)  # over agents
    times = []
    for _ in range(CHUNKS):
        begun = time.perf_counter()
        running.advance(ticks)
        times.append((time.perf_counter() - begun) / ticks)
    parts = running.phases() if rung != "fused" else {}  # it would compile once more
    return {
        "case": case,
        "rung": rung,
        "ms": 1000 * median(times),
        "chunks_ms": [1000 * seconds for seconds in times],
        "start_seconds": started,
        "compile_seconds": running.compile_seconds,
        "first_losses": [float(loss) for loss in losses if np.isfinite(loss)][:FIRST],
        "note": running.note,
        **{f"{name}_ms": 1000 * seconds for name, seconds in parts.items()},
    }


def alternate(case: str) -> dict:
    """Milliseconds of processor time per tick on `torch` and `compiled`, one thread, by turns in this process."""
    from xladder import devices
    from xladder.plans import plan
    from xladder.registry import RUNGS

    workload, preset, changes, warm, ticks = CASES[case]
    config = plan(workload, "torch", preset=preset, device="cpu", changes=changes).config
    device = devices.find("cpu")
    runs = {rung: RUNGS[rung].start(config, [0], device, threads=1) for rung in ("torch", "compiled")}
    times: dict[str, list[float]] = {rung: [] for rung in runs}
    for running in runs.values():
        running.advance(warm)
    for _ in range(CHUNKS):
        for rung, running in runs.items():
            begun = time.thread_time()
            running.advance(max(1, ticks // 3))
            times[rung].append(1000 * (time.thread_time() - begun) / max(1, ticks // 3))
    found = {f"{rung}_cpu_ms": median(values) for rung, values in times.items()}
    ratio = median(one / other for one, other in zip(*times.values(), strict=True))
    compiling = runs["compiled"].compile_seconds
    return {"case": case, **found, "torch_over_compiled": ratio, "compile_seconds": compiling}


def child(rung: str, cases: list[str], device: str) -> int:
    """Measure cases one after another, a line of JSON each, up to the first that fails."""
    for case in cases:
        try:
            print(json.dumps(alternate(case) if rung == "both" else measure(case, rung, device)), flush=True)
        except Exception:
            traceback.print_exc()
            return 1
    return 0


def rows_of(rung: str, cases: list[str], device: str) -> list[dict]:
    """Measure cases on a rung, in a new process after each that fails."""
    rows: list[dict] = []
    while len(rows) < len(cases):
        left = cases[len(rows) :]
        words = [sys.executable, __file__, "--device", device, "--cases", ",".join(left), "--child", rung]
        # PyTorch and JAX share the GPU, so neither may take all of its memory.
        paths = os.pathsep.join([str(HERE.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONPATH": paths}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
            try:
                out, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
        for line in out.splitlines():
            if line.startswith("{"):
                rows.append(json.loads(line))
                print(f"{rows[-1]['case']} {rung}: {rows[-1]['ms']:.3f} ms", flush=True)
        if process.returncode and len(rows) < len(cases):
            rows.append({"case": cases[len(rows)], "rung": rung, "error": f"exit {process.returncode}"})
            print(f"{rows[-1]['case']} {rung}: FAILED", flush=True)
    return rows


def summary(rows: list[dict]) -> list[str]:
    """The table as lines, with ratios to the fastest PyTorch; adds `differs` and `times_fastest_torch` to the rows."""
    lines = [
        f"{'case':18}{'rung':10}{'ms':>9}{'sampling':>10}{'update':>9}{'compile s':>11}{'× best':>8}{'differs':>10}"
    ]
    for row in rows:
        same = {r["rung"]: r for r in rows if r["case"] == row["case"] and "ms" in r}
        if "ms" not in row:
            lines.append(f"{row['case']:18}{row['rung']:10}  {row['error']}")
            continue
        pytorch = [same[rung]["ms"] for rung in ("torch", "compiled") if rung in same]
        row["times_fastest_torch"] = min(pytorch) / row["ms"] if pytorch else None
        if row["rung"] == "compiled" and "torch" in same:
            ours, theirs = (np.array(r["first_losses"]) for r in (row, same["torch"]))
            row["differs"] = float(np.abs(ours / theirs - 1).max()) if len(ours) == len(theirs) else None
        parts = [f"{row[key]:.2f}" if key in row else "" for key in ("sampling_ms", "update_ms")]
        ratio = "" if row["times_fastest_torch"] is None else f"{row['times_fastest_torch']:.2f}"
        differs = f"{row['differs']:.1e}" if row.get("differs") is not None else ""
        lines.append(
            f"{row['case']:18}{row['rung']:10}{row['ms']:9.3f}{parts[0]:>10}{parts[1]:>9}"
            f"{row['compile_seconds']:11.1f}{ratio:>8}{differs:>10}"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rungs", default="torch,compiled,fused")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/strongest-torch-DEVICE.json)")
    parser.add_argument("--alternate", action="store_true", help="torch and compiled by turns, by processor time")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = options.cases.split(",")
    if options.child:
        return child(options.child, cases, options.device)
    if options.alternate:
        return child("both", cases, "cpu")

    from rounds import measured_on

    from xladder import devices
    from xladder.runs.disk import write_json

    file = options.out or HERE / "results" / f"strongest-torch-{options.device}.json"
    rows: list[dict] = []
    for rung in options.rungs.split(","):
        rows += rows_of(rung, cases, options.device)
        summary(rows)
        write_json(file, {"rows": rows})
    print("\n".join(summary(rows)))
    write_json(file, {"rows": rows, **measured_on(devices.find(options.device))})
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
