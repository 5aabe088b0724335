"""What makes the hypergrid fast on a GPU: the program of `fused`, laid out and compiled in several ways.

    python benchmarks/hypergrid_speed.py --device gpu                    1 and 64 seeds, every variant
    python benchmarks/hypergrid_speed.py --tiny                          whether it runs, on a CPU
    python benchmarks/hypergrid_speed.py --kernels                       kernels of one sampling step, on any machine

The published settings (20⁴ cells, trajectory balance, batch 16), the first 2,000 iterations, as in
`benchmarks/hypergrid.py`. Programs compile in threads, and are timed one after another. The JSON is written after every
row. `--kernels` counts the operations in the body of the sampling loop that the compiler left: fusions, products,
copies and the rest, each of which is a kernel on a GPU.
"""

import argparse
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rounds import measured_on

from xladder import devices
from xladder.families.gflownet.hypergrid_presets import PUBLISHED, WorldConfig
from xladder.families.gflownet.program import Program
from xladder.learners.gflownet import Explore
from xladder.rungs.fused import FusedRun
from xladder.rungs.running import Compiler
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION"
VARIANTS: dict[str, tuple[dict, dict]] = {  # how the program is laid out, and options of the compiler
    "as it is": ({}, {}),
    "scattered gradient": ({"dense": False}, {}),
    "unroll 4": ({"unroll": 4}, {}),
    "unroll 16": ({"unroll": 16}, {}),
    "one bucket": ({"one_bucket": True}, {}),
    "loops in graphs": ({}, {"xla_gpu_enable_command_buffer": f"{GRAPHS},WHILE,CONDITIONAL"}),
    "loops in graphs, unroll 1": ({"unroll": 1}, {"xla_gpu_enable_command_buffer": f"{GRAPHS},WHILE,CONDITIONAL"}),
    "no graphs": ({}, {"xla_gpu_enable_command_buffer": ""}),
    "one bucket, unroll 4": ({"one_bucket": True, "unroll": 4}, {}),
}
NO_KERNEL = {"parameter", "get-tuple-element", "tuple", "constant", "bitcast", "iota"}


class WithOptions(Compiler):
    """Compiles with options of XLA."""

    def __init__(self, options):
        self.options = options

    def program(self, function, donate, *arguments):
        return jax.jit(function, donate_argnums=donate).lower(*arguments).compile(compiler_options=self.options)


class Variant(FusedRun):
    """A population whose program is laid out differently."""

    changes: ClassVar[dict] = {}

    def make_program(self, config):
        return replace(Program.for_platform(config, self.device.platform, self.seeds), **self.changes)


def started(config, seeds, device, name):
    layout, options = VARIANTS[name]
    kind = type("Variant", (Variant,), {"changes": layout})
    return kind(config, range(seeds), device, WithOptions(options))


def timed(run, iterations):
    """Iterations of all seeds together per second, the best of two halves after a warm-up chunk."""
    run.advance(min(100, iterations))
    rates = []
    for _ in range(2):
        begun = time.perf_counter()
        run.advance(iterations // 2)
        rates.append(iterations // 2 * len(run.seeds) / (time.perf_counter() - begun))
    return rates


def kernels(config, **layout):
    """Kind → number of operations in the body of the sampling loop, with one step between checks."""
    learner = replace(Program(config), **layout).learner
    params = jax.eval_shape(learner.init, jax.random.key(0)).params
    draws = jax.ShapeDtypeStruct((config.world.steps, config.learner.batch_size), jnp.float32)
    number = jax.ShapeDtypeStruct((), jnp.float32)
    text = jax.jit(learner.sample).lower(params, Explore(number, number), draws).compile().as_text()
    names = re.findall(r"body=%?([\w.\-]+)", text)
    blocks = dict(re.findall(r"^%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", text, re.S | re.M))
    body = max((blocks[name] for name in names if name in blocks), key=len)
    found = re.findall(r"= (?:\([^=]*\)|\S+) ([a-z\-]+)\(", body)
    return Counter(kind for kind in found if kind not in NO_KERNEL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), help="names of variants")
    parser.add_argument("--tiny", action="store_true", help="a tiny grid and few iterations, to see that it runs")
    parser.add_argument("--kernels", action="store_true", help="count kernels instead of timing")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "hypergrid-speed-gpu.json")
    options = parser.parse_args()
    console, iterations = Console(width=120), options.iterations
    config = replace(PUBLISHED, iterations=iterations, evaluate_every=iterations)
    # ε decays as in the whole run, not within these few iterations.
    last = 0.1 * max(0.0, 1 - iterations / 30_000)
    config = replace(config, learner=replace(config.learner, explore_until=1.0, epsilon_end=last))
    if options.tiny:
        iterations, small = 20, replace(config.learner, width=16)
        config = replace(config, world=WorldConfig(2, 4), learner=small, iterations=20)
    if options.kernels:
        found = kernels(config)
        console.print(f"one sampling step: {sum(found.values())} kernels, {dict(found)}", highlight=False)
        return
    device, rows = devices.find(options.device), []
    with ThreadPoolExecutor(4) as pool:
        waiting = [
            (name, seeds, pool.submit(started, config, seeds, device, name))
            for seeds in options.seeds
            for name in options.only
        ]
        ready = []
        for name, seeds, future in waiting:
            try:
                ready.append((name, seeds, future.result()))
            except Exception as error:
                rows.append({"variant": name, "seeds": seeds, "error": repr(error)[:300]})
                console.print(rows[-1], markup=False)
    for name, seeds, run in ready:
        row = {"variant": name, "seeds": seeds, "compile_seconds": run.compile_seconds}
        try:
            rates = timed(run, iterations)
            row |= {"iterations_per_second": float(np.max(rates)), "both": rates}
        except Exception as error:
            row["error"] = repr(error)[:300]
        rows.append(row)
        console.print(row, markup=False)
        write_json(options.out, {"rows": rows, **measured_on(device)})


if __name__ == "__main__":
    main()
