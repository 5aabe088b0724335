"""Quantile regression with the Huber loss, on one transition (Dabney et al. 2018, eq. 3).

Shapes: P predicted quantiles, T target quantiles.
"""

import jax
import jax.numpy as jnp


def quantile_huber(prediction: jax.Array, taus: jax.Array, target: jax.Array, kappa: float = 1.0) -> jax.Array:
    """float32 []: mean over all pairs of a predicted [P] and a target [T] quantile.

    `taus` [P] are the fractions of the *predictions*. Neither the target nor the sign of the error passes a gradient.
    """
    delta = jax.lax.stop_gradient(target)[None, :] - prediction[:, None]  # [P, T]
    size = jnp.abs(delta)
    huber = jnp.where(size <= kappa, 0.5 * delta**2, kappa * (size - 0.5 * kappa))
    below = (jax.lax.stop_gradient(delta) < 0).astype(jnp.float32)
    return jnp.mean(jnp.abs(taus[:, None] - below) * huber / kappa)
