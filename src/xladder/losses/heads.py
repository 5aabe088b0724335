"""The kinds of heads of a value network, each with its expected value, target and loss.

| kind | outputs per action | reference |
|---|---|---|
| `Scalar` | the expected return | Mnih et al. 2015 |
| `Categorical` | logits of fixed atoms | Bellemare et al. 2017 ("C51") |
| `Quantile` | quantiles at fixed fractions | Dabney et al. 2018a ("QR-DQN") |
| `Implicit` | quantiles at sampled fractions | Dabney et al. 2018b ("IQN") |
| `SorrelImplicit` | the same, with sorrel's loss | sorrel's IQN |

A new kind is a class here, its twin in `heads_torch.py`, an entry in `HEADS` of both, and its name in the settings.
`expected` takes any leading axes; `target` and `loss` take one transition. The layers are in `nets/heads.py`.

Shapes: Z outputs per action, A actions, Q fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from xladder.losses.quantile import mean_quantile_huber, quantile_huber
from xladder.losses.value import cross_entropy, huber, project, squared


@dataclass(frozen=True)
class ReturnHead:
    """One kind of head. Targets pass no gradient."""

    outputs: int = 1
    """Outputs per action of the layers."""
    fractions: int = 0
    """Fractions per state that an update samples; 0 if there are none."""
    cosines: int = 0
    """Cosine features that embed a sampled fraction."""

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        raise NotImplementedError

    def expected(self, outputs: jax.Array) -> jax.Array:
        """float32 […, A]: the expected return of every action, from outputs […, Z, A]."""
        raise NotImplementedError

    def target(self, returns: jax.Array, discount: jax.Array, next_outputs: jax.Array) -> jax.Array:
        """float32 [Z]: the target for the outputs of the chosen action.

        Args:
            returns: float32 []: the rewards up to the next state.
            discount: float32 []: the discount of the next state; 0 at the end of an episode.
            next_outputs: float32 [Z]: the outputs of the next state's action.
        """
        return returns + discount * next_outputs

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """float32 [] each: the loss of a transition, and the error that determines its priority.

        Args:
            chosen: float32 [Z]: the outputs of the chosen action.
            target: float32 [Z]: from `target`.
            taus: float32 [Q]: the fractions of the outputs.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Scalar(ReturnHead):
    """One expected return per action, with the Huber or the squared loss."""

    kappa: float = 1.0
    square: bool = False

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        return cls(kappa=config.kappa, square=config.loss == "squared")

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The output itself."""
        return outputs[..., 0, :]

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The loss of the temporal-difference error, and its absolute value."""
        error = target[0] - chosen[0]
        return (squared(error) if self.square else huber(error, self.kappa)), jnp.abs(error)


@dataclass(frozen=True)
class Categorical(ReturnHead):
    """Logits of `outputs` atoms from `v_min` to `v_max`."""

    v_min: float = -10.0
    v_max: float = 10.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        return cls(outputs=config.atoms, v_min=config.v_min, v_max=config.v_max)

    @property
    def support(self) -> jax.Array:
        """float32 [Z]: the returns of the atoms."""
        return jnp.linspace(self.v_min, self.v_max, self.outputs, dtype=jnp.float32)

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The mean of the distribution."""
        support = jnp.expand_dims(self.support[:, None], range(outputs.ndim - 2))
        return jnp.sum(jax.nn.softmax(outputs, axis=-2) * support, axis=-2)

    def target(self, returns: jax.Array, discount: jax.Array, next_outputs: jax.Array) -> jax.Array:
        """The next state's distribution, shifted and projected onto the atoms."""
        support = self.support
        target_support = returns + discount * support
        return project(support, jax.nn.softmax(next_outputs), target_support)

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Cross-entropy with the target distribution."""
        loss = cross_entropy(chosen, target)
        return loss, loss


@dataclass(frozen=True)
class Quantile(ReturnHead):
    """Quantiles at `outputs` evenly spaced fractions."""

    kappa: float = 1.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        return cls(outputs=config.quantiles, kappa=config.kappa)

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The mean of the quantiles."""
        return outputs.mean(-2)

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Quantile regression at the interval midpoints."""
        loss = quantile_huber(chosen, jnp.asarray(midpoints(self.outputs)), target, self.kappa)
        return loss, loss


@dataclass(frozen=True)
class Implicit(ReturnHead):
    """Quantiles at `fractions` sampled fractions, which are inputs of the network."""

    kappa: float = 1.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        return cls(fractions=config.quantiles, cosines=config.cosines, kappa=config.kappa)

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The mean of the quantiles."""
        return outputs.mean(-2)

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Quantile regression at the sampled fractions."""
        loss = quantile_huber(chosen, taus, target, self.kappa)
        return loss, loss


@dataclass(frozen=True)
class SorrelImplicit(Implicit):
    """As `Implicit`, with sorrel's loss: the mean over predicted quantiles instead of the sum."""

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Quantile regression at the sampled fractions, averaged."""
        loss = mean_quantile_huber(chosen, taus, target, self.kappa)
        return loss, loss


HEADS: dict[str, type[ReturnHead]] = {
    "scalar": Scalar,
    "categorical": Categorical,
    "quantile": Quantile,
    "implicit": Implicit,
    "sorrel": SorrelImplicit,
}


def make_head(config: Any) -> ReturnHead:
    """Build the head that a learner's settings name."""
    return HEADS[config.head].of(config)


def midpoints(quantiles: int) -> np.ndarray:
    """float32 [Q]: the fractions of quantile regression, the midpoints of Q equal intervals."""
    return (np.arange(quantiles, dtype=np.float32) + np.float32(0.5)) / np.float32(quantiles)
