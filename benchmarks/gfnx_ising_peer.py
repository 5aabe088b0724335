"""gfnx's Ising environment with trajectory balance at gfnx's settings: how fast it trains, or how well.

    /tmp/gfnx/bin/python benchmarks/gfnx_ising_peer.py [--device gpu] [--iterations 200]
    PYTHONPATH=src /tmp/gfnx/bin/python benchmarks/gfnx_ising_peer.py --side 3 --curve 16 --every 250 --iterations 5000

See `gfnx_peer.py` for the interpreter. The loop is that of gfnx's `baselines/tb_ising.py`, with its environment,
reward, rollout and masks, its network (four layers of 256) and optimizers, for couplings that are known. The baseline
also learns them from data, which takes another rollout and more passes through the network: left out here and in our
rows. Like the baseline, it runs the network once for P_F and again for P_B, unless `--once`. Prints one line of JSON.

With `--curve N` the exact total variation of N seeds is computed at points of the run, from gfnx's network by the same
dynamic programming as ours; that needs `xladder` on the path.
"""

import argparse
import json

import equinox as eqx
import gfnx
import jax
import jax.numpy as jnp
import optax
from gfnx_peer import measure, options_of

BATCH, WIDTH, DEPTH, RATE, RATE_LOGZ = 256, 256, 4, 1e-2, 1e-3


def build(side, strength, seed, batch=BATCH, rates=(RATE, RATE_LOGZ), once=False):
    """The initial (parameters, optimizer state, key, loss), one iteration, and the static part of the net."""
    sites = side * side
    env = gfnx.IsingEnvironment(gfnx.IsingRewardModule(), dim=sites)
    world = env.init(jax.random.key(1))
    couplings = gfnx.utils.get_true_ising_J(side, strength / 2)  # every bond counts twice in xᵀJx
    world = world.replace(reward_params=world.reward_params.replace(J=couplings))
    key, net_key = jax.random.split(jax.random.key(seed))
    forward, backward = env.action_space.n, env.backward_action_space.n
    network = eqx.nn.MLP(sites, forward + backward, WIDTH, DEPTH, key=net_key)  # ReLU
    weights, rest = eqx.partition(network, eqx.is_array)
    params = {"network": weights, "logZ": jnp.zeros(())}
    optimizer = optax.multi_transform(
        {"network": optax.adam(rates[0]), "logZ": optax.adam(rates[1])},
        {"network": jax.tree.map(lambda _: "network", weights), "logZ": "logZ"},
    )

    def logits(weights, views):
        """Forward and backward logits of a batch of views."""
        return jnp.split(jax.vmap(eqx.combine(weights, rest))(views), [forward], axis=-1)

    def chosen(logits, invalid, actions):
        """Log-probability of each action under the masked logits."""
        every = jax.nn.log_softmax(gfnx.utils.mask_logits(logits, invalid))
        return jnp.take_along_axis(every, actions[..., None], axis=-1).squeeze(-1)

    def loss(params, paths):
        ahead, back = jax.vmap(lambda views: logits(params["network"], views))(paths.obs)
        back = back[:, 1:]
        if not once:
            _, back = jax.vmap(lambda views: logits(params["network"], views))(paths.obs[:, 1:])
        invalid = jax.vmap(env.get_invalid_mask, in_axes=(1, None), out_axes=1)(paths.state, world)
        log_forward = jnp.where(paths.pad, 0.0, chosen(ahead, invalid, paths.action)).sum(1)
        before = jax.tree.map(lambda leaf: leaf[:, :-1], paths.state)
        after = jax.tree.map(lambda leaf: leaf[:, 1:], paths.state)
        undone = jax.vmap(env.get_backward_action, in_axes=(1, 1, 1, None), out_axes=1)(
            before, paths.action[:, :-1], after, world
        )
        invalid = jax.vmap(env.get_invalid_backward_mask, in_axes=(1, None), out_axes=1)(after, world)
        log_backward = jnp.where(paths.pad[:, :-1], 0.0, chosen(back, invalid, undone)).sum(1)
        log_reward = jnp.where(paths.pad, 0.0, paths.log_gfn_reward).sum(1)
        return optax.l2_loss(log_backward + log_reward, log_forward + params["logZ"]).mean()

    def iteration(number, state):
        params, opt_state, key, _ = state
        key, sample_key = jax.random.split(key)

        def policy(key, views, weights):
            ahead, back = logits(weights, views)
            return ahead, {"forward_logits": ahead, "backward_logits": back}

        paths, _ = gfnx.utils.forward_rollout(sample_key, batch, policy, params["network"], env, world)
        value, grads = jax.value_and_grad(loss)(params, paths)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, key, value

    return (params, optimizer.init(params), key, jnp.zeros(())), iteration, rest


