"""The product that every dense layer is, and the layer itself."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.nets.initial import symmetric_uniform


def affine(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """[…, out] from […, in], as one product of all rows.

    With one axis of rows the kernel's gradient contracts one axis; with several, XLA on a CPU transposes first.
    """
    rows = x.reshape(-1, x.shape[-1]) @ kernel + bias[None, :]
    return rows.reshape(*x.shape[:-1], kernel.shape[-1])


class PlainDense(nn.Module):
    """A dense layer with PyTorch's default initial distribution."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[…, H] from […, in]."""
        init = symmetric_uniform(x.shape[-1] ** -0.5)
        kernel = self.param("kernel", init, (x.shape[-1], self.width), jnp.float32)
        return affine(x, kernel, self.param("bias", init, (self.width,), jnp.float32))
