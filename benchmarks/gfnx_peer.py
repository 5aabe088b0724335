"""Time gfnx's hypergrid with trajectory balance at the published settings: a JAX library for comparison.

    python3.11 -m venv /tmp/gfnx && /tmp/gfnx/bin/pip install gfnx==0.0.1 equinox optax
    /tmp/gfnx/bin/python benchmarks/gfnx_peer.py [--device gpu] [--iterations 2000]

gfnx pins numpy 1.26.4, and so pip picks jax 0.6.2, without CUDA. For a newer jax (add `[cuda12]` for a GPU):
`pip install jax equinox optax chex jaxtyping networkx omegaconf matplotlib tqdm flax` and then, with `--no-deps`,
`gfnx==0.0.1 flashbax jax-tqdm`.

gfnx has no trainer to import: its baselines are single files, found only in its source archive. The loop here is that
of its `baselines/tb_hypergrid.py` with the package's own environment, reward, rollout and masks, and with the same
network and optimizers, all in one `fori_loop` per chunk. The baseline's metrics, evaluations and per-step logging are
left out, which favours gfnx. Prints one line of JSON.
"""

import argparse
import json
import os
import time
from importlib import metadata

import equinox as eqx
import gfnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from peer_facts import peak_memory_mb

BATCH, WIDTH, DEPTH, RATE, RATE_LOGZ, EPSILON, EPSILON_ITERATIONS = 16, 256, 2, 1e-3, 0.1, 0.1, 30_000


def build(dim, side, seed):
    """The initial (parameters, optimizer state, key, loss) and one iteration of training on them."""
    env = gfnx.HypergridEnvironment(gfnx.EasyHypergridRewardModule(), dim=dim, side=side)
    world = env.init(jax.random.key(1))
    key, net_key = jax.random.split(jax.random.key(seed))
    forward, backward = env.action_space.n, env.backward_action_space.n
    network = eqx.nn.MLP(env.observation_space.shape[0], forward + backward, WIDTH, DEPTH, key=net_key)  # ReLU
    weights, rest = eqx.partition(network, eqx.is_array)
    params = {"network": weights, "logZ": jnp.zeros(())}
    optimizer = optax.multi_transform(
        {"network": optax.adam(RATE), "logZ": optax.adam(RATE_LOGZ)},
        {"network": jax.tree.map(lambda _: "network", weights), "logZ": "logZ"},
    )
    epsilon = optax.linear_schedule(EPSILON, 0.0, EPSILON_ITERATIONS)

    def logits(weights, views):
        """Forward and backward logits of a batch of views."""
        return jnp.split(jax.vmap(eqx.combine(weights, rest))(views), [forward], axis=-1)

    def chosen(logits, invalid, actions):
        """Log-probability of each action under the masked logits."""
        every = jax.nn.log_softmax(gfnx.utils.mask_logits(logits, invalid))
        return jnp.take_along_axis(every, actions[..., None], axis=-1).squeeze(-1)

    over_time = {"out_axes": 1}

    def loss(params, paths):
        ahead, back = jax.vmap(lambda views: logits(params["network"], views))(paths.obs)
        invalid = jax.vmap(env.get_invalid_mask, in_axes=(1, None), **over_time)(paths.state, world)
        log_forward = jnp.where(paths.pad, 0.0, chosen(ahead, invalid, paths.action)).sum(1)
        before = jax.tree.map(lambda leaf: leaf[:, :-1], paths.state)
        after = jax.tree.map(lambda leaf: leaf[:, 1:], paths.state)
        undone = jax.vmap(env.get_backward_action, in_axes=(1, 1, 1, None), **over_time)(
            before, paths.action[:, :-1], after, world
        )
        invalid = jax.vmap(env.get_invalid_backward_mask, in_axes=(1, None), **over_time)(after, world)
        gains = chosen(back[:, 1:], invalid, undone) + paths.log_gfn_reward[:, :-1]
        target = jnp.where(paths.pad[:, :-1], 0.0, gains).sum(1)
        return optax.losses.squared_error(params["logZ"] + log_forward, target).mean()

    def iteration(number, state):
        params, opt_state, key, _, steps = state
        key, sample_key = jax.random.split(key)

        def policy(key, views, weights):
            ahead, back = logits(weights, views)
            _, explore_key = jax.random.split(key)
            explore = jax.random.bernoulli(explore_key, epsilon(number), (BATCH,))
            ahead = jnp.where(explore[:, None], 0.0, ahead)
            return ahead, {"forward_logits": ahead, "backward_logits": back}

        paths, info = gfnx.utils.forward_rollout(sample_key, BATCH, policy, params["network"], env, world)
        value, grads = jax.value_and_grad(loss)(params, paths)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        steps = steps + info["trajectory_length"].mean()
        return optax.apply_updates(params, updates), opt_state, key, value, steps

    return (params, optimizer.init(params), key, jnp.zeros(()), jnp.zeros(())), iteration


def options_of(parser, least_chunk):
    """The command line of a peer, on which the device is already chosen."""
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--iterations", type=int, default=20 * least_chunk)
    parser.add_argument("--chunk", type=int, default=least_chunk, help="iterations per timed call")
    parser.add_argument("--seed", type=int, default=111)
    options = parser.parse_args()
    if options.iterations < options.chunk:
        parser.error("--iterations has to be at least --chunk")
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda,cpu")
    return options


def measure(state, iteration, options):
    """Train in chunks of one `fori_loop` each; the last state, and what was measured."""
    load = os.getloadavg()[0]

    @jax.jit
    def chunk(first, state):
        return jax.lax.fori_loop(first, first + options.chunk, iteration, state)

    begun = time.perf_counter()
    chunk = chunk.lower(jnp.int32(0), state).compile()
    compiling = time.perf_counter() - begun
    times = []
    for first in range(0, options.iterations - options.chunk + 1, options.chunk):
        begun = time.perf_counter()
        state = jax.block_until_ready(chunk(jnp.int32(first), state))
        times.append(time.perf_counter() - begun)
    done = options.chunk * len(times)
    return state, {
        "peer": f"gfnx {metadata.version('gfnx')}",
        "iterations_per_second": options.chunk / float(np.median(times)),
        "iterations_per_second_mean": done / sum(times),
        "compile_seconds": compiling,
        "iterations": done,
        "chunk": options.chunk,
        "device": jax.devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "peak_memory_mb": peak_memory_mb(),
        "seed": options.seed,
        **{name: metadata.version(name) for name in ("jax", "jaxlib", "equinox", "optax", "numpy")},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=4)
    parser.add_argument("--side", type=int, default=20)
    options = options_of(parser, 100)
    state, found = measure(*build(options.dim, options.side, options.seed), options)
    params, _, _, value, steps = state
    facts = {
        "grid": f"{options.side}^{options.dim}",
        "reward": "easy",
        "batch": BATCH,
        "network": f"{DEPTH}x{WIDTH} relu, one trunk",
        "adam": RATE,
        "adam_logZ": RATE_LOGZ,
        "epsilon": [EPSILON, 0.0, EPSILON_ITERATIONS],
        "steps_per_trajectory": float(steps) / found["iterations"],
        "loss": float(value),
        "logZ": float(params["logZ"]),
    }
    print(json.dumps(found | facts))


if __name__ == "__main__":
    main()
