"""What the outputs of a value network mean: the kinds of heads, each with its expected value, its target and its loss.

| kind | outputs per action | reference |
|---|---|---|
| `Scalar` | the expected return | Mnih et al. 2015 |
| `Categorical` | logits of fixed atoms | Bellemare et al. 2017 ("C51") |
| `Quantile` | quantiles at fixed fractions | Dabney et al. 2018a ("QR-DQN") |
| `Implicit` | quantiles at fractions that are drawn | Dabney et al. 2018b ("IQN") |

A new kind is a class here, its twin in `heads_torch.py`, an entry in `HEADS` of both, and its name in the settings.
`expected` takes any leading axes; `target` and `loss` are those of one transition. The layers are in `nets/heads.py`.

Shapes: Z outputs per action, A actions, Q fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from xladder.losses.quantile import quantile_huber
from xladder.losses.value import cross_entropy, huber, project, squared


@dataclass(frozen=True)
class ReturnHead:
    """One kind of head. Targets pass no gradient."""

    outputs: int = 1
    """Outputs per action that the layers have."""
    fractions: int = 0
    """Fractions per state that an update draws; 0 where none are drawn."""
    cosines: int = 0
    """Cosines that embed a drawn fraction."""

    @classmethod
    def of(cls, config: Any) -> Self:
        """The head with the settings of a learner."""
        raise NotImplementedError

    def expected(self, outputs: jax.Array) -> jax.Array:
        """float32 […, A]: the expected return of every action, from outputs […, Z, A]."""
        raise NotImplementedError

    def target(self, returns: jax.Array, discount: jax.Array, next_outputs: jax.Array) -> jax.Array:
        """float32 [Z]: what the outputs of the chosen action should have been.

        Args:
            returns: float32 []: the rewards up to the next state.
            discount: float32 []: what the next state counts; 0 at the end of an episode.
            next_outputs: float32 [Z]: the outputs of the next state's action.
        """
        return returns + discount * next_outputs

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """float32 [] each: the loss of a transition, and the error that its priority is made from.

        Args:
            chosen: float32 [Z]: the outputs of the action that was chosen.
            target: float32 [Z]: from `target`.
            taus: float32 [Q]: the fractions that the outputs were asked for.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Scalar(ReturnHead):
    """One expected return per action, with Huber's loss or the square."""

    kappa: float = 1.0
    square: bool = False

    @classmethod
    def of(cls, config: Any) -> Self:
        """The head with the settings of a learner."""
        return cls(kappa=config.kappa, square=config.loss == "squared")

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The output itself."""
        return outputs[..., 0, :]

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Of the temporal-difference error."""
        error = target[0] - chosen[0]
        return (squared(error) if self.square else huber(error, self.kappa)), jnp.abs(error)


@dataclass(frozen=True)
class Categorical(ReturnHead):
    """Logits of `outputs` atoms from `v_min` to `v_max`."""

    v_min: float = -10.0
    v_max: float = 10.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """The head with the settings of a learner."""
        return cls(outputs=config.atoms, v_min=config.v_min, v_max=config.v_max)

    @property
    def support(self) -> jax.Array:
        """float32 [Z]: the returns that the atoms stand for."""
        return jnp.linspace(self.v_min, self.v_max, self.outputs, dtype=jnp.float32)

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The mean of the distribution."""
        support = jnp.expand_dims(self.support[:, None], range(outputs.ndim - 2))
        return jnp.sum(jax.nn.softmax(outputs, axis=-2) * support, axis=-2)

    def target(self, returns: jax.Array, discount: jax.Array, next_outputs: jax.Array) -> jax.Array:
        """The next state's distribution, moved and projected on the atoms."""
        support = self.support
        target_support = returns + discount * support
        return project(support, jax.nn.softmax(next_outputs), target_support)

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Cross-entropy with the target's distribution."""
        loss = cross_entropy(chosen, target)
        return loss, loss


@dataclass(frozen=True)
class Quantile(ReturnHead):
    """Quantiles at `outputs` evenly spaced fractions."""

    kappa: float = 1.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """The head with the settings of a learner."""
        return cls(outputs=config.quantiles, kappa=config.kappa)

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The mean of the quantiles."""
        return outputs.mean(-2)

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Quantile regression at the middles of the intervals."""
        loss = quantile_huber(chosen, jnp.asarray(midpoints(self.outputs)), target, self.kappa)
        return loss, loss


@dataclass(frozen=True)
class Implicit(ReturnHead):
    """A quantile at every one of `fractions` fractions, which are drawn and go into the network."""

    kappa: float = 1.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """The head with the settings of a learner."""
        return cls(fractions=config.quantiles, cosines=config.cosines, kappa=config.kappa)

    def expected(self, outputs: jax.Array) -> jax.Array:
        """The mean of the quantiles."""
        return outputs.mean(-2)

    def loss(self, chosen: jax.Array, target: jax.Array, taus: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Quantile regression at the fractions that were drawn."""
        loss = quantile_huber(chosen, taus, target, self.kappa)
        return loss, loss


HEADS: dict[str, type[ReturnHead]] = {
    "scalar": Scalar,
    "categorical": Categorical,
    "quantile": Quantile,
    "implicit": Implicit,
}


def make_head(config: Any) -> ReturnHead:
    """The head that the settings of a learner name."""
    return HEADS[config.head].of(config)


def midpoints(quantiles: int) -> np.ndarray:
    """float32 [Q]: the fractions of quantile regression."""
    return (np.arange(quantiles, dtype=np.float32) + np.float32(0.5)) / np.float32(quantiles)
