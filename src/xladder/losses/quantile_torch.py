"""Quantile regression with the Huber loss in PyTorch: the twin of `quantile.py`, on a batch.

Shapes: B batch, P predicted quantiles, T target quantiles.
"""

from torch import Tensor
from torch.nn import functional


def quantile_huber(prediction: Tensor, taus: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """float32 [B] from predictions [B, P], their fractions [B, P] and targets [B, T]: the sum over P, mean over T."""
    return _of_pairs(prediction, taus, target, kappa).mean(2).sum(1) / kappa


def mean_quantile_huber(prediction: Tensor, taus: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """float32 [B]: the mean over all pairs, as in sorrel's IQN."""
    return _of_pairs(prediction, taus, target, kappa).mean((1, 2)) / kappa


def _of_pairs(prediction: Tensor, taus: Tensor, target: Tensor, kappa: float) -> Tensor:
    """float32 [B, P, T]: κ times the loss of every pair."""
    shape = (*prediction.shape, target.shape[1])  # [B, P, T]
    predicted, aimed = prediction[:, :, None].expand(shape), target[:, None, :].expand(shape)
    huber = functional.huber_loss(predicted, aimed, reduction="none", delta=kappa)
    weight = (taus[:, :, None] - (aimed.detach() < predicted.detach()).float()).abs()
    return weight * huber
