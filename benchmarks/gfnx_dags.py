"""gfnx on the posterior over graphs with five nodes, on the same data as `dags.py`: exact total variation and time.

    PYTHONPATH=src PYTHON benchmarks/gfnx_dags.py --seeds 16 --iterations 100000 --device gpu

Needs an interpreter that has gfnx (see `gfnx_peer.py`) and xladder, whose data and dynamic programming are used. gfnx
has no trainer to import. The loop is that of its `baselines/mdb_dag.py` with the package's environment, score, rollout
and masks, with its settings and its target network, all seeds vmapped. Its graph network is no part of the package: an
MLP of the size of ours takes its place. Prints a line of JSON at every point.
"""

import argparse
import json
import time

import equinox as eqx
import gfnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from xladder.families.gflownet import exact
from xladder.families.gflownet.dags_presets import PRESETS

CONFIG = PRESETS["published"]
NODES, BATCH = CONFIG.world.nodes, CONFIG.learner.batch_size
TARGET_UPDATE, NEAR, APART, POINTS = 1000, 5, 100, 5


def build(seed, iterations):
    """The initial state of a run, and one iteration of training on it."""
    data = jnp.asarray(CONFIG.world.dataset().values)
    prior, likelihood = gfnx.reward.UniformDAGPrior(num_variables=NODES), gfnx.reward.BGeScore(data=data)
    reward = gfnx.DAGRewardModule(prior=prior, likelihood=likelihood)
    env = gfnx.DAGEnvironment(reward, num_variables=NODES)
    world = env.init(jax.random.key(1))
    key, net_key = jax.random.split(jax.random.key(seed))
    learner = CONFIG.learner
    network = eqx.nn.MLP(NODES**2, NODES**2 + 1, learner.width, learner.layers, key=net_key)  # ReLU
    weights, rest = eqx.partition(network, eqx.is_array)
    optimizer = optax.adam(learner.lr)
    epsilon = optax.linear_schedule(learner.epsilon, learner.epsilon_end, int(learner.explore_until * iterations))

    def logits(weights, views):
        return jax.vmap(eqx.combine(weights, rest))(views.reshape(len(views), -1).astype(jnp.float32))

    def log_policy(weights, views, states):
        return jax.nn.log_softmax(
            gfnx.utils.mask_logits(logits(weights, views), env.get_invalid_mask(states, world)), axis=-1
        )

    def loss(weights, target, steps):
        here = log_policy(weights, steps.obs, steps.state)
        there = log_policy(target, steps.next_obs, steps.next_state)
        taken = jnp.take_along_axis(here, steps.action[:, None], axis=-1)[:, 0]
        invalid = env.get_invalid_backward_mask(steps.next_state, world)
        back = -jnp.log(jnp.maximum((~invalid).sum(-1), 1).astype(jnp.float32))
        change = reward.delta_score(steps.state, steps.action, steps.next_state, world)
        error = there[:, -1] + taken - here[:, -1] - back - change
        counts = ~(steps.done | steps.pad)
        return jnp.where(counts, optax.huber_loss(jnp.where(counts, error, 0.0)), 0.0).sum() / counts.sum()

    def iteration(number, state):
        weights, target, opt_state, key = state
        key, sample_key = jax.random.split(key)

        def policy(key, views, weights):
            ahead = logits(weights, views)
            explore = jax.random.bernoulli(jax.random.split(key)[1], epsilon(number), (BATCH,))
            ahead = jnp.where(explore[:, None], 0.0, ahead)
            return ahead, {"forward_logits": ahead, "backward_logits": jnp.zeros((BATCH, NODES**2 + 1))}

        paths, _ = gfnx.utils.forward_rollout(sample_key, BATCH, policy, weights, env, world)
        steps = gfnx.utils.split_traj_to_transitions(paths)
        updates, opt_state = optimizer.update(jax.grad(loss)(weights, target, steps), opt_state, weights)
        weights = optax.apply_updates(weights, updates)
        fresh = number % TARGET_UPDATE == 0
        target = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), weights, target)
        return weights, target, opt_state, key

    return (weights, weights, optimizer.init(weights), key), iteration, logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--iterations", type=int, default=CONFIG.iterations)
    parser.add_argument("--seeds", type=int, default=16)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu" if options.device == "cpu" else "cuda,cpu")
    built = [build(seed, options.iterations) for seed in range(options.seeds)]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one[0] for one in built))
    _, iteration, logits = built[0]
    known, bound = exact.tables(CONFIG.world), CONFIG.world.build()
    column = np.append(bound.world.sources * NODES + bound.world.targets, NODES**2)

    @jax.jit
    def chunk(first, count, state):
        return jax.lax.fori_loop(first, first + count, lambda i, s: jax.vmap(lambda one: iteration(i, one))(s), state)

    @jax.jit
    def total_variation(weights, known):
        edges = jax.vmap(bound.world.chart)(known.states)
        mask = jax.vmap(bound.forward_mask)(known.states)
        log_pf = jax.nn.log_softmax(jnp.where(mask, logits(weights, edges)[:, column], -1e9))
        learned = jnp.exp(exact.log_terminating(known, log_pf))
        return jnp.abs(learned - jax.nn.softmax(known.log_rewards)).sum() / 2

    done, points, seconds, timed = 0, [], 0.0, 0
    part = options.iterations // POINTS
    for point in range(part, POINTS * part + 1, part):
        near = []
        apart = min(APART, part // NEAR)
        for until in range(point - (NEAR - 1) * apart, point + 1, apart):
            begun = time.perf_counter()
            state = jax.block_until_ready(chunk(jnp.int32(done), jnp.int32(until - done), state))
            if done:  # the first chunk compiles
                seconds, timed = seconds + time.perf_counter() - begun, timed + until - done
            done = until
            each = [jax.tree.map(lambda x, s=s: x[s], state[0]) for s in range(options.seeds)]
            near.append([float(total_variation(one, known)) for one in each])
        each = np.median(near, axis=0)
        points.append({"iterations": point, "tv": float(each.mean()), "tv_each": each.tolist()})
        row = {"peer": "gfnx", "device": jax.devices()[0].device_kind, "seeds": options.seeds, "points": points}
        print(json.dumps(row | {"iterations_per_second": timed / seconds if seconds else None}), flush=True)


if __name__ == "__main__":
    main()
