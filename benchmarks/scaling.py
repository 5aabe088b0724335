"""How a run scales over devices and processes, what they exchange, and a model of larger machines.

    JAX_NUM_CPU_DEVICES=8 python benchmarks/scaling.py --parts devices [--json FILE]   # 1, 2, 4, 8 CPU devices
    python benchmarks/scaling.py --parts processes --hosts 1 2 4                       # on loopback
    python benchmarks/scaling.py --parts batch                                         # one device, parts of the batch

`devices` and `processes` are measured here. `batch` measures what each of n devices would have to compute; the model in
docs/how-to/scaling.md adds the communication, at an assumed bandwidth and latency.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.plans import plan
from xladder.registry import RungOptions
from xladder.rungs import fused, mesh

SETTINGS = {
    "treasurehunt": {"learner": {"batch_size": 256}, "world": {"observe": "together"}},
    "hypergrid": {"learner": {"batch_size": 64}},
    "minatar/breakout": {"learner": {"batch_size": 256, "learning_starts": 1024}, "world": {"num_envs": 32}},
}
LENGTHS = {"treasurehunt": 5, "hypergrid": 50, "minatar/breakout": 60}


def measure(running: object, ticks: int, rounds: int) -> float:
    """Median seconds per tick, after two rounds to warm up."""
    seconds = []
    for _ in range(rounds + 2):
        begun = time.perf_counter()
        running.advance(ticks)
        seconds.append((time.perf_counter() - begun) / ticks)
    return float(np.median(seconds[2:]))


def crossing(config: object, running: object) -> dict:
    """What every device has to send and receive per tick: gradients, once per update."""
    params = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(running.params()))
    updates = getattr(config, "updates_per_tick", 1)
    return {"gradient_bytes": int(params), "updates_per_tick": updates}


def config_of(workload: str, shape: str | None, **changes: object) -> object:
    options = RungOptions(mesh=shape) if shape else None
    fields = {name: {**value, **changes.get(name, {})} for name, value in SETTINGS[workload].items()}
    if workload == "minatar/breakout":
        fields["learner"]["steps_per_update"] = fields["world"]["num_envs"]
    return plan(workload, "mesh" if shape else "fused", seeds=8, options=options, **fields).config


def on_devices(workload: str, rounds: int) -> list[dict]:
    """One learner on 1 … n devices, and eight seeds on them."""
    rows = []
    for count in (n for n in (1, 2, 4, 8) if n <= len(jax.devices())):
        for axis, seeds in (("data", 1), ("seeds", 8)):
            shape = f"{axis}={count}"
            running = mesh.start(config_of(workload, shape), list(range(seeds)), jax.devices()[0], mesh=shape)
            each = measure(running, LENGTHS[workload], rounds)
            rows.append({"workload": workload, "axis": axis, "devices": count, "seeds": seeds, "seconds": each})
            rows[-1] |= crossing(running.config, running)
            print(f"{workload:<18} {shape:<8} {seeds} seeds {1e3 * each:9.2f} ms per tick", flush=True)
    return rows


def on_processes(workload: str, hosts: list[int]) -> list[dict]:
    """The same learner on several processes of this machine, started by `xladder launch`."""
    rows = []
    for count in hosts:
        config = config_of(workload, f"data={count}")
        length = {"treasurehunt": 24, "hypergrid": 500, "minatar/breakout": 32 * 400}[workload]
        flag = {"treasurehunt": "--epochs", "hypergrid": "--iterations", "minatar/breakout": "--steps"}[workload]
        words = ["train", workload, flag, str(length), "--eval-episodes", "0", "--checkpoint-every", "0"]
        for section, fields in SETTINGS[workload].items():
            for name, value in fields.items():
                words += [f"--{section}.{name.replace('_', '-')}", str(value)]
        if workload == "minatar/breakout":
            words += ["--learner.steps-per-update", str(config.world.num_envs)]
        if workload != "treasurehunt":
            words += ["--evaluate-every", "0"]
        with tempfile.TemporaryDirectory() as folder:
            launch = [sys.executable, "-m", "xladder.cli.main", "launch", "--hosts", str(count)]
            done = subprocess.run(
                [*launch, *words, "--out", f"{folder}/run"],
                capture_output=True, text=True, check=False, env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
            )  # fmt: skip
            if done.returncode:
                raise SystemExit(done.stdout[-1000:] + done.stderr[-1000:])
            timings = json.loads(Path(f"{folder}/run/timings.json").read_text())
        each = next(value for name, value in timings.items() if name.startswith("seconds_per_"))
        rows.append({"workload": workload, "processes": count, "seconds": each})
        print(f"{workload:<18} {count} processes {1e3 * each:9.2f} ms per tick", flush=True)
    return rows


def on_parts(workload: str, rounds: int) -> list[dict]:
    """What one of n devices has to compute: a part of the batch, and of the envs if there are any."""
    rows, whole = [], config_of(workload, None)
    for share in (1, 2, 4, 8, 64):
        size = whole.learner.batch_size // share
        changes: dict = {"learner": {"batch_size": size}}
        if workload == "minatar/breakout":
            changes["world"] = {"num_envs": whole.world.num_envs // share}
        if size < 1 or changes.get("world") == {"num_envs": 0}:
            continue
        config = config_of(workload, None, **changes)
        running = fused.start(config, [0], jax.devices()[0])
        each = measure(running, LENGTHS[workload], rounds)
        rows.append({"workload": workload, "share": share, "batch": size, "seconds": each, **crossing(config, running)})
        print(f"{workload:<18} batch/{share:<3} {1e3 * each:9.3f} ms per tick", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", default=["devices", "processes", "batch"])
    parser.add_argument("--workloads", nargs="*", default=list(SETTINGS))
    parser.add_argument("--hosts", nargs="*", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict = {}
    for workload in options.workloads:
        if "devices" in options.parts:
            found.setdefault("devices", []).extend(on_devices(workload, options.rounds))
        if "processes" in options.parts:
            found.setdefault("processes", []).extend(on_processes(workload, options.hosts))
        if "batch" in options.parts:
            found.setdefault("batch", []).extend(on_parts(workload, options.rounds))
    if options.json:
        metadata = {"settings": SETTINGS, **found, **measured_on(devices.find(None))}
        options.json.write_text(json.dumps(metadata, indent=2) + "\n")


if __name__ == "__main__":
    main()
