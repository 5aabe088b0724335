"""What keeps `fused` from more on a CPU: the parts of an epoch, what compiling pays for, and seeds side by side.

    python benchmarks/cpu_limits.py                   docs/benchmarks/floors.md shows the file that it writes

Parts of a tick are shares of the kernels' time in a trace. Everything else is processor time, so that other work on
the machine counts less.
"""

import argparse
import gzip
import json
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import jax
from rounds import measured_on

from xladder import devices
from xladder.families.gflownet import program as gflownet_program
from xladder.plans import plan
from xladder.rungs.fused import FusedRun
from xladder.runs.disk import write_json

OUT = Path(__file__).parent / "results" / "limits-cpu.json"
OUTER = ("while", "cond", "call")  # their time is that of the kernels inside
ROUNDS = 5


def started(name: str, seeds: int = 1, **settings) -> tuple[FusedRun, float]:
    """A run that has begun, and the processor seconds that its start took, without the persistent cache."""
    config = plan(name, "fused", seeds=seeds, device="cpu", **settings).config
    begun = time.process_time()
    run = FusedRun(config, range(seeds), devices.find("cpu"))
    return run, time.process_time() - begun


def seconds_per_tick(run: FusedRun, ticks: int) -> float:
    """Processor seconds, the least of several rounds."""
    run.advance(ticks)
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        run.advance(ticks)
        found.append((time.process_time() - begun) / ticks)
    return min(found)


def part_of(kernel: str, times: float, instruction: str, turns: int) -> str:
    """Which part of an epoch of the treasure hunt a kernel belongs to, by what it does and how often it runs."""
    if re.search("normal|uniform|threefry", instruction):
        return "random numbers"
    if times >= 0.9 * turns:
        return "acting"
    if kernel.startswith(("ynn", "dot")):
        return "products of learning"
    return "element by element in learning" if times > 1.5 else "once per epoch"


def parts(batch: int, ticks: int = 30) -> dict[str, float]:
    """The parts of an epoch of the treasure hunt, as shares of its kernels' time."""
    run, _ = started("treasurehunt", changes={"learner": {"batch_size": batch}})
    run.advance(ticks)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run.advance(ticks)
        [file] = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    kernels = [e for e in events if "hlo_op" in e.get("args", {}) and not e["name"].startswith(OUTER)]
    times = Counter(e["name"] for e in kernels)
    instructions = dict(re.findall(r"^ *(?:ROOT )?%?([\w.\-]+) = (.*)$", run.chunk.as_text(), re.MULTILINE))
    found: Counter[str] = Counter()
    for e in kernels:
        instruction = instructions.get(e["name"], "")
        turns = run.program.config.world.max_turns
        found[part_of(e["name"], times[e["name"]] / ticks, instruction, turns)] += e["dur"]
    return {name: duration / found.total() for name, duration in found.most_common()}


def sizes(growth: float) -> dict:
    """The hypergrid at the published settings, with sizes of an update that grow by a factor."""
    gflownet_program.BUCKET_GROWTH = growth
    run, compiling = started("hypergrid", preset="published")
    return {
        "sizes": len(run.program.buckets),
        "starting_cpu_seconds": compiling,
        "cpu_ms_per_iteration": 1000 * seconds_per_tick(run, 500),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    found: dict = {"rows": []}
    for batch in (64, 256):
        found["rows"].append({"what": "parts", "batch": batch, "shares": parts(batch)})
        print(found["rows"][-1], flush=True)
    for growth in (1.5, 2.25, float("inf")):
        found["rows"].append({"what": "sizes"} | sizes(growth))
        print(found["rows"][-1], flush=True)
    write_json(options.out, found | measured_on(devices.find("cpu")))


if __name__ == "__main__":
    main()
