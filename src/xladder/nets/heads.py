"""The head of a value network: maps a state's features to outputs that describe the return of every action.

The outputs depend on the kind: one value (`scalar`), the logits of fixed atoms (`categorical`, Bellemare et
al. 2017), quantiles at fixed fractions (`quantile`, Dabney et al. 2018a) or at fractions that are passed in
(`implicit`, Dabney et al. 2018b). Any of them may be dueling (Wang et al. 2016) and noisy (Fortunato et al. 2018).
There is no randomness here: fractions and noise are arguments.

Shapes: E features, Q fractions, H width, Z numbers per action, A actions. Leading axes are states of a batch.
"""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xladder.nets.affine import PlainDense
from xladder.nets.noisy import NoisyDense, Shapes

MOST_WRITTEN_OUT = 128  # fractions whose sum is unrolled


def cos_pi(x: jax.Array) -> jax.Array:
    """cos(π·x) with an error of at most 2e-7: a polynomial, which vectorises, unlike XLA's cosine.

    cos(π·x) = sin(π·s) with s = ½ − |x − 2·round(x/2)| in [−½, ½]; the coefficients are Taylor's.
    """
    s = 0.5 - jnp.abs(x - 2.0 * jnp.round(0.5 * x))
    terms = [(-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(6)]
    return s * jnp.polyval(jnp.array(terms[::-1], jnp.float32), s * s)


@jax.custom_vjp
def modulate(features: jax.Array, embedding: jax.Array) -> jax.Array:
    """[…, Q, E], typed like the fractions: a state's features […, E] times each of its embedded fractions […, Q, E].

    In the gradient the sum over a few fractions is unrolled: as a reduction over a mapped axis it takes XLA on a CPU
    twenty times longer, which was a fifth of an epoch. Each of them is compiled by itself.
    """
    return (features[..., None, :] * embedding).astype(embedding.dtype)


def _modulate_forward(features: jax.Array, embedding: jax.Array) -> tuple[jax.Array, Any]:
    return modulate(features, embedding), (features, embedding)


def _modulate_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    features, embedding = saved
    to_embedding = (gradient * features[..., None, :]).astype(embedding.dtype)
    gradient, embedding = gradient.astype(features.dtype), embedding.astype(features.dtype)
    if embedding.shape[-2] > MOST_WRITTEN_OUT:
        return (gradient * embedding).sum(-2), to_embedding
    summed = sum(gradient[..., q, :] * embedding[..., q, :] for q in range(embedding.shape[-2]))
    return jnp.asarray(summed), to_embedding


modulate.defvjp(_modulate_forward, _modulate_backward)


class Head(nn.Module):
    """A hidden layer and an output layer, with a second hidden layer for the value if the streams are `apart`."""

    actions: int
    features: int
    width: int
    atoms: int = 1
    cosines: int = 0
    """Cosine features that embed a fraction; 0 unless the head is implicit."""
    dueling: bool = False
    apart: bool = True
    """Whether the two streams of a dueling head have separate hidden layers."""
    sigma: float | None = None
    """The initial scale of the noise; None for layers without noise."""
    factorised: bool = True
    norm: bool = False
    """Whether hidden layers are normalised."""
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Create only the layers that this kind of head needs."""
        if self.cosines:
            self.embedding = PlainDense(self.features, self.dtype, self.kept)
        self.hidden = self._dense(self.width, self.kept)
        self.advantage = self._dense(self.actions * self.atoms)
        if self.dueling:
            self.value = self._dense(self.atoms)
            if self.apart:
                self.value_hidden = self._dense(self.width, self.kept)
        if self.norm:
            self.hidden_norm = nn.LayerNorm(epsilon=1e-5, use_fast_variance=False)
            if self.dueling and self.apart:
                self.value_hidden_norm = nn.LayerNorm(epsilon=1e-5, use_fast_variance=False)

    @property
    def kept(self) -> Any:
        """The type of hidden activations: those of many fractions are most of the bytes that an update moves."""
        return self.dtype if self.cosines else jnp.float32

    def _dense(self, width: int, kept: Any = jnp.float32) -> nn.Module:
        if self.sigma is None:
            return PlainDense(width, self.dtype, kept)
        return NoisyDense(width, self.sigma, self.factorised, self.dtype, kept)

    def noise_shapes(self) -> Shapes:
        """Name, inputs and outputs of the noisy layers."""
        if self.sigma is None:
            return ()
        layers = [("hidden", self.features, self.width), ("advantage", self.width, self.actions * self.atoms)]
        if self.dueling:
            layers.append(("value", self.width, self.atoms))
            if self.apart:
                layers.append(("value_hidden", self.features, self.width))
        return tuple(layers)

    def __call__(self, features: jax.Array, taus: jax.Array | None = None, noise: Any = None) -> jax.Array:
        """float32 […, Z, A] from features […, E]; with implicit quantiles, Z = Q and fractions […, Q] are needed."""
        if not self.cosines:
            return self._outputs(*self._hidden(features, noise), noise)
        assert taus is not None
        modulated = modulate(features, self.embed(taus))
        return self._outputs(*self._hidden(modulated, noise), noise)[..., 0, :]

    def embed(self, taus: jax.Array) -> jax.Array:
        """[…, Q, E], of type `kept`: cosine features of the fractions, then a layer; independent of the state."""
        i = np.arange(1, self.cosines + 1, dtype=np.float32)
        return nn.relu(self.embedding(cos_pi(taus[..., None] * jnp.expand_dims(i, range(taus.ndim)))))

    def mean_of_embedded(self, features: jax.Array, embedding: jax.Array, noise: Any = None) -> jax.Array:
        """float32 […, A]: the mean of the quantiles at embedded fractions, float32 […, Q, E].

        For acting. The output layer is linear, so the mean is taken before it.
        """
        hidden = [x.astype(jnp.float32).mean(-2) for x in self._hidden(modulate(features, embedding), noise)]
        return self._outputs(hidden[0], hidden[-1], noise)[..., 0, :]

    def _hidden(self, x: jax.Array, noise: Any) -> tuple[jax.Array, jax.Array]:
        """The hidden activations of the advantage and of the value, which may be the same."""
        hidden = self._hidden_layer("hidden", x, noise)
        if not (self.dueling and self.apart):
            return hidden, hidden
        return hidden, self._hidden_layer("value_hidden", x, noise)

    def _hidden_layer(self, name: str, x: jax.Array, noise: Any) -> jax.Array:
        x = self._layer(name, x, noise)
        return nn.relu(getattr(self, f"{name}_norm")(x) if self.norm else x)

    def _outputs(self, hidden: jax.Array, value_hidden: jax.Array, noise: Any) -> jax.Array:
        advantage = self._layer("advantage", hidden, noise)
        advantage = advantage.reshape(*advantage.shape[:-1], self.atoms, self.actions)
        if not self.dueling:
            return advantage
        value = self._layer("value", value_hidden, noise)[..., None]
        return value + advantage - advantage.mean(-1, keepdims=True)

    def _layer(self, name: str, x: jax.Array, noise: Any) -> jax.Array:
        layer: Any = getattr(self, name)
        return layer(x) if self.sigma is None else layer(x, noise and noise[name])
