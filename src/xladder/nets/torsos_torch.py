"""Torsos in PyTorch: the twins of `torsos.py`, on batches.

Shapes: B batch, F frames, C channels.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    """Dense layers with ReLU, with LayerNorm before each ReLU if `norm`."""

    def __init__(self, inputs: int, widths: tuple[int, ...], norm: bool = False, max_value: int = 1):
        super().__init__()
        self.layers, self.norm, self.max_value = len(widths), norm, max_value
        for layer, (before, width) in enumerate(zip((inputs, *widths), widths, strict=False)):
            self.add_module(f"hidden_{layer}", nn.Linear(before, width))
            if norm:
                self.add_module(f"norm_{layer}", nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tensor:
        """float32 [B, H] from [B, F, …]."""
        x = x.flatten(1).float() / self.max_value
        for layer in range(self.layers):
            x = self.get_submodule(f"hidden_{layer}")(x)
            x = functional.relu(self.get_submodule(f"norm_{layer}")(x) if self.norm else x)
        return x


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each cell."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, h, w]."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class NatureCnn(nn.Module):
    """Three convolutions for large images; `frames` counts the channels of colours, too, and these come last."""

    def __init__(self, frames: int = 4, norm: bool = False, padded: bool = False, max_value: int = 255):
        super().__init__()
        self.norm, self.padded, self.max_value = norm, padded, max_value
        self.conv_0 = nn.Conv2d(frames, 32, 8, 4)
        self.conv_1 = nn.Conv2d(32, 64, 4, 2)
        self.conv_2 = nn.Conv2d(64, 64, 3, 1)
        if norm:
            self.norm_0, self.norm_1, self.norm_2 = ChannelNorm(32), ChannelNorm(64), ChannelNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        """float32 [B, 64·h·w] from [B, F, H, W] or [B, F, H, W, C]."""
        if x.dim() == 5:
            x = x.movedim(-1, 2).flatten(1, 2)
        x = x.float() / self.max_value
        for layer in range(3):
            x = self._pad(layer, x) if self.padded else x
            x = self.get_submodule(f"conv_{layer}")(x)
            x = functional.relu(self.get_submodule(f"norm_{layer}")(x) if self.norm else x)
        return x.flatten(1)

    def _pad(self, layer: int, x: Tensor) -> Tensor:
        """[B, C, h, w] with zeros around it, as TensorFlow's SAME: the last stride's remainder decides how many."""
        size, stride = ((8, 4), (4, 2), (3, 1))[layer]
        both = [max(size - (length % stride or stride), 0) for length in (x.shape[3], x.shape[2])]
        return functional.pad(x, [zeros for total in both for zeros in (total // 2, (total + 1) // 2)])


class MinAtarCnn(nn.Module):
    """One convolution for small grids; stacked frames become further channels."""

    def __init__(self, channels: int, frames: int = 1, norm: bool = False, max_value: int = 1):
        super().__init__()
        self.max_value = max_value
        self.conv_0 = nn.Conv2d(frames * channels, 16, 3, 1)
        self.norm_0 = ChannelNorm(16) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """float32 [B, 16·h·w] from [B, F, H, W, C]."""
        x = x.movedim(-1, 2).flatten(1, 2).float() / self.max_value  # [B, F·C, H, W]
        return functional.relu(self.norm_0(self.conv_0(x))).flatten(1)
