"""Quantile regression with the Huber loss, on one transition (Dabney et al. 2018a, eq. 10; 2018b, eq. 3).

The papers, rlax, Dopamine and DQN Zoo add the losses of the predicted quantiles up. sorrel's IQN averages over them, so
its loss is P times smaller: under Adam that changes nothing but the weight of ε, which is a lot where ε is large.

Shapes: P predicted quantiles, T target quantiles.
"""

import jax
import jax.numpy as jnp


def quantile_huber(prediction: jax.Array, taus: jax.Array, target: jax.Array, kappa: float = 1.0) -> jax.Array:
    """float32 []: the sum over predicted quantiles [P] of the mean over target quantiles [T].

    `taus` [P] are the fractions of the *predictions*. Neither the target nor the sign of the error passes a gradient.
    The loss is divided by κ, as in Dabney et al. 2018b and Dopamine's IQN; rlax leaves that out.
    """
    return jnp.sum(jnp.mean(_of_pairs(prediction, taus, target, kappa), axis=1))


def mean_quantile_huber(prediction: jax.Array, taus: jax.Array, target: jax.Array, kappa: float = 1.0) -> jax.Array:
    """float32 []: the mean over all pairs of a predicted [P] and a target [T] quantile, as in sorrel's IQN."""
    return jnp.mean(_of_pairs(prediction, taus, target, kappa))


def _of_pairs(prediction: jax.Array, taus: jax.Array, target: jax.Array, kappa: float) -> jax.Array:
    """float32 [P, T]: the loss of every pair."""
    delta = jax.lax.stop_gradient(target)[None, :] - prediction[:, None]  # [P, T]
    size = jnp.abs(delta)
    huber = jnp.where(size <= kappa, 0.5 * delta**2, kappa * (size - 0.5 * kappa))
    below = (jax.lax.stop_gradient(delta) < 0).astype(jnp.float32)
    return jnp.abs(taus[:, None] - below) * huber / kappa
