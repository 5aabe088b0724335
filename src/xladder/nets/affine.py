"""The matrix product of dense layers, and a dense layer."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.nets.initial import symmetric_uniform


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def rounded_product(x: jax.Array, kernel: jax.Array, dtype: Any, kept: Any = jnp.float32) -> jax.Array:
    """[R, out] from [R, in] and [in, out], both rounded to `dtype`, accumulated in float32 and returned as `kept`.

    In the backward pass the gradient is rounded, too, so that its products are as fast as this one.
    """
    return jnp.matmul(x.astype(dtype), kernel.astype(dtype), preferred_element_type=kept)


def _rounded_forward(x: jax.Array, kernel: jax.Array, dtype: Any, kept: Any) -> tuple[jax.Array, Any]:
    # Saved as multiplied: half the bytes of float32, and the same numbers. The empty array keeps the type of x.
    return rounded_product(x, kernel, dtype, kept), (x.astype(dtype), kernel.astype(dtype), jnp.zeros((0,), x.dtype))


def _rounded_backward(dtype: Any, kept: Any, saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel, like = saved
    return rounded_product(gradient, kernel.T, dtype, like.dtype), rounded_product(x.T, gradient, dtype)


rounded_product.defvjp(_rounded_forward, _rounded_backward)


def product(x: jax.Array, kernel: jax.Array, dtype: Any = jnp.float32, kept: Any = jnp.float32) -> jax.Array:
    """[R, out] from [R, in] and [in, out], multiplied in `dtype` and, unless that is float32, returned as `kept`."""
    return x @ kernel if jnp.dtype(dtype) == jnp.float32 else rounded_product(x, kernel, dtype, jnp.dtype(kept))


def affine(
    x: jax.Array, kernel: jax.Array, bias: jax.Array, dtype: Any = jnp.float32, kept: Any = jnp.float32
) -> jax.Array:
    """[…, out] of type `kept` from […, in], as a single product over all rows, multiplied in `dtype`.

    With one axis of rows the kernel's gradient contracts one axis; with several, XLA on a CPU transposes first.
    """
    # The bias is added in float32 even where the product is kept in fewer bits, so that its gradient is summed in that.
    rows = (product(x.reshape(-1, x.shape[-1]), kernel, dtype, kept).astype(jnp.float32) + bias[None, :]).astype(kept)
    return rows.reshape(*x.shape[:-1], kernel.shape[-1])


class PlainDense(nn.Module):
    """A dense layer with PyTorch's default initial distribution."""

    width: int
    dtype: Any = jnp.float32  # of the factors; parameters and sums are float32
    kept: Any = jnp.float32  # of the results

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[…, H] from […, in]."""
        init = symmetric_uniform(x.shape[-1] ** -0.5)
        kernel = self.param("kernel", init, (x.shape[-1], self.width), jnp.float32)
        bias = self.param("bias", init, (self.width,), jnp.float32)
        return affine(x, kernel, bias, self.dtype, self.kept)


class DenseTorso(PlainDense):
    """A dense layer with ReLU, as the torso for states that are vectors of numbers."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 […, H] from […, in]."""
        return nn.relu(super().__call__(x))
