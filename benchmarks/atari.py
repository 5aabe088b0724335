"""Atari: agent steps per second of each rung, of the emulator alone and of the learner alone.

    python benchmarks/atari.py [--rows parallel/32 …] [--seconds 20] [--json FILE]

One update of batch 32 for every 4 agent steps, protocol `cleanrl`. A row is RUNG/ENVS, with `/bf16` for bfloat16;
`actors:8:2/64` has eight actors and two shards for 64 envs.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.core.compiling import compiled
from xladder.plans import plan
from xladder.registry import RUNGS
from xladder.worlds import atari_host

ROWS = [
    "torch/1",
    "torch/32",
    "sequential/1",
    "sequential/32",
    "parallel/32",
    "parallel/64",
    "parallel/64/bf16",
    "fused/32",
]


def settings(envs: int, precision: str, game: str) -> object:
    """Learning from the first ticks on, with a replay memory of the usual size."""
    learner = {"learning_starts": 4 * envs + 64, "precision": precision, "memory": 200_000}
    per_tick = max(envs, 4)
    frames = 4 * per_tick * 10_000_000
    frames = min(frames, (2**30 // (4 * per_tick)) * 4 * per_tick)
    return plan(
        f"atari/{game}", "parallel", world={"num_envs": envs}, learner=learner, frames=frames, evaluate_episodes=0
    ).config


def emulator(envs: int, seconds: float, game: str) -> dict:
    """Random actions without a learner."""
    config = settings(envs, "float32", game)
    worlds = atari_host.on_host(config.world, envs, 0, compiled)
    worlds.reset()
    rng, count, begun = np.random.default_rng(0), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds / 2:
        worlds.send(rng.integers(0, worlds.spec.actions, envs))
        worlds.recv()
        count += envs
    rate = count / (time.perf_counter() - begun)
    worlds.close()
    return {"name": f"emulator/{envs}", "steps_per_second": rate}


def rung(row: str, seconds: float, game: str, device: object) -> dict:
    """Steps per second of a rung, measured for this many seconds after warming up."""
    named, envs, *rest = row.split("/")
    name, *numbers = named.split(":")
    config = settings(int(envs), "bfloat16" if rest else "float32", game)
    options = dict(zip(("actors", "shards"), map(int, numbers), strict=False))
    running = RUNGS[name].start(config, [0], device, **options)
    ticks = 40 if name == "parallel" else 8
    running.advance(ticks + 30)
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        running.advance(ticks)
        done += ticks
        if name == "parallel" and time.perf_counter() - begun < 1:
            ticks *= 2
    rate = done * config.per_tick / (time.perf_counter() - begun)
    found = {"name": row, "steps_per_second": rate, "compile_seconds": running.compile_seconds}
    found |= {f"{k}_ms_per_tick": 1000 * v for k, v in running.phases().items()}
    if hasattr(running, "close"):
        running.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=ROWS)
    parser.add_argument("--emulators", nargs="*", type=int, default=[32, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = devices.find(None)
    rows = [emulator(envs, options.seconds, options.game) for envs in options.emulators]
    for row in rows:
        print(f"{row['name']:<20} {row['steps_per_second']:>10,.0f} steps/s", flush=True)
    for name in options.rows:
        try:
            rows.append(rung(name, options.seconds, options.game, device))
        except Exception as error:
            rows.append({"name": name, "error": f"{type(error).__name__}: {error}"[:300]})
            print(rows[-1], flush=True)
            continue
        finally:
            if options.json:
                found = {"rows": rows, "game": options.game, **measured_on(device)}
                options.json.write_text(json.dumps(found, indent=2) + "\n")
        parts = "  ".join(f"{k} {v:.2f}" for k, v in rows[-1].items() if k.endswith("ms_per_tick"))
        print(f"{name:<20} {rows[-1]['steps_per_second']:>10,.0f} steps/s  {parts}", flush=True)
    jax.clear_caches()


if __name__ == "__main__":
    main()
