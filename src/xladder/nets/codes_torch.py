"""The torso for cell codes in PyTorch: the twin of `codes.py`. Shapes: B batch, F frames, E codes, V cells."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def one_hot(codes: Tensor, num_codes: int) -> Tensor:
    """float32 [B, F·E·V] from int8 [B, F, V]: channel first, code 0 as zeros."""
    channels = torch.arange(num_codes, dtype=codes.dtype, device=codes.device)[:, None]
    channels[0] = -1  # no code: empty cells show nothing
    return (codes[:, :, None] == channels).flatten(1).float()


class CodesTorso(nn.Linear):
    """A linear layer with ReLU on `one_hot(codes)`."""

    def __init__(self, frames: int, num_codes: int, cells: int, width: int):
        super().__init__(frames * num_codes * cells, width)
        self.num_codes = num_codes

    def forward(self, codes: Tensor) -> Tensor:
        """float32 [B, H] from int8 [B, F, V]."""
        return functional.relu(super().forward(one_hot(codes, self.num_codes)))
