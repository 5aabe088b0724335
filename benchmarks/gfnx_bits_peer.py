"""gfnx's bit sequences with trajectory balance at gfnx's settings: how fast it trains, or how well.

    /tmp/gfnx/bin/python benchmarks/gfnx_bits_peer.py [--device gpu] [--iterations 200]
    PYTHONPATH=src /tmp/gfnx/bin/python benchmarks/gfnx_bits_peer.py --curve 16 --every 10000 --iterations 50000

See `gfnx_peer.py` for the interpreter. The loop is that of gfnx's `baselines/tb_bitseq.py`, with its environment,
reward, rollout and masks, its transformer and optimizers, all in one `fori_loop` per chunk; metrics, evaluations and
logging are left out, which favours gfnx. Prints one line of JSON.

With `--curve N` published metrics of N seeds are computed at points of the run: modes found so far, and the Spearman
correlation on the test set, by gfnx's backward rollouts, ten from each sequence. Modes and test set are ours, the same
for both; that needs `xladder` on the path.
"""

import argparse
import json

import equinox as eqx
import gfnx
import jax
import jax.numpy as jnp
import optax
from gfnx import networks
from gfnx_peer import measure, options_of

BATCH, WIDTH, LAYERS, HEADS, RATE, RATE_LOGZ, DECAY, EPSILON = 16, 64, 3, 8, 1e-3, 5e-2, 1e-5, 1e-3
BITS, WORD, MODES, BETA, RADIUS, ROUNDS, TESTED = 120, 8, 60, 3.0, 30, 10, 600


