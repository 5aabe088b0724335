"""A transformer as the trunk of a GFlowNet's network: a state is a row of tokens, each a value at a place.

Blocks are those of Vaswani et al. 2017: attention, then two dense layers, each with a residual connection and a layer
norm after it; places are encoded by sines. A learned token in front of the others stands for the whole state.

Shapes: R states, K tokens, V values of a token, W width, H attention heads.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xladder.nets.affine import PlainDense

EPSILON = 1e-5  # of a layer norm, as in PyTorch


def place_codes(places: int, width: int) -> np.ndarray:
    """float32 [places, W]: sines and cosines of each place, alternating, at wavelengths from 2π to 20,000π."""
    angles = np.arange(places)[:, None] * 10_000.0 ** (-np.arange(0, width, 2) / width)[None, :]
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(places, -1)[:, :width].astype(np.float32)


class Norm(nn.Module):
    """A layer norm."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 [R, W] from the same."""
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        deviation = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return centred * deviation * scale[None, :] + bias[None, :]


class Block(nn.Module):
    """Attention between all tokens of a state, then two dense layers for each."""

    heads: int
    tokens: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 [R · K, W] from the same."""
        width = x.shape[-1]
        shape = (-1, self.tokens, self.heads, width // self.heads)
        query, key, value = (part.reshape(shape) for part in jnp.split(PlainDense(3 * width, name="qkv")(x), 3, -1))
        scores = jnp.einsum("rqhw,rkhw->rhqk", query, key) * (width // self.heads) ** -0.5
        seen = jnp.einsum("rhqk,rkhw->rqhw", jax.nn.softmax(scores), value).reshape(-1, width)
        x = Norm(name="norm_1")(x + PlainDense(width, name="out")(seen))
        inside = jax.nn.relu(PlainDense(width, name="hidden")(x))
        return Norm(name="norm_2")(x + PlainDense(width, name="output")(inside))


class TokenTrunk(nn.Module):
    """A transformer on the one-hot encoding of a state, whose inputs come in groups of V, one for each token."""

    inputs: int
    width: int
    layers: int
    heads: int
    tokens: int
    knots: int = 0  # inputs that describe a condition

    @nn.compact
    def __call__(self, encoded: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        """float32 [R, 1 + K, W] from active inputs int32 [R, K]; the first stands for the whole state.

        A condition, float32 [R, knots], is added to the first.
        """
        table = self.param("rows", nn.initializers.normal(1.0), (self.inputs // self.tokens, self.width), jnp.float32)
        first = self.param("first", nn.initializers.normal(1.0), (self.width,), jnp.float32)
        values = table[encoded % (self.inputs // self.tokens)]
        count = self.tokens + 1
        whole = jnp.broadcast_to(first[None, None], (len(encoded), 1, self.width))
        if self.knots:
            assert condition is not None
            init = nn.initializers.normal(1.0)
            whole = whole + (condition @ self.param("condition", init, (self.knots, self.width), jnp.float32))[:, None]
        x = jnp.concatenate([whole, values], axis=1) + jnp.asarray(place_codes(count, self.width))[None]
        x = x.reshape(-1, self.width)
        for layer in range(self.layers):
            x = Block(self.heads, count, name=f"layer_{layer}")(x)
        return x.reshape(-1, count, self.width)
