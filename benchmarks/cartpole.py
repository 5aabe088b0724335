"""CartPole with DQN beside PureJaxRL's, with one seed and with many: the program alone, and the whole command.

    git clone https://github.com/luchris429/purejaxrl /tmp/purejaxrl && pip install flashbax
    python benchmarks/cartpole.py [/tmp/purejaxrl/purejaxrl/dqn.py] [--seeds 1 128] [--steps 500000] [--json FILE]

Both train at PureJaxRL's settings, which are those of `--protocol cleanrl`: 10 envs, a memory of 10,000, a batch of 128
for every 10 steps. Rows of the peer come from `purejax_peer.py`, in a process of its own. Ours are

    program   `fused` advanced by hand: nothing but the compiled ticks and their metrics,
    python    `xladder.train` in a fresh process, without a run directory,
    command   `xladder train` with its run directory: first without, then with programs compiled before,
    curves    the same without evaluation and replay, which the peer does not have either.

`whole` is the time of a process from its start until the agents are trained, and for `command` and `curves` until
everything is written. The peer's program is compiled for its number of steps; its metrics stay on the device.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rounds import measured_on, peer_row

PROTOCOL = ("--preset", "dqn", "--protocol", "cleanrl")
PYTHON = """
import json, sys, time
begun = time.perf_counter()
import xladder
result = xladder.train("cartpole", "fused", preset="dqn", protocol="cleanrl", seeds={seeds}, steps={steps}, {more})
print(json.dumps({{"whole_seconds": time.perf_counter() - begun, "compile_seconds": result.compile_seconds}}))
"""


def program(seeds: int, steps: int, repeats: int) -> dict:
    """Steps per second of the compiled chunk, once it learns."""
    import jax

    from xladder.plans import plan
    from xladder.rungs import fused

    chosen = plan("cartpole", "fused", preset="dqn", protocol="cleanrl", steps=steps)
    begun = time.perf_counter()
    running = fused.start(chosen.config, list(range(seeds)), jax.devices()[0])
    started = time.perf_counter() - begun
    ticks = chosen.config.ticks
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        running.advance(ticks)
        seconds.append(time.perf_counter() - begun)
    return {
        "start_seconds": started - running.compile_seconds,
        "compile_seconds": running.compile_seconds,
        "train_seconds": min(seconds),
        "tick_ms": 1000 * min(seconds) / ticks,
        "steps_per_second": seeds * steps / min(seconds),
    }


def python(seeds: int, steps: int, cache: Path) -> dict:
    """The whole of `xladder.train` in a fresh process; without its cache of compiled programs."""
    code = PYTHON.format(seeds=seeds, steps=steps, more="progress=False")
    return whole([sys.executable, "-c", code], seeds * steps, cache)


def train(seeds: int, steps: int, cache: Path, *more: str) -> dict:
    """The whole of `xladder train`, with its own timings."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["train", "cartpole", "--rung", "fused", *PROTOCOL, "--seeds", str(seeds), "--steps", str(steps)]
        row = whole([sys.executable, "-m", "xladder", *words, "--out", str(out), *more], seeds * steps, cache)
        timings = out / "timings.json"
        if timings.exists():
            found = json.loads(timings.read_text())
            row |= {name: found[name] for name in ("compile_seconds", "phases") if name in found}
        return row


def whole(words: list[str], steps: int, cache: Path) -> dict:
    """How long a process takes."""
    begun = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
    seconds = time.perf_counter() - begun
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return {"whole_seconds": seconds, "whole_steps_per_second": steps / seconds}


def peer(file: Path, seeds: int, steps: int, repeats: int) -> dict:
    """PureJaxRL in a process of its own: its program, and that process with one run."""
    script = [sys.executable, str(Path(__file__).with_name("purejax_peer.py")), "dqn", str(file)]
    row = peer_row("", [*script, "--seeds", str(seeds), "--steps", str(steps), "--repeats", str(repeats)])
    if "whole_seconds" in row:
        row["whole_steps_per_second"] = seeds * steps / row["whole_seconds"]
    return row


def measure(options: argparse.Namespace, seeds: int, cache: Path) -> list[tuple[str, dict]]:
    """All rows with so many seeds, the peer's first; each is printed when it is known."""
    steps, repeats = options.steps, options.repeats
    rows = [
        ("program", lambda: program(seeds, steps, repeats)),
        ("python", lambda: python(seeds, steps, cache)),
        ("command", lambda: train(seeds, steps, cache)),
        ("command, cached", lambda: train(seeds, steps, cache)),
        ("curves, cached", lambda: train(seeds, steps, cache, "--eval-episodes", "0")),
    ]
    if options.file:
        rows.insert(0, ("purejaxrl", lambda: peer(options.file, seeds, steps, repeats)))
    found = []
    shutil.rmtree(cache, ignore_errors=True)
    for name, call in rows:
        found.append((f"{name}/{seeds}", call()))
        print(found[-1][0], json.dumps(found[-1][1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="PureJaxRL's dqn.py")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 128])
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share the device
    from xladder import devices

    with tempfile.TemporaryDirectory() as folder:
        rows = [{"name": n, **row} for s in options.seeds for n, row in measure(options, s, Path(folder) / "cache")]
    if options.json:
        facts = measured_on(devices.find(None))
        text = json.dumps({"steps": options.steps, "rows": rows, **facts}, indent=2)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
