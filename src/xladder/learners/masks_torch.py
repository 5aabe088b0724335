"""Action masks in PyTorch: the twins of `masks.py`.

Shapes: B batch, F frames, D numbers per frame, A actions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MASKED_VALUE = -1e9


def split_mask(states: Tensor, actions: int, axes: int = 1, team: bool = False) -> tuple[Tensor, Tensor]:
    """States without their masks, [B, F, D − A], and which actions are available, bool [B, A], from [B, F, D].

    The frames may be images, with more `axes` than one. Those of a `team` have an axis of agents before them, and so
    has the mask.
    """
    newest: Any = (..., -1, *(slice(None),) * team, *(0,) * (axes - 1), slice(-actions, None))
    return states[..., :-actions], states[newest] > 0


def mask_values(values: Tensor, mask: Tensor | None) -> Tensor:
    """float32 [B, A]: the values, with `MASKED_VALUE` for unavailable actions; without a mask, unchanged."""
    return values if mask is None else torch.where(mask, values, MASKED_VALUE)
