"""The torso for codes in PyTorch: the twin of `codes.py`.

Shapes: B batch, F frames, V cells, C channels, I inputs per frame.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from xladder.core.encoding import Encoding


class Encoder(nn.Module):
    """float32 [B, F·I] from int8 [B, F, V]: block by block, channel first."""

    def __init__(self, encoding: Encoding):
        super().__init__()
        self.cells = [block.cells for block in encoding.blocks]
        tables = [torch.tensor(block.looks) for block in encoding.blocks]
        # Most views are one-hot, and comparing codes is quicker than looking them up.
        self.one_hot = [_is_one_hot(table) for table in tables]
        for i, table in enumerate(tables):
            self.register_buffer(f"table_{i}", table, persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Encode a batch of views."""
        parts = codes.split(self.cells, dim=-1) if len(self.cells) > 1 else (codes,)
        seen = [self._look(part, i) for i, part in enumerate(parts)]
        return (torch.cat(seen, dim=-1) if len(seen) > 1 else seen[0]).flatten(1)

    def _look(self, codes: Tensor, block: int) -> Tensor:
        """float32 [B, F, C·V]: the looks of the cells of one block."""
        table: Tensor = getattr(self, f"table_{block}")
        if self.one_hot[block]:
            channels = torch.arange(len(table), dtype=codes.dtype, device=codes.device)[:, None]
            channels[0] = -1  # no code: empty cells show nothing
            return (codes[:, :, None] == channels).flatten(2).float()
        return functional.embedding(codes.int(), table).transpose(-1, -2).flatten(2)


def _is_one_hot(table: Tensor) -> bool:
    unit = torch.eye(len(table))
    unit[0] = 0
    return torch.equal(table, unit)


class CodesTorso(nn.Linear):
    """A linear layer with ReLU on encoded codes."""

    def __init__(self, frames: int, encoding: Encoding, width: int):
        super().__init__(frames * sum(block.cells * len(block.looks[0]) for block in encoding.blocks), width)
        self.encode = Encoder(encoding)

    def forward(self, codes: Tensor) -> Tensor:
        """float32 [B, H] from int8 [B, F, V]."""
        return functional.relu(super().forward(self.encode(codes)))
