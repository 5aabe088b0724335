"""The kinds of heads in PyTorch: the twins of `heads.py`, on batches.

`heads.py` lists the papers and explains the arguments. Everything follows from the settings; nothing comes from the JAX
side.

Shapes: B batch, Z outputs per action, A actions, Q fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from xladder.losses.quantile_torch import mean_quantile_huber, quantile_huber
from xladder.losses.value_torch import cross_entropy, huber, project, squared


@dataclass(frozen=True)
class ReturnHead:
    """One kind of head."""

    outputs: int = 1
    fractions: int = 0
    cosines: int = 0

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        raise NotImplementedError

    def expected(self, outputs: Tensor) -> Tensor:
        """float32 […, A] from outputs […, Z, A]."""
        raise NotImplementedError

    def target(self, returns: Tensor, discounts: Tensor, next_outputs: Tensor) -> Tensor:
        """float32 [B, Z] from returns and discounts [B] and the outputs of the next states' actions [B, Z]."""
        return returns[:, None] + discounts[:, None] * next_outputs

    def loss(self, chosen: Tensor, target: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
        """float32 [B] each: losses and errors, from outputs and targets [B, Z] and fractions [B, Q]."""
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

    def expected(self, outputs: Tensor) -> Tensor:
        """The output itself."""
        return outputs[..., 0, :]

    def loss(self, chosen: Tensor, target: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the temporal-difference error, and its absolute value."""
        error = (target - chosen)[:, 0]
        return (squared(error) if self.square else huber(error, self.kappa)), error.abs()


@dataclass(frozen=True)
class Categorical(ReturnHead):
    """Logits of `outputs` atoms from `v_min` to `v_max`."""

    v_min: float = -10.0
    v_max: float = 10.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        return cls(outputs=config.atoms, v_min=config.v_min, v_max=config.v_max)

    def support(self, device: torch.device | str = "cpu") -> Tensor:
        """float32 [Z]: the returns of the atoms."""
        return torch.linspace(self.v_min, self.v_max, self.outputs, device=device)

    def expected(self, outputs: Tensor) -> Tensor:
        """The mean of the distribution."""
        return (functional.softmax(outputs, -2) * self.support(outputs.device)[:, None]).sum(-2)

    def target(self, returns: Tensor, discounts: Tensor, next_outputs: Tensor) -> Tensor:
        """The next state's distribution, shifted and projected onto the atoms."""
        support = self.support(next_outputs.device)
        target_support = returns[:, None] + discounts[:, None] * support
        return project(support, functional.softmax(next_outputs, 1), target_support)

    def loss(self, chosen: Tensor, target: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
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

    def expected(self, outputs: Tensor) -> Tensor:
        """The mean of the quantiles."""
        return outputs.mean(-2)

    def loss(self, chosen: Tensor, target: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
        """Quantile regression at the interval midpoints."""
        middles = (torch.arange(self.outputs, dtype=torch.float32, device=chosen.device) + 0.5) / self.outputs
        loss = quantile_huber(chosen, middles.expand_as(chosen), target, self.kappa)
        return loss, loss


@dataclass(frozen=True)
class Implicit(ReturnHead):
    """Quantiles at `fractions` sampled fractions, which are inputs of the network."""

    kappa: float = 1.0

    @classmethod
    def of(cls, config: Any) -> Self:
        """Build the head from a learner's settings."""
        return cls(fractions=config.quantiles, cosines=config.cosines, kappa=config.kappa)

    def expected(self, outputs: Tensor) -> Tensor:
        """The mean of the quantiles."""
        return outputs.mean(-2)

    def loss(self, chosen: Tensor, target: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
        """Quantile regression at the sampled fractions."""
        loss = quantile_huber(chosen, taus, target, self.kappa)
        return loss, loss


@dataclass(frozen=True)
class SorrelImplicit(Implicit):
    """As `Implicit`, with sorrel's loss: the mean over predicted quantiles instead of the sum."""

    def loss(self, chosen: Tensor, target: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
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
