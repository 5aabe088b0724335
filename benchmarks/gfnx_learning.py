"""How well gfnx samples at the same points as `hypergrid_learning.py`: exact total variation, several seeds at once.

    PYTHONPATH=src python benchmarks/gfnx_learning.py --seeds 8 --iterations 25000 --device gpu

Needs an interpreter that has gfnx (see `gfnx_peer.py`, whose training loop is vmapped over seeds). The distribution is
computed from gfnx's own network by the same dynamic programming as ours. Prints a line of JSON at every point:
device, versions, commit, command and the points so far.
"""

import argparse
import json
from importlib import metadata

import equinox as eqx
import gfnx_peer
import jax
import jax.numpy as jnp
import numpy as np
from rounds import measured_on

from xladder.families.gflownet import exact
from xladder.worlds import hypergrid as world
from xladder.worlds.hypergrid_settings import WorldConfig

POINT, NEAR, APART = 12_500, 5, 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--iterations", type=int, default=62_500)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda,cpu")
    states, iterations = zip(*(gfnx_peer.build(4, 20, seed) for seed in range(options.seeds)), strict=True)
    state, iteration = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), iterations[0]
    config = WorldConfig(4, 20)
    found = {"peer": f"gfnx {metadata.version('gfnx')}", **measured_on(jax.devices()[0])}
    known = exact.tables(config)

    @jax.jit
    def chunk(first, count, state):
        return jax.lax.fori_loop(first, first + count, lambda i, s: jax.vmap(lambda one: iteration(i, one))(s), state)

    network = eqx.filter_eval_shape(eqx.nn.MLP, 80, 9, gfnx_peer.WIDTH, gfnx_peer.DEPTH, key=jax.random.key(0))
    rest = eqx.partition(network, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    @jax.jit
    def total_variation(weights, known):
        views = jax.nn.one_hot(known.states, config.side).reshape(config.states, -1)
        logits = jax.lax.map(jax.vmap(eqx.combine(weights, rest)), views.reshape(16, -1, 80)).reshape(-1, 9)[:, :5]
        mask = jnp.append(known.states < config.side - 1, jnp.ones((config.states, 1), bool), axis=1)
        log_pf = jax.nn.log_softmax(jnp.where(mask, logits, -1e9))
        learned = jnp.exp(exact.log_terminating(known, log_pf))
        return jnp.abs(learned - jnp.exp(known.log_rewards - world.log_z(config))).sum() / 2

    done, points = 0, []
    for point in range(POINT, options.iterations + 1, POINT):
        near = []
        for until in range(point - (NEAR - 1) * APART, point + 1, APART):
            state = chunk(jnp.int32(done), jnp.int32(until - done), state)
            done = until
            weights = state[0]["network"]
            near.append(
                [
                    float(total_variation(jax.tree.map(lambda x, s=s: x[s], weights), known))
                    for s in range(options.seeds)
                ]
            )
        each = np.median(near, axis=0)
        points.append({"iterations": point, "tv": float(each.mean()), "tv_each": each.tolist()})
        print(json.dumps(found | {"points": points}), flush=True)


if __name__ == "__main__":
    main()