def build(seed, modes=None):
    """The initial (parameters, optimizer state, key, loss, found), one iteration, and the environment and policy."""
    reward = gfnx.BitseqRewardModule(sentence_len=BITS, k=WORD, mode_set_size=MODES, reward_exponent=BETA)
    env = gfnx.BitseqEnvironment(reward, n=BITS, k=WORD)
    world = env.init(jax.random.key(1))
    if modes is not None:
        world = world.replace(reward_params={"mode_set": jnp.asarray(modes, bool)})
    targets = world.reward_params["mode_set"]
    key, net_key, head_key = jax.random.split(jax.random.key(seed), 3)
    encoder = networks.Encoder(
        vocab_size=env.ntoken,
        max_length=env.max_length + 1,
        embedding_size=WIDTH,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        dropout_rate=0.0,
        pad_id=-1,
        key=net_key,
    )
    head = eqx.nn.Linear(WIDTH, env.action_space.n // env.max_length, key=head_key)
    weights, rest = eqx.partition((encoder, head), eqx.is_array)
    params = {"network": weights, "logZ": jnp.zeros(())}
    optimizer = optax.multi_transform(
        {"network": optax.adamw(RATE, weight_decay=DECAY), "logZ": optax.adam(RATE_LOGZ)},
        {"network": jax.tree.map(lambda _: "network", weights), "logZ": "logZ"},
    )
    zeros = jnp.zeros(env.backward_action_space.n)

    def logits(weights, view):
        """Forward logits of one view: every token after the first has a word's worth of them."""
        encoder, head = eqx.combine(weights, rest)
        tokens = encoder(view, jnp.arange(view.shape[0]))["layers_out"][-1]
        return jnp.ravel(jax.vmap(head)(tokens[1:]))

    def chosen(logits, invalid, actions):
        every = jax.nn.log_softmax(gfnx.utils.mask_logits(logits, invalid))
        return jnp.take_along_axis(every, actions[..., None], axis=-1).squeeze(-1)

    def policy(epsilon, key, views, weights):
        ahead = jax.vmap(lambda view: logits(weights, view))(views)
        explore = jax.random.bernoulli(key, epsilon, (views.shape[0],))
        back = jnp.broadcast_to(zeros, (views.shape[0], zeros.size))
        return ahead, back, jnp.where(explore[:, None], 0.0, ahead)

    def loss(params, paths):
        ahead = jax.vmap(jax.vmap(lambda view: logits(params["network"], view)))(paths.obs)
        over_time = {"in_axes": (1, None), "out_axes": 1}
        invalid = jax.vmap(env.get_invalid_mask, **over_time)(paths.state, world)
        log_forward = jnp.where(paths.pad, 0.0, chosen(ahead, invalid, paths.action)).sum(1)
        after = jax.tree.map(lambda leaf: leaf[:, 1:], paths.state)
        invalid = jax.vmap(env.get_invalid_backward_mask, **over_time)(after, world)
        uniform = -jnp.log(jnp.maximum((~invalid).sum(-1), 1).astype(jnp.float32))
        target = jnp.where(paths.pad[:, :-1], 0.0, uniform + paths.log_gfn_reward[:, :-1]).sum(1)
        return optax.losses.squared_error(params["logZ"] + log_forward, target).mean()

    def iteration(number, state):
        params, opt_state, key, _, found = state
        key, sample_key = jax.random.split(key)

        def sampling(key, views, weights):
            ahead, back, explored = policy(EPSILON, key, views, weights)
            return explored, {"forward_logits": ahead, "backward_logits": back}

        paths, info = gfnx.utils.forward_rollout(sample_key, BATCH, sampling, params["network"], env, world)
        value, grads = jax.value_and_grad(loss)(params, paths)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        bits = jax.vmap(lambda tokens: gfnx.utils.bitseq.detokenize(tokens, WORD))(info["final_env_state"].tokens)
        near = (bits[:, None] != targets[None]).sum(-1) < RADIUS
        return optax.apply_updates(params, updates), opt_state, key, value, found | near.any(0)

    start = params, optimizer.init(params), key, jnp.zeros(()), jnp.zeros(MODES, bool)
    return start, iteration, (env, world, policy)


def correlation(env, world, policy, tests):
    """A function from weights to the Spearman correlation on the test set, int [T, words]."""
    states = gfnx.BitseqEnvState.from_tokens(jnp.asarray(tests))
    log_r = env.reward_module.log_reward(states, world)

    def back(key, views, weights):
        ahead, behind, _ = policy(0.0, key, views, weights)
        return behind, {"forward_logits": ahead, "backward_logits": behind}

    @jax.jit
    def spearman(weights):
        parts = jax.tree.map(lambda x: x.reshape(-1, TESTED, *x.shape[1:]), states)
        count = len(tests) // TESTED

        def part(given):
            number, some = given

            def once(i):
                key = jax.random.fold_in(jax.random.fold_in(jax.random.key(2), number), i)
                paths, _ = gfnx.utils.backward_rollout(key, some, back, weights, env, world)
                forward, backward = gfnx.utils.backward_trajectory_log_probs(env, paths, world)
                return forward - backward

            return jax.nn.logsumexp(jax.lax.map(once, jnp.arange(ROUNDS)), axis=0)

        log_p = jax.lax.map(part, (jnp.arange(count), parts)).reshape(-1)
        ranks = (jax.scipy.stats.rankdata(values) for values in (log_p, log_r))
        return jnp.corrcoef(*ranks)[0, 1]

    return spearman


def curve(options):
    """Modes found and Spearman correlation of several seeds at every `--every` iterations."""
    from xladder.worlds.bits import flipped_modes, to_words
    from xladder.worlds.bits_settings import WorldConfig

    config = WorldConfig(BITS, WORD, "any", MODES, BETA, "fraction", RADIUS)
    modes = config.mode_bits()
    made = [build(seed, modes) for seed in range(options.curve)]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one[0] for one in made))
    iteration, spearman = made[0][1], correlation(*made[0][2], to_words(flipped_modes(config, modes), WORD) - 1)

    @jax.jit
    def chunk(first, state):
        body = lambda i, s: jax.vmap(lambda one: iteration(i, one))(s)  # noqa: E731
        return jax.lax.fori_loop(first, first + options.every, body, state)

    points = []
    for first in range(0, options.iterations, options.every):
        state = chunk(jnp.int32(first), state)
        weights = state[0]["network"]
        each = [float(spearman(jax.tree.map(lambda x, s=s: x[s], weights))) for s in range(options.curve)]
        found = state[4].sum(1).tolist()
        points.append({"iterations": first + options.every, "spearman_each": each, "modes_found_each": found})
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curve", type=int, default=0, help="seeds whose published metrics are computed")
    parser.add_argument("--every", type=int, default=10_000, help="iterations between points of the curve")
    options = options_of(parser, 20)
    facts = {
        "bits": BITS,
        "word": WORD,
        "modes": MODES,
        "beta": BETA,
        "batch": BATCH,
        "network": f"transformer, {LAYERS} layers of {WIDTH}, {HEADS} heads",
        "adamw": [RATE, DECAY],
        "adam_logZ": RATE_LOGZ,
        "epsilon": EPSILON,
    }
    if options.curve:
        print(json.dumps({"peer": "gfnx", "device": jax.devices()[0].device_kind, **facts, "points": curve(options)}))
        return
    state, iteration, _ = build(options.seed)
    state, found = measure(state, iteration, options)
    print(json.dumps(found | facts | {"loss": float(state[3]), "logZ": float(state[0]["logZ"])}))


if __name__ == "__main__":
    main()
