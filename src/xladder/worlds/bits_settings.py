"""The settings of bit sequences: length, words, order, modes and reward. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from xladder.errors import need
from xladder.worlds.flow_built_in import BuiltInSettings

if TYPE_CHECKING:
    from xladder.worlds.bits import Bits

BLOCKS = ("00000000", "11111111", "11110000", "00001111", "00111100")  # of which modes consist
MOST_BITS, MOST_WORD, MOST_MODES = 4096, 12, 10_000
FEW_BLOCKS = 6  # up to which all modes that are possible are listed


@dataclass(frozen=True)
class WorldConfig(BuiltInSettings):
    """The length and the reward of bit sequences."""

    workload: ClassVar[str] = "bits"
    bits: int = 16
    """Length of a sequence, n."""
    word: int = 4
    """Bits that are written in one step, k: n has to be a multiple of it."""
    order: Literal["append", "ends", "any"] = "any"
    """Where words are written: append (autoregressive), at both ends, or at any empty place (non-autoregressive)."""
    modes: int = 4
    """Number of hidden sequences, near which rewards are high."""
    beta: float = 20.0
    """Reward exponent: log R = −β · distance to the nearest mode."""
    distance: Literal["fraction", "bits"] = "fraction"
    """Hamming distance as a fraction of all bits, or as their number."""
    radius: int = 2
    """A mode counts as found by a sequence that differs from it in fewer bits than this."""
    mode_seed: int = 0
    """Seed of the modes and of the test set; all seeds of a run have the same."""

    @property
    def words(self) -> int:
        """Words in a sequence."""
        return self.bits // self.word

    @property
    def steps(self) -> int:
        """Steps of a trajectory, including stop."""
        return self.words + 1

    @property
    def state_size(self) -> int:
        """Numbers in a state: the words."""
        return self.words

    @property
    def states(self) -> int:
        """Number of states, incomplete sequences included."""
        values = 2**self.word
        return (values + 1) ** self.words if self.order == "any" else sum(values**i for i in range(self.words + 1))

    def check(self) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed."""
        need(1 <= self.bits <= MOST_BITS, "world.bits", self.bits, f"it has to lie in 1 … {MOST_BITS:,}")
        need(1 <= self.word <= MOST_WORD, "world.word", self.word, f"it has to lie in 1 … {MOST_WORD}")
        need(
            self.bits % self.word == 0,
            "world.bits",
            self.bits,
            f"it has to be a multiple of `--world.word`, which is {self.word}",
        )
        need(self.order in ("append", "ends", "any"), "world.order", self.order, "there are append, ends and any")
        need(self.distance in ("fraction", "bits"), "world.distance", self.distance, "there are fraction and bits")
        need(0.0 < self.beta < float("inf"), "world.beta", self.beta, "it has to be a positive number")
        need(1 <= self.radius <= self.bits, "world.radius", self.radius, f"it has to lie in 1 … {self.bits}, the bits")
        need(0 <= self.mode_seed < 2**31, "world.mode-seed", self.mode_seed, "it has to lie in [0, 2³¹)")
        most = min(MOST_MODES, len(_possible(self.bits)) if self.bits <= 8 * FEW_BLOCKS else MOST_MODES)
        need(1 <= self.modes <= most, "world.modes", self.modes, f"with {self.bits} bits it has to lie in 1 … {most:,}")

    def headline(self) -> str:
        """A short description of the world."""
        how = {"append": "appended", "ends": "at both ends", "any": "at any place"}[self.order]
        return f"{self.bits} bits, words of {self.word} {how}, {self.modes} modes"

    def mode_bits(self) -> np.ndarray:
        """int32 [M, n]: distinct modes, drawn at random: blocks one after another, cut off at the end."""
        rng = np.random.default_rng(self.mode_seed)
        if self.bits <= 8 * FEW_BLOCKS:
            possible = _possible(self.bits)
            found = [possible[i] for i in rng.permutation(len(possible))[: self.modes]]
        else:
            drawn: dict[str, None] = {}
            while len(drawn) < self.modes:
                drawn["".join(BLOCKS[i] for i in rng.integers(0, len(BLOCKS), -(-self.bits // 8)))[: self.bits]] = None
            found = list(drawn)
        return np.array([[int(bit) for bit in mode] for mode in found], np.int32)

    def make(self) -> Bits:
        """The world."""
        from xladder.worlds.bits import Bits

        return Bits(self)


def _possible(bits: int) -> list[str]:
    """All modes of a length, sorted."""
    return sorted({"".join(blocks)[:bits] for blocks in product(BLOCKS, repeat=-(-bits // 8))})
