"""The report of a parity check: printable, shown as a table in notebooks, and assertable in tests."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from xladder.errors import XladderError
from xladder.parity.levels import Level
from xladder.twins.matching import Match

HEADS = ("level", "largest difference", "tolerance", "")


class ParityError(XladderError, AssertionError):
    """Two modules that should be the same network are not. The message is the report."""


@dataclass(frozen=True, eq=False)
class Report:
    """The differences between two modules, level by level in rising order."""

    levels: tuple[Level, ...]
    """For every level, its largest difference (of the array furthest from passing), tolerance, and if it passed."""
    where: str
    """The layers or the parameter at which the twins diverge, at the first failed level. Empty if all passed."""
    notes: tuple[str, ...]
    """Caveats."""
    match: Match
    """Which layers belong together."""

    @property
    def passed(self) -> bool:
        """Whether every level has passed."""
        return all(level.passed for level in self.levels)

    @property
    def first_failure(self) -> str | None:
        """The name of the first level that has not passed."""
        return next((level.level for level in self.levels if not level.passed), None)

    def raise_if_failed(self) -> Report:
        """Raise a `ParityError`, which is also an AssertionError, unless every level has passed; returns the report."""
        if not self.passed:
            raise ParityError(str(self))
        return self

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (level.level, f"{level.max_abs_diff:.1e}", f"{level.tolerance:.1e}", "passed" if level.passed else "FAILED")
            for level in self.levels
        ]

    def _sentences(self) -> list[str]:
        if self.passed:
            return list(self.notes)
        return [f"The twins diverge at “{self.first_failure}”. {self.where}", *self.notes]

    def __str__(self) -> str:
        rows = [HEADS, *self._rows()]
        wide = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c:>{wide[2]}}  {d}".rstrip() for a, b, c, d in rows]
        return "\n".join(lines + self._sentences())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in HEADS)
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{sentences}"
