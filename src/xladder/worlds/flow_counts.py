"""How many states built-in worlds have, before any is listed. Imports nothing heavy."""

from __future__ import annotations

from decimal import Decimal
from math import comb


def ising_blocks(side: int) -> dict[str, int]:
    """Order of spins → number of sites that are set in any order before the next ones."""
    return {"any": side * side, "rows": side, "sites": 1}


def count_lattices(side: int, order: str) -> int:
    """Number of lattices of spins, incomplete ones included."""
    block = ising_blocks(side)[order]
    return 1 + sum(2**done * (3**block - 1) for done in range(0, side * side, block))


def count_sets(items: int, most: int) -> int:
    """Number of sets of at most `most` of `items` items."""
    return sum(comb(items, size) for size in range(most + 1))


def in_words(count: int) -> str:
    """A count as text: all its digits, or two of them and the power of ten, also where no float is as large."""
    return f"{count:,}" if count < 10**12 else f"{Decimal(count):.1e}"
