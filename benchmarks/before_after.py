"""Whether a change has made any rung slower: two versions of xladder, measured alternately in one run.

    git worktree add ../before REVISION
    python benchmarks/before_after.py --before ../before/src --rounds 3 [--device gpu] [--out results.json]

Every measurement is `xladder compare` in its own process, with the same flags for both versions. It reports the median
over rounds of seconds per tick, and the median over rounds of the ratio after / before. With `--own` the second version
also trains CartPole as a custom world (`jax/own_cartpole:OwnCartPole`), which should take as long as the built-in one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rounds import measured_on

from xladder import devices

CASES = {
    "treasurehunt": (("fused", "parallel", "sequential", "torch"), ()),
    "hypergrid": (("fused", "parallel", "torch"), ()),
    "cartpole": (("fused", "parallel", "sequential", "torch"), ()),
    "minatar/breakout": (("fused",), ()),
}
HERE = Path(__file__).parent


def measure(source, workload, rungs, device, flags=()):
    """Seconds per tick of each rung."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["compare", workload, "--rungs", ",".join(rungs), "--json", f"{folder}/found.json"]
        command += ["--chart", f"{folder}/chart.png", "--device", device, *flags]
        paths = os.pathsep.join([str(Path(source).resolve()), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "xladder", *command],
            env=os.environ | {"PYTHONPATH": paths},
            cwd=HERE,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{workload} in {source}: {done.stderr.strip()[-500:]}")
        rows = json.loads(Path(folder, "found.json").read_text())["rows"]
    key = next(name for name in rows[0] if name.startswith("seconds_per_"))
    return {row["rung"]: {"seconds": row[key], "compile_seconds": row["compile_seconds"]} for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="src folder of the earlier version")
    parser.add_argument("--after", default=str(HERE.parent / "src"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rungs", default=None, help="only these rungs, separated by commas")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--out", default=None)
    given = parser.parse_args()
    found = {}
    for number in range(given.rounds):
        for workload in given.cases.split(","):
            rungs, flags = CASES[workload]
            rungs = [rung for rung in rungs if given.rungs is None or rung in given.rungs.split(",")]
            # Alternating, in reverse order every second time, so that neither always comes first.
            order = ("before", "after") if number % 2 == 0 else ("after", "before")
            for side in order:
                for rung, row in measure(getattr(given, side), workload, rungs, given.device, flags).items():
                    entry = found.setdefault(f"{workload}/{rung}", {"before": [], "after": [], "compile": {}})
                    entry[side].append(row["seconds"])
                    entry["compile"].setdefault(side, []).append(row["compile_seconds"])
        if given.own:
            row = measure(given.after, "jax/own_cartpole:OwnCartPole", ["fused"], given.device)["fused"]
            entry = found.setdefault("own cartpole/fused", {"before": [], "after": [], "compile": {}})
            entry["after"].append(row["seconds"])
            entry["before"].append(found["cartpole/fused"]["after"][-1])
        print(f"round {number + 1} of {given.rounds} done", flush=True)
        report(found, given)


def report(found, given):
    """Print the table and write it down, after every round."""
    rows = []
    for name, entry in found.items():
        ratio = median(after / before for before, after in zip(entry["before"], entry["after"], strict=True))
        rows.append({"case": name, "ratio": ratio, **entry})
        before, after = (1000 * median(entry[side]) for side in ("before", "after"))
        print(f"{name:<28} {before:9.3f} ms → {after:9.3f} ms   × {ratio:.3f}", flush=True)
    if given.out:
        told = {**measured_on(devices.find(given.device)), "rows": rows}
        Path(given.out).write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
