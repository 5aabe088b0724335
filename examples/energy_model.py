"""Learn an energy from data, with a GFlowNet as its sampler: EB-GFN (Zhang et al. 2022) in a loop of your own.

Spins on a 4 × 4 torus, log p(s) = sᵀJs − log Z. J is learned from perfect samples of the true model; the GFlowNet
samples the present one. The published figure is −log RMSE(J), higher is better.

    python energy_model.py
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.ising_presets import Config
from xladder.families.gflownet.sampling import weigh
from xladder.learners.gflownet import Explore, GFlowNetLearner
from xladder.worlds.ising_exact import perfect_samples
from xladder.worlds.ising_settings import WorldConfig

SIDE, SIGMA, DATA, BATCH, UPDATES = 4, 0.15, 2000, 64, 1500
L1 = 0.01  # couplings are few: those that are not needed shrink
config = Config(WorldConfig(SIDE, order="any"), LearnerConfig(BATCH, width=128), iterations=UPDATES)
steps, sites = config.world.steps, SIDE * SIDE
data = jnp.asarray((perfect_samples(SIDE, 2 * SIGMA, DATA).astype(np.int32) + 3) // 2)  # as states: 1 down, 2 up
energy_optimiser = optax.adam(2e-3)


@dataclass(frozen=True)
class EnergyLearner(GFlowNetLearner):
    """A GFlowNet whose log-reward has parameters of its own."""

    couplings: jax.Array | None = None

    def log_rewards(self, states, condition=None):
        """float32 [B]: sᵀJs."""
        spins = spins_of(states)
        return jnp.einsum("bi,ij,bj->b", spins, self.couplings, spins)


def spins_of(states):
    """float32 […, n]: −1 and 1."""
    return (2 * states - 3).astype(jnp.float32)


def update(agent, couplings, moments, key):
    """One update of the sampler by trajectory balance, and one of the energy by contrast with data."""
    learner = EnergyLearner(config, couplings=couplings)
    forward, back, chosen, accept = jax.random.split(key, 4)
    batch = learner.sample(agent.params, Explore(0.05, 1.0), jax.random.uniform(forward, (steps, BATCH)))
    gradient, _ = learner.gradient(agent, batch, steps * BATCH)

    # A step of Metropolis-Hastings from data to what the sampler proposes: right even while the sampler is not.
    true, proposed = jax.random.choice(chosen, data, (BATCH,)), learner.objects(batch)
    ways = learner.sample_backward(agent.params, true, jax.random.uniform(back, (steps, BATCH)))
    ratio = weigh(learner, agent.params, batch) - weigh(learner, agent.params, ways)
    moved = jnp.log(jax.random.uniform(accept, (BATCH,))) < ratio
    positive, negative = spins_of(true), spins_of(jnp.where(moved[:, None], proposed, true))
    contrast = (negative.T @ negative - positive.T @ positive) / BATCH + L1 * jnp.sign(couplings)
    direction, moments = energy_optimiser.update(contrast * (1 - jnp.eye(sites)), moments)
    return learner.update(agent, gradient), optax.apply_updates(couplings, direction), moments, moved.mean()


@partial(jax.jit, donate_argnums=0)
def chunk(carry, keys):
    """Many updates in one program."""

    def one(carry, key):
        *carry, moved = update(*carry, key)
        return tuple(carry), moved

    return jax.lax.scan(one, carry, keys)


def error(couplings):
    """−log RMSE to the true couplings, σ between neighbours."""
    index = np.arange(sites).reshape(SIDE, SIDE)
    true = np.zeros((sites, sites))
    for axis in (0, 1):
        near = np.roll(index, 1, axis)
        true[index, near] = true[near, index] = SIGMA
    return -np.log(np.sqrt(np.mean((np.asarray(couplings) - true) ** 2)))


start = jnp.zeros((sites, sites))
carry = GFlowNetLearner(config).init(jax.random.key(0)), start, energy_optimiser.init(start)
print(f"−log RMSE {error(start):.2f} with no couplings")
for part in np.array_split(jax.random.split(jax.random.key(1), UPDATES), 5):
    carry, moved = chunk(carry, part)
    print(f"−log RMSE {error(carry[1]):.2f}, {float(moved.mean()):.0%} of the sampler's lattices accepted")
