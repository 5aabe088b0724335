"""A flat frame as named parts, in PyTorch: the twin of `fields.py`. Shapes: B batch, F frames, D numbers per frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def unflatten(states: Tensor, fields: Sequence[tuple[str, tuple[int, ...], Any]]) -> dict[str, Tensor]:
    """Name → [B, F, *shape] from flat states [B, F, D]."""
    parts, start = {}, 0
    for name, shape, dtype in fields:
        end = start + math.prod(shape)
        kind = torch.from_numpy(np.zeros(0, np.dtype(dtype))).dtype
        parts[name] = states[..., start:end].reshape(*states.shape[:-1], *shape).to(kind)
        start = end
    return parts
