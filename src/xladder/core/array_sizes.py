"""How large the largest arrays of a run become, from its settings alone: known before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

FLOAT = 4  # bytes
COPIES = 4  # of a weight: online and target network, and two moments of the optimiser


class LargeArray(NamedTuple):
    """An array that a run cannot do without."""

    what: str
    """A plural noun for messages."""
    bytes: int
    """Of one seed."""
    flags: tuple[str, ...]
    """The settings that it grows with."""


def weights(layers: Sequence[tuple[int, int]], networks: int, flags: tuple[str, ...]) -> LargeArray:
    """The weights of some dense layers, each given by its inputs and outputs."""
    return LargeArray("weights", FLOAT * COPIES * networks * sum(a * b for a, b in layers), flags)


def too_large(arrays: Iterable[LargeArray], seeds: int, available: int) -> str:
    """What does not fit, as a sentence with the settings to change; an empty string if everything does."""
    worst = max(arrays, key=lambda array: array.bytes, default=None)
    if worst is None or worst.bytes * seeds <= available:
        return ""
    each, flags = f" of {seeds} seeds" * (seeds > 1), " or ".join(f"`--{flag}`" for flag in worst.flags)
    fitting = available // max(worst.bytes, 1)
    way_out = f"use at most {fitting} `--seeds` at once, or " if fitting > 1 else ""
    return (
        f"The {worst.what}{each} would take {_format_size(worst.bytes * seeds)}, and there are "
        f"{_format_size(available)}: {way_out}make {flags} smaller."
    )


def _format_size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count < 2**60 else "more than a billion GiB"
