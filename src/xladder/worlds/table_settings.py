"""The settings of sequences whose rewards are in a table that the user has. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from xladder.errors import UsageError, need
from xladder.worlds.flow_built_in import BuiltInSettings
from xladder.worlds.sequence_table import read_table

if TYPE_CHECKING:
    from xladder.worlds.table import Table

MOST_CELLS = 2**22  # of the table in memory, one for every state


@dataclass(frozen=True)
class WorldConfig(BuiltInSettings):
    """Sequences over an alphabet, and the table that has their rewards."""

    workload: ClassVar[str] = "sequences"
    table: str = ""
    """CSV or NPZ file with `sequence` and `value` of all sequences; empty: a small made-up table."""
    alphabet: str = ""
    """The symbols, each a character; empty: those in the table, sorted."""
    shortest: int = 0
    """Length of the shortest sequence; 0: as in the table. The longest is that of the table."""
    order: Literal["append", "ends", "any"] = "append"
    """Where symbols are written: append (autoregressive), at both ends, or at any empty place."""
    beta: float = 1.0
    """Reward exponent: R = value^β."""
    floor: float = 0.0
    """Lower values count as this one: rewards have to be positive."""
    missing: float = 0.0
    """Value of sequences that the table does not have; 0: it has to have them all."""
    modes: int = 0
    """The best sequences that count as modes, as many as this; training counts how many were found."""

    @property
    def symbols(self) -> str:
        """The alphabet."""
        return self.alphabet or "".join(sorted(set("".join(read_table(self.table)))))

    @property
    def lengths(self) -> tuple[int, int]:
        """Lengths of the shortest and of the longest sequence."""
        found = [len(sequence) for sequence in read_table(self.table)]
        return self.shortest or min(found), max(found)

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""
        return self.lengths[1] + 1

    @property
    def state_size(self) -> int:
        """Numbers in a state: the places."""
        return self.lengths[1]

    @property
    def states(self) -> int:
        """Number of states, incomplete sequences included."""
        count, length = len(self.symbols), self.lengths[1]
        return (count + 1) ** length if self.order == "any" else sum(count**size for size in range(length + 1))

    def check(self) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed, or the fault of the table."""
        table, flag = read_table(self.table), "world.table"
        name = self.table or "the made-up table"
        letters, (shortest, longest) = self.symbols, self.lengths
        need(len(set(letters)) == len(letters), "world.alphabet", letters, "it has a symbol twice")
        need(len(letters) >= 2, flag, name, f"its sequences have the single symbol `{letters}`: two or more are needed")
        need(self.order in ("append", "ends", "any"), "world.order", self.order, "there are append, ends and any")
        for sequence in table:
            wrong = set(sequence) - set(letters)
            need(not wrong, flag, name, f"`{sequence[:40]}` has `{min(wrong, default='')}`, not of `{letters}`")
        need(1 <= shortest <= longest, "world.shortest", self.shortest, f"the longest sequence has {longest}")
        need(
            self.order != "any" or shortest == longest,
            "world.order",
            self.order,
            f"it needs sequences of one length, and there are some of {shortest} … {longest} symbols",
        )
        need(
            longest < MOST_CELLS.bit_length() and (len(letters) + 1) ** longest <= MOST_CELLS,
            flag,
            name,
            f"{len(letters)} symbols at {longest} places need {len(letters) + 1}^{longest} entries, and {MOST_CELLS:,} "
            "are possible: write a `FlowWorld` whose `log_reward` computes them",
        )
        for field, value in [("floor", self.floor), ("missing", self.missing)]:
            need(0.0 <= value < float("inf"), f"world.{field}", value, "it has to be a number, and cannot be negative")
        need(0.0 < self.beta < float("inf"), "world.beta", self.beta, "it has to be a positive number")
        need(0 <= self.modes <= len(table), "world.modes", self.modes, f"it has to lie in 0 … {len(table):,}")
        self._check_values(table, letters, shortest, longest)

    def _check_values(self, table: dict[str, float], letters: str, shortest: int, longest: int) -> None:
        name = self.table or "the made-up table"
        zeros = [sequence for sequence, value in table.items() if max(value, self.floor) <= 0]
        if zeros:
            raise UsageError(
                f"`{name}` has the value 0 for `{zeros[0][:40]}`{_more(len(zeros) - 1)}: add `--world.floor`, "
                "because the logarithm of every reward is taken."
            )
        wanted = sum(len(letters) ** size for size in range(shortest, longest + 1))
        here = sum(shortest <= len(sequence) for sequence in table)
        if here < wanted and max(self.missing, self.floor) <= 0:
            raise UsageError(
                f"`{name}` has {here:,} of the {wanted:,} sequences of {shortest} … {longest} symbols of `{letters}`: "
                "add `--world.missing` with the value of the others."
            )

    def headline(self) -> str:
        """A short description of the world."""
        shortest, longest = self.lengths
        size = f"{longest}" if shortest == longest else f"{shortest} … {longest}"
        return f"{self.table or 'made-up table'}, {size} symbols of `{self.symbols}`, {self.order}"

    def log_rewards(self) -> np.ndarray:
        """float32 [(V + 1)^L]: the log-reward of every sequence, by its `key`; 0 where there is none."""
        return _log_rewards(self)

    def key(self, states: np.ndarray) -> np.ndarray:
        """int […]: where states int […, L] are in `log_rewards`: their numbers as digits, the first the lowest."""
        return (states * (len(self.symbols) + 1) ** np.arange(states.shape[-1])).sum(-1)

    def to_states(self, sequences: list[str]) -> np.ndarray:
        """int32 [B, L]: states of sequences."""
        numbers, length = {symbol: i + 1 for i, symbol in enumerate(self.symbols)}, self.lengths[1]
        rows = [[numbers[symbol] for symbol in one] + [0] * (length - len(one)) for one in sequences]
        return np.array(rows, np.int32).reshape(-1, length)

    def make(self) -> Table:
        """The world."""
        from xladder.worlds.table import Table

        return Table(self)


def _more(count: int) -> str:
    return "" if not count else f" and {count:,} other{'s' * (count > 1)}"


@lru_cache(maxsize=4)
def _log_rewards(config: WorldConfig) -> np.ndarray:
    table, (shortest, length) = read_table(config.table), config.lengths
    missing = max(config.missing, config.floor)
    found = np.full((len(config.symbols) + 1) ** length, np.log(missing) if missing > 0 else 0.0)
    kept = [sequence for sequence in table if len(sequence) >= shortest]
    values = np.maximum([table[sequence] for sequence in kept], config.floor)
    found[config.key(config.to_states(kept).astype(np.int64))] = np.log(values)
    return (config.beta * found).astype(np.float32)