def curve(options):
    """Exact total variation of several seeds at every `--every` iterations: [{iterations, tv, tv_each}]."""
    from xladder.families.gflownet import exact
    from xladder.worlds.ising_settings import WorldConfig

    config = WorldConfig(options.side, options.strength, 1.0, "any")
    known, log_z = exact.tables(config), config.build().log_z()
    rates = options.rate, options.rate_logz
    made = [build(options.side, options.strength, seed, options.batch, rates) for seed in range(options.curve)]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one[0] for one in made))
    iteration, rest, sites = made[0][1], made[0][2], options.side**2

    @jax.jit
    def chunk(first, state):
        body = lambda i, s: jax.vmap(lambda one: iteration(i, one))(s)  # noqa: E731
        return jax.lax.fori_loop(first, first + options.every, body, state)

    @jax.jit
    def total_variation(weights, known):
        views = known.states - 1  # gfnx: −1 not set, 0 down, 1 up; ours is one more
        logits = jax.vmap(eqx.combine(weights, rest))(views)[:, : 2 * sites]
        unset = known.states == 0
        mask = jnp.concatenate([unset, unset], axis=1)
        log_pf = jax.nn.log_softmax(jnp.where(mask, logits, -1e9))
        complete = ~unset.any(1, keepdims=True)
        log_pf = jnp.concatenate([jnp.where(mask, log_pf, -1e9), jnp.where(complete, 0.0, -1e9)], axis=1)
        learned = jnp.exp(exact.log_terminating(known, log_pf))
        return jnp.abs(learned - jnp.exp(known.log_rewards - log_z)).sum() / 2

    points = []
    for first in range(0, options.iterations, options.every):
        state = chunk(jnp.int32(first), state)
        weights = state[0]["network"]
        each = [float(total_variation(jax.tree.map(lambda x, s=s: x[s], weights), known)) for s in range(options.curve)]
        points.append({"iterations": first + options.every, "tv": sum(each) / len(each), "tv_each": each})
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=10)
    parser.add_argument("--strength", type=float, default=0.2, help="J / T, which is 2σ")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--rate-logz", type=float, default=RATE_LOGZ)
    parser.add_argument("--curve", type=int, default=0, help="seeds whose exact total variation is computed")
    parser.add_argument("--every", type=int, default=250, help="iterations between points of the curve")
    parser.add_argument("--once", action="store_true", help="one pass through the network for both policies, not two")
    options = options_of(parser, 10)
    facts = {
        "lattice": f"{options.side}x{options.side}",
        "strength": options.strength,
        "batch": options.batch,
        "passes": 1 if options.once else 2,
        "network": f"{DEPTH}x{WIDTH} relu, one trunk",
        "adam": options.rate,
        "adam_logZ": options.rate_logz,
    }
    if options.curve:
        print(json.dumps({"peer": "gfnx", "device": jax.devices()[0].device_kind, **facts, "points": curve(options)}))
        return
    rates = options.rate, options.rate_logz
    state, iteration, _ = build(options.side, options.strength, options.seed, options.batch, rates, options.once)
    state, found = measure(state, iteration, options)
    print(json.dumps(found | facts | {"loss": float(state[3]), "logZ": float(state[0]["logZ"])}))


if __name__ == "__main__":
    main()
