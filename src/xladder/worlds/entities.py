"""What stands on a board: a table of what every code means, and how it looks to an agent.

Boards store codes. The table has a `Cell` for each: its name, the kinds of entity that lie there, one per layer, its
value and whether agents may enter. Looks are those of sorrel's observation specs: one channel per kind (`onehot`), or
red, green and blue (`rgb`), in both cases summed over the layers of a cell.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from xladder.core.encoding import Looks

View = Literal["onehot", "rgb"]
BRIGHTEST = 255


class Cell(NamedTuple):
    """What a code of a board stands for."""

    name: str
    kinds: tuple[str, ...] = ()
    """The kinds of entity that are seen there, from the bottom layer to the top; empty layers are left out."""
    value: float = 0.0
    """Reward for moving towards it."""
    passable: bool = False
    """Whether an agent may enter."""


def looks(cells: Sequence[Sequence[str]], kinds: Sequence[str], view: View) -> Looks:
    """The look of every code.

    Args:
        cells: For each code, the kinds that lie there.
        kinds: All kinds but the empty one, in the order of the observation spec.
        view: `onehot` has one channel for "empty", which stays zero, and one per kind; `rgb` has three.
    """
    if view == "onehot":
        # Two walls on top of each other count twice.
        return tuple((0.0, *(float(list(cell).count(kind)) for kind in kinds)) for cell in cells)
    colours = dict(zip(kinds, palette(len(kinds)), strict=True))
    return tuple(
        tuple(min(sum(colours[kind][k] for kind in cell), BRIGHTEST) / BRIGHTEST for k in range(3)) for cell in cells
    )


def palette(count: int) -> list[tuple[int, int, int]]:
    """`count` saturated colours at equal steps round the colour wheel, from red; channels are 0 … 255, rounded down."""
    found = []
    for k in range(count):
        red, green, blue = colorsys.hsv_to_rgb(k / count, 1.0, 1.0)
        found.append((int(red * BRIGHTEST), int(green * BRIGHTEST), int(blue * BRIGHTEST)))
    return found
