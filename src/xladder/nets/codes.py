"""The torso for views of codes: a dense layer on their encoding (`core.encoding`).

With F frames of I inputs the encoding has F·I entries. In a one-hot encoding of V cells in E kinds these are F·E·V, of
which at most F·V are one, so the product with the kernel is a sum of F·V of its rows.

Shapes: F frames, V cells, E codes, C channels, I inputs per frame, R entries of a frame that are not zero, H width.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.encoding import Encoding, Part
from xladder.nets.affine import affine
from xladder.nets.initial import symmetric_uniform

DENSE = 0.5  # share of entries that are not zero above which looking up rows is no cheaper than the product


def encode(codes: jax.Array, encoding: Encoding) -> jax.Array:
    """float32 […, F·I] from int8 […, F, V]: block by block, channel first."""
    seen = [_channels(codes, part) for part in encoding.parts]  # […, F, C, V] each
    if len(seen) == 1:
        return seen[0].reshape(*codes.shape[:-2], -1)
    flat = jnp.concatenate([x.reshape(*codes.shape[:-1], -1) for x in seen], axis=-1)
    return flat.reshape(*codes.shape[:-2], -1)


def _channels(codes: jax.Array, part: Part) -> jax.Array:
    """float32 […, F, C, V]: one block of the encoding."""
    codes = codes[..., part.first_cell : part.first_cell + part.block.cells]
    if not part.one_hot:
        return jnp.moveaxis(jnp.asarray(part.block.table())[codes], -1, -2)
    channels = jnp.expand_dims(jnp.arange(part.block.channels, dtype=codes.dtype)[:, None], range(codes.ndim - 1))
    hot = (codes[..., None, :] == channels) & (channels != 0)
    return hot.astype(jnp.float32)


def multiply(codes: jax.Array, kernel: jax.Array, encoding: Encoding, first: int = 0) -> jax.Array:
    """float32 […, H]: what some frames of a state, int8 […, F, V], contribute to `encode(state) @ kernel`.

    `first` is the place of the first of them in the state. Rows are looked up if most entries are zero.
    """
    if codes.shape[-2] == 0:
        return jnp.zeros((*codes.shape[:-2], kernel.shape[-1]), jnp.float32)
    size = encoding.num_inputs
    entries = sum(part.block.cells * _entries(part)[0].shape[1] for part in encoding.parts)
    if entries > DENSE * size:
        return encode(codes, encoding) @ kernel[first * size : (first + codes.shape[-2]) * size]
    found = [_rows(codes, part, size, first) for part in encoding.parts]
    rows, weights = (jnp.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))  # […, F, R]
    return jnp.einsum("...fr,...frh->...h", weights, kernel[rows])


class CodesTorso(nn.Module):
    """A dense layer with ReLU on `encode(codes)`, as a product or, for few states, as a sum of looked-up rows."""

    width: int
    encoding: Encoding
    dtype: Any = jnp.float32  # of the factors of the product; looked-up rows are summed in float32

    def __call__(self, codes: jax.Array) -> jax.Array:
        """float32 […, H] from int8 […, F, V]."""
        return self._layer(codes, lookup=False)

    def look_up(self, codes: jax.Array) -> jax.Array:
        """The same output as `__call__`, by lookup: cheaper for few states, if most entries are zero."""
        return self._layer(codes, lookup=True)

    @nn.compact
    def _layer(self, codes: jax.Array, lookup: bool) -> jax.Array:
        inputs = codes.shape[-2] * self.encoding.num_inputs
        init = symmetric_uniform(inputs**-0.5)
        kernel = self.param("kernel", init, (inputs, self.width), jnp.float32)
        bias = self.param("bias", init, (self.width,), jnp.float32)
        if not lookup:
            return nn.relu(affine(encode(codes, self.encoding), kernel, bias, self.dtype))
        return nn.relu(multiply(codes, kernel, self.encoding) + jnp.expand_dims(bias, range(codes.ndim - 2)))


def _rows(codes: jax.Array, part: Part, num_inputs: int, first_frame: int) -> tuple[jax.Array, jax.Array]:
    """Rows of the kernel and their weights, int32 and float32 […, F, R], for one block."""
    frames, cells = codes.shape[-2], part.block.cells
    seen = codes[..., part.first_cell : part.first_cell + cells]
    codes = seen.astype(jnp.int32)
    lead = range(codes.ndim - 2)
    frame = first_frame + jnp.arange(frames)
    first = jnp.expand_dims((frame * num_inputs)[:, None], lead) + part.first_input
    cell = jnp.expand_dims(jnp.arange(cells), range(codes.ndim - 1))
    if part.one_hot:
        return first + codes * cells + cell, (seen != 0).astype(jnp.float32)
    channels, weights = (jnp.asarray(table) for table in _entries(part))  # [codes, entries]
    rows = [first + channels[:, k][codes] * cells + cell for k in range(channels.shape[1])]
    return jnp.concatenate(rows, axis=-1), jnp.concatenate([w[codes] for w in weights.T], axis=-1)


def _entries(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """For each code, the channels that are not zero and their numbers, int32 and float32 [codes, entries]."""
    table = part.block.table()
    most = int((table != 0).sum(1).max())
    order = np.argsort(table == 0, axis=1, kind="stable")[:, :most].astype(np.int32)
    return order, np.take_along_axis(table, order, axis=1)
