"""The torso for views of cell codes: a dense layer on their one-hot encoding.

The encoding puts the channel first and shows code 0 as zeros. With F frames of V cells in E kinds it has F·E·V
entries, of which at most F·V are one, so the product with the kernel is a sum of F·V of its rows.

Shapes: F frames, V cells, E codes, H width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.nets.affine import affine
from xladder.nets.initial import symmetric_uniform


def one_hot(codes: jax.Array, num_codes: int) -> jax.Array:
    """float32 […, F·E·V] from int8 […, F, V]: channel first, code 0 as zeros."""
    channels = jnp.expand_dims(jnp.arange(num_codes, dtype=codes.dtype)[:, None], range(codes.ndim - 1))
    hot = (codes[..., None, :] == channels) & (channels != 0)  # […, F, E, V]
    return hot.astype(jnp.float32).reshape(*codes.shape[:-2], -1)


class CodesTorso(nn.Module):
    """A dense layer with ReLU on `one_hot(codes)`, as a product or, for few states, as a sum of looked-up rows."""

    width: int
    num_codes: int

    def __call__(self, codes: jax.Array) -> jax.Array:
        """float32 […, H] from int8 […, F, V]."""
        return self._layer(codes, lookup=False)

    def look_up(self, codes: jax.Array) -> jax.Array:
        """The same output as `__call__`, by lookup: cheaper for few states."""
        return self._layer(codes, lookup=True)

    @nn.compact
    def _layer(self, codes: jax.Array, lookup: bool) -> jax.Array:
        frames, cells = codes.shape[-2:]
        inputs = frames * self.num_codes * cells
        init = symmetric_uniform(inputs**-0.5)
        kernel = self.param("kernel", init, (inputs, self.width), jnp.float32)
        bias = self.param("bias", init, (self.width,), jnp.float32)
        if not lookup:
            return nn.relu(affine(one_hot(codes, self.num_codes), kernel, bias))
        lead = range(codes.ndim - 2)
        first = jnp.expand_dims((jnp.arange(frames) * self.num_codes)[:, None], lead)
        cell = jnp.expand_dims(jnp.arange(cells), range(codes.ndim - 1))
        rows = (first + codes.astype(jnp.int32)) * cells + cell  # […, F, V]
        shown = (codes != 0).astype(jnp.float32)
        return nn.relu(jnp.einsum("...fv,...fvh->...h", shown, kernel[rows]) + jnp.expand_dims(bias, lead))
