"""The torso for observations of several parts in PyTorch: the twin of `by_key.py`. Shapes: B batch, F frames."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from xladder.families.value.torsos import BYTE, PICTURE_AXES, suited
from xladder.nets.torsos_torch import MinAtarCnn, Mlp, NatureCnn


class ByKey(nn.Module):
    """Convolutions for pictures, and a dense layer for all other numbers.

    Args:
        shape: Of every part of a state by name, (F, *shape), in the order of a frame.
        width: Of the dense layer.
    """

    def __init__(self, shape: Mapping[str, tuple[int, ...]], width: int):
        super().__init__()
        self.pictures: dict[str, str] = {}
        """Name of a part → name of its convolutions."""
        self.others: list[str] = []
        count = 0
        for place, (name, (frames, *frame)) in enumerate(shape.items()):
            module: nn.Module
            match suited(tuple(frame)):
                case "nature":
                    channels = frame[-1] if len(frame) == PICTURE_AXES else 1
                    module = NatureCnn(frames * channels, max_value=1)
                case "minatar":
                    module = MinAtarCnn(frame[-1], frames)
                case _:
                    self.others.append(name)
                    count += frames * math.prod(frame)
                    continue
            self.pictures[name] = f"part_{place}"
            self.add_module(f"part_{place}", module)
        if self.others:
            self.numbers = Mlp(count, (width,))

    def forward(self, parts: Mapping[str, Tensor]) -> Tensor:
        """float32 [B, E] from {name: [B, F, *shape]}."""
        features = []
        for name, module in self.pictures.items():
            bright = BYTE if parts[name].dtype == torch.uint8 else 1
            features.append(self.get_submodule(module)(parts[name].float() / bright))
        if self.others:
            numbers = [parts[name].flatten(1).float() for name in self.others]
            features.append(self.numbers(torch.cat(numbers, dim=1)))
        return torch.cat(features, dim=1)
