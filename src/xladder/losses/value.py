"""Building blocks of value learners' losses, on one transition.

- Huber and squared loss of a temporal-difference error: Mnih et al. 2015
- projection of a distribution onto fixed atoms, and the cross-entropy with it: Bellemare et al. 2017 ("C51")
- the log-policy as a reward, and soft values of the next state: Vieillard et al. 2020 ("Munchausen")

Quantile regression is in `quantile.py`. No gradient passes through `project`, the target of `cross_entropy` or
`munchausen_bonus`; callers that subtract a value from a target have to stop the target's gradient first.
Shapes: A actions, Z atoms.
"""

import jax
import jax.numpy as jnp


def huber(error: jax.Array, kappa: jax.Array | float) -> jax.Array:
    """float32, elementwise: ½e² where |e| ≤ κ and κ·(|e| − ½κ) beyond; the gradient is e, clipped to ±κ.

    κ = inf is ½e² everywhere: rlax and Optax call that `l2_loss`, and PQN uses it.
    """
    # One product for both cases: `where` would send inf · 0 through the gradient when κ is infinite.
    cut = jnp.clip(error, -kappa, kappa)
    return cut * (error - 0.5 * cut)


def squared(error: jax.Array) -> jax.Array:
    """float32, elementwise: e², with the gradient 2e. PyTorch, CleanRL and Dopamine call this MSE, without a ½."""
    return error**2


def project(support: jax.Array, probabilities: jax.Array, target_support: jax.Array) -> jax.Array:
    """float32 [Z]: the distribution on `support` [Z] that comes nearest to `probabilities` [Z] at `target_support` [Z].

    Each target atom is clipped to the support's range and its mass split between the two neighbouring atoms, more to
    the closer one. `support` is evenly spaced and ascending, and Z ≥ 2.
    """
    atoms = support.shape[0]
    low, high = support[0], support[-1]
    # Positions are counted in atoms: the two shares then add up to one, where 1 − |Δ|/δ would lose or gain some mass.
    place = (jnp.clip(target_support, low, high) - low) / (high - low) * (atoms - 1)  # [Z], from 0 to Z − 1
    distance = jnp.abs(jnp.arange(atoms, dtype=place.dtype)[:, None] - place[None, :])  # [Z, Z], support × target
    # A sum, not a matrix product, which accelerators may round to fewer digits.
    shares = jnp.maximum(1.0 - distance, 0.0) * probabilities[None, :]
    return jax.lax.stop_gradient(jnp.sum(shares, axis=1))


def cross_entropy(logits: jax.Array, target_probabilities: jax.Array) -> jax.Array:
    """float32 []: −Σ p·log softmax(logits), both [Z]; it differs from the KL divergence by the entropy of p."""
    return -jnp.sum(jax.lax.stop_gradient(target_probabilities) * jax.nn.log_softmax(logits))


def soft_values(values: jax.Array, temperature: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    """float32 [A] each: the policy π = softmax(q/τ) and τ·log π, from values q [A] and a temperature τ > 0.

    The soft value of a state is Σ π·(z − τ·log π), with z the value of each action, or one quantile of it at a time.
    """
    # Subtracting the maximum first keeps all digits of the differences, however small τ is.
    below = values - jax.lax.stop_gradient(jnp.max(values))
    weight = jnp.exp(below / temperature)
    total = jnp.sum(weight)
    return weight / total, below - temperature * jnp.log(total)


def munchausen_bonus(
    target_values_now: jax.Array,
    action: jax.Array | int,
    temperature: jax.Array | float,
    floor: jax.Array | float,
    scale: jax.Array | float,
) -> jax.Array:
    """float32 []: the bonus added to the reward, α·clip(τ·log π(a|s), l₀, 0), with α = `scale` and l₀ = `floor` < 0.

    `target_values_now` [A] are the target network's values of the state in which `action` was taken. The paper's
    settings are τ = 0.03, l₀ = −1 and α = 0.9.
    """
    _, scaled_log_policy = soft_values(target_values_now, temperature)
    return jax.lax.stop_gradient(scale * jnp.clip(scaled_log_policy[action], floor, 0.0))
