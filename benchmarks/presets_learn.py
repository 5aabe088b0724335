"""Every preset on Catch, CartPole and MinAtar Breakout: the return after training beside random play, over seeds.

python benchmarks/presets_learn.py --seeds 8 --json FILE [--worlds catch,cartpole] [--presets iqn,qrdqn] [--scale 0.1]

Presets are a world's own, and those of every protocol that it has (`pqn/purejaxql`). All seeds of a preset are trained
in one program (`fused`). `--scale` shortens runs, to try the script. Worlds that may need memory are measured if they
are named: --worlds memorychain,umbrellachain,metamaze --presets r2d2,dueling
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from rounds import measured_on

from xladder.families.value import gymnax_presets
from xladder.families.value import presets as named
from xladder.families.value.published import protocols
from xladder.training import train

# A world's steps for presets without a published length, and the return that counts as solved.
WORLDS = {"catch": (100_000, 0.9), "cartpole": (None, 475.0), "minatar/breakout": (2_000_000, None)}
MEMORY_WORLDS = {"memorychain": (50_000, 0.9), "umbrellachain": (100_000, None), "metamaze": (2_000_000, None)}
KNOWN = WORLDS | MEMORY_WORLDS
EPISODES = 32


def cells(world):
    """Preset names with their protocol, or None for our own."""
    own = [(name, None) for name in named.presets(world) if name != "default"]
    published = protocols(gymnax_presets.agents(world))
    return own + [(name, p) for p in published for name in named.presets(world, p) if name != "default"]


def measure(world, preset, protocol, seeds, scale):
    """Train one preset with all seeds at once, and evaluate it."""
    config = named.presets(world, protocol)[preset]
    steps = config.steps if protocol or preset == "pqn" else KNOWN[world][0] or config.steps
    steps = max(1, round(steps * scale / config.per_tick)) * config.per_tick
    begun = time.perf_counter()
    result = train(world, "fused", preset=preset, protocol=protocol, seeds=seeds, steps=steps, evaluate_episodes=0)
    trained = time.perf_counter() - begun
    score = result.evaluate(EPISODES)
    each = np.array(score["per_seed"])
    return {
        "world": world,
        "preset": preset,
        "protocol": protocol,
        "steps": steps,
        "seeds": seeds,
        "per_seed": each.tolist(),
        "mean": float(each.mean()),
        "ci95": score["ci95"],
        "worst": float(each.min()),
        "random": score["random_return"],
        "learned": "advice" not in score,
        "solved": None if KNOWN[world][1] is None else int((each >= KNOWN[world][1]).sum()),
        "seconds": trained,
    }


def show(row):
    name = row["preset"] + (f"/{row['protocol']}" if row["protocol"] else "")
    solved = "" if row["solved"] is None else f"  {row['solved']}/{row['seeds']} solved"
    said = "" if row["learned"] else "  NOT above random play"
    print(
        f"{row['world']:<17} {name:<16} {row['steps']:>11,} {row['mean']:>9.2f} ± {row['ci95']:<7.2f} worst "
        f"{row['worst']:>8.2f}  random {row['random']:>7.2f}  {row['seconds']:>6.0f} s{solved}{said}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--presets", default="")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = set(filter(None, options.presets.split(",")))
    about, rows = measured_on(jax.devices()[0]), []
    for world in options.worlds.split(","):
        for preset, protocol in cells(world):
            if wanted and preset not in wanted:
                continue
            rows.append(measure(world, preset, protocol, options.seeds, options.scale))
            show(rows[-1])
            if options.json:  # after every row: a long table survives being stopped
                options.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    behind = [row for row in rows if not row["learned"]]
    print(f"{len(rows) - len(behind)} of {len(rows)} end above random play")


if __name__ == "__main__":
    main()
