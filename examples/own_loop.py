"""Our parts in a loop of your own: world, replay memory, network and losses are plain functions over explicit state.

Double DQN on CartPole in sixty lines. Nothing here knows of rungs, workloads or run directories.

    python own_loop.py
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from xladder.losses.value import huber
from xladder.nets.torsos import Mlp
from xladder.replay import history
from xladder.worlds.gymnax_world import GymnaxEnvs

ENVS, STEPS, BATCH, GAMMA = 16, 4_000, 128, 0.99
envs = GymnaxEnvs("cartpole", ENVS)
window = history.Window(stack=1, n_step=3, length=1_000)


class QNet(nn.Module):
    """A torso of ours and a linear layer: q-values of every action."""

    @nn.compact
    def __call__(self, states):
        """float32 […, A] from states […, F, D]."""
        return nn.Dense(envs.spec.actions)(Mlp((128, 128))(states))


net, optimiser = QNet(), optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-3))


def loss(params, target, batch):
    """Double DQN: the online network chooses, the target network judges."""
    q, target_q = net.apply(params, batch.states), net.apply(target, batch.next_states)
    best = net.apply(params, batch.next_states).argmax(-1)
    rows = jnp.arange(BATCH)
    aim = batch.returns + batch.discounts * target_q[rows, best]
    errors = jax.lax.stop_gradient(aim) - q[rows, batch.actions.astype(jnp.int32)]
    return jnp.mean(jax.vmap(lambda error: huber(error, 1.0))(errors) * batch.valid)


def step(carry, t):
    """One step of every env, then one update."""
    params, target, opt_state, cursor, memory, state, stack, is_first = carry
    act_key, world_key, sample_key = jax.random.split(jax.random.fold_in(jax.random.key(0), t), 3)
    epsilon = jnp.maximum(0.05, 1.0 - t / 1_500)
    explore = jax.random.uniform(act_key, (ENVS,)) < epsilon
    random = jax.random.randint(act_key, (ENVS,), 0, envs.spec.actions)
    actions = jnp.where(explore, random, net.apply(params, stack).argmax(-1)).astype(jnp.int32)
    state, made = envs.step(jax.random.split(world_key, ENVS), state, actions)
    row = history.History(stack[:, -1], actions, made.reward, made.terminated, made.truncated, is_first)
    memory, cursor = history.add(cursor, memory, row), history.advance(cursor, window.length)
    uniforms = jax.random.uniform(sample_key, (BATCH, history.CANDIDATES, 2))
    indices = history.sample_indices(window, cursor, memory, uniforms)
    batch = history.gather(window, memory, indices, jnp.float32(GAMMA))
    steps, opt_state = optimiser.update(jax.grad(loss)(params, target, batch), opt_state)
    params = optax.apply_updates(params, steps)
    target = optax.incremental_update(params, target, 0.01)
    stack = history.push(stack, made.frame, made.is_first)
    return (params, target, opt_state, cursor, memory, state, stack, made.is_first), made.is_first.sum()


def main():
    """The whole run is one XLA program."""
    state, frames = envs.reset(jax.random.split(jax.random.key(1), ENVS))
    stack = frames[:, None]
    params = net.init(jax.random.key(2), stack)
    memory = history.init(ENVS, window.length, envs.spec.shape, envs.spec.dtype, envs.spec.actions)
    start = params, params, optimiser.init(params), history.init_cursor(), memory, state, stack, jnp.ones(ENVS, bool)
    _, ended = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(STEPS)))(start)
    for number, quarter in enumerate(jnp.split(ended, 4), 1):
        print(f"quarter {number} of the run: {STEPS // 4 * ENVS / max(1, int(quarter.sum())):5.1f} steps per episode")


if __name__ == "__main__":
    main()
