"""How the codes in an agent's view become the inputs of its network.

Views are stored as small integers, which is compact in a replay memory. An `Encoding` says what the network is given
for them: every code has a *look*, a list of numbers, one per channel, and the input is the looks of all cells, channel
first. A view may have several blocks, one after another: a picture, then a cell that holds the row of the agent, say.
Code 0 looks like nothing in every block, because frames that were never written are zeros.

Shapes: F frames, V cells in a view, C channels of a block, I inputs per frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

Looks = tuple[tuple[float, ...], ...]
"""By code, then by channel."""


class Block(NamedTuple):
    """Cells that share one table of looks."""

    cells: int
    looks: Looks

    @property
    def channels(self) -> int:
        """Number of channels, C."""
        return len(self.looks[0])

    @property
    def inputs(self) -> int:
        """Number of inputs that the block takes."""
        return self.cells * self.channels

    def table(self) -> np.ndarray:
        """float32 [codes, C]."""
        return np.array(self.looks, np.float32)


class Part(NamedTuple):
    """A block with its place in the view and in the inputs of a frame."""

    block: Block
    first_cell: int
    first_input: int
    one_hot: bool
    """Whether code k is the k-th unit vector, and 0 is zeros."""


@dataclass(frozen=True)
class Encoding:
    """The blocks of a view, in order."""

    blocks: tuple[Block, ...]

    @property
    def num_cells(self) -> int:
        """Number of codes in a view, V."""
        return sum(block.cells for block in self.blocks)

    @property
    def num_codes(self) -> int:
        """One more than the largest code."""
        return max(len(block.looks) for block in self.blocks)

    @property
    def num_inputs(self) -> int:
        """Number of inputs per frame, I."""
        return sum(block.inputs for block in self.blocks)

    def limits(self) -> np.ndarray:
        """int [V]: for each cell, the number of codes that it may have."""
        return np.repeat([len(block.looks) for block in self.blocks], [block.cells for block in self.blocks])

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The blocks with their places."""
        found, cell, first = [], 0, 0
        for block in self.blocks:
            found.append(Part(block, cell, first, block.looks == unit_looks(len(block.looks))))
            cell, first = cell + block.cells, first + block.inputs
        return tuple(found)


def unit_looks(codes: int) -> Looks:
    """One channel per code; code 0 is zeros."""
    return tuple(tuple(float(i == k and k > 0) for i in range(codes)) for k in range(codes))


def one_hot_encoding(codes: int, cells: int) -> Encoding:
    """A single block in which every code has a channel of its own."""
    return Encoding((Block(cells, unit_looks(codes)),))
