"""The product that every dense layer is."""

import jax


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """[…, out] from […, in], as one product of all rows.

    With one axis of rows the kernel's gradient contracts one axis; with several, XLA on a CPU transposes first.
    """
    rows = x.reshape(-1, x.shape[-1]) @ kernel + bias[None, :]
    return rows.reshape(*x.shape[:-1], kernel.shape[-1])
