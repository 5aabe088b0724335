"""Updates of the Nature network per second: PyTorch, XLA's convolutions, and ours, on the same batches of 32.

    python benchmarks/cnn.py [--rounds 7] [--json FILE]

JAX does all updates of a round in one `scan`, as `parallel` and `fused` do.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rounds import measured_on, repeated, times

from xladder import devices
from xladder.families.value.acting import build
from xladder.plans import plan
from xladder.replay.batch import Batch
from xladder.worlds import atari_host

UPDATES = 16


def batches(size: int, actions: int) -> Batch:
    """Random transitions, leaves [UPDATES, B, …]."""
    rng, shape = np.random.default_rng(0), (UPDATES, size)
    frames = rng.integers(0, 256, (2, *shape, 4, 84, 84), dtype=np.uint8)
    chosen, returns = rng.integers(0, actions, shape, dtype=np.int32), rng.random(shape, dtype=np.float32)
    return Batch(frames[0], chosen, returns, np.full(shape, 0.99, np.float32), frames[1], np.ones(shape, np.float32))


def torch_row(config: object, data: Batch, device: str) -> dict:
    """PyTorch, one update after another, with the fastest number of threads."""
    import torch

    from xladder.families.value.torch_backend import make_learner
    from xladder.rungs.torch import best_threads

    if device == "cpu":
        best_threads(config)
    agent = make_learner(config, device)
    each = [jax.tree.map(lambda x, i=i: x[i], data) for i in range(UPDATES)]
    found = times(lambda: [agent.update(batch) for batch in each], 3)
    threads = torch.get_num_threads()
    return {"name": f"torch-{device}", "threads": threads, "seconds_per_update": float(np.median(found)) / UPDATES}


def jax_row(config: object, data: Batch, name: str, precision: str, patches: bool) -> dict:
    """Our learner, all updates in one call."""
    from dataclasses import replace

    from xladder.learners.value import Hyperparams

    spec = atari_host.spec(config.world)
    learner = build(replace(config.learner, precision=precision), spec, config.world.stack, patches)
    key = jax.random.key(0)
    params = learner.net.init(key, jnp.zeros((4, *spec.shape), spec.dtype), None, None)["params"]
    agent = learner.init(params, Hyperparams(jnp.float32(1e-4), jnp.float32(0.99)))

    def run(agent, data):
        return jax.lax.scan(lambda a, batch: learner.update(a, batch, learner.draw_update(key, key))[:2], agent, data)

    program = jax.jit(run).lower(agent, data).compile()
    data = jax.device_put(data)
    found = times(lambda: jax.block_until_ready(program(agent, data)), 3)
    return {"name": name, "seconds_per_update": float(np.median(found)) / UPDATES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = devices.find(None)
    config = plan("atari/breakout", "parallel", preset="cleanrl").config
    data = batches(config.learner.batch_size, atari_host.spec(config.world).actions)
    rows = [
        partial(torch_row, config, data, "cpu" if device.platform == "cpu" else "cuda"),
        partial(jax_row, config, data, "XLA's convolutions", "float32", False),
        partial(jax_row, config, data, "patches × matrix", "float32", True),
        partial(jax_row, config, data, "patches × matrix, bfloat16", "bfloat16", True),
    ]
    console = Console()
    found = repeated(rows, options.rounds, "seconds_per_update", console, lambda row: "")
    for row in found:
        console.print(f"{row['name']:<28} {1 / row['seconds_per_update']:>8.1f} updates/s", highlight=False)
    if options.json:
        result = {"rows": found, "rounds": options.rounds, **measured_on(device)}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
