"""Building blocks of value learners' losses in PyTorch: the twin of `value.py`, on a batch.

`value.py` lists the papers and explains the arguments, and where gradients are stopped.
Shapes: B batch, A actions, Z atoms.
"""

import torch
from torch import Tensor
from torch.nn import functional


def huber(error: Tensor, kappa: float) -> Tensor:
    """float32, elementwise: ½e² where |e| ≤ κ and κ·(|e| − ½κ) beyond."""
    cut = error.clamp(-kappa, kappa)
    return cut * (error - 0.5 * cut)


def squared(error: Tensor) -> Tensor:
    """float32, elementwise: e² without the ½, as in `functional.mse_loss`."""
    return error.square()


def project(support: Tensor, probabilities: Tensor, target_support: Tensor) -> Tensor:
    """float32 [B, Z]: `probabilities` [B, Z] at `target_support` [B, Z], moved to the atoms of one `support` [Z]."""
    atoms = support.shape[0]
    low, high = support[0], support[-1]
    place = (target_support.clamp(low, high) - low) / (high - low) * (atoms - 1)  # [B, Z], from 0 to Z − 1
    index = torch.arange(atoms, dtype=place.dtype, device=place.device)
    distance = (index[None, :, None] - place[:, None, :]).abs()  # [B, Z, Z], support × target
    return ((1 - distance).clamp(min=0) * probabilities[:, None, :]).sum(2).detach()


def cross_entropy(logits: Tensor, target_probabilities: Tensor) -> Tensor:
    """float32 [B]: −Σ p·log softmax(logits), both [B, Z]."""
    return functional.cross_entropy(logits, target_probabilities.detach(), reduction="none")


def soft_values(values: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """float32 [B, A] each: the policy π = softmax(q/τ) and τ·log π, from values q [B, A]."""
    below = values - values.detach().amax(1, keepdim=True)
    weight = (below / temperature).exp()
    total = weight.sum(1, keepdim=True)
    return weight / total, below - temperature * total.log()


def munchausen_bonus(
    target_values_now: Tensor, actions: Tensor, temperature: float, floor: float, scale: float
) -> Tensor:
    """float32 [B]: α·clip(τ·log π(a|s), l₀, 0), from values [B, A] and the actions taken, of any integer type [B]."""
    _, scaled_log_policy = soft_values(target_values_now, temperature)
    chosen = scaled_log_policy.gather(1, actions.long()[:, None])[:, 0]
    return (scale * chosen.clamp(floor, 0)).detach()
