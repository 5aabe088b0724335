"""Ticks of a run as rows of metrics: several ticks in one row, so that long runs and large populations keep few.

Rows are cut at multiples of their size, counted from the start of the run. So they do not depend on the chunks in which
a run happens to be trained, nor on where it was stopped and resumed.

Shapes: S seeds, T ticks, R rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from xladder.core.statistics import episode_weights, weighted_mean

Columns = Mapping[str, np.ndarray]
"""Name → [S, T] or [S, R]; nan where nothing was measured."""
SUMMED = ("episodes", "updates")
LATEST = ("modes_found",)  # counted since the start of the run
FEWEST_ROWS = 1_000  # of a seed, before ticks are joined
MOST_ROWS = 20_000  # of all seeds together: to write one takes a microsecond, which a short tick would notice


def default_ticks_per_row(ticks: int, seeds: int) -> int:
    """How many ticks a row has: one, unless that would be many rows.

    Args:
        ticks: The length of the run.
        seeds: The number of seeds.

    Returns:
        A divisor of `ticks` if there is one nearby, so that the last row is as long as the others.
    """
    size = -(-ticks // max(FEWEST_ROWS, MOST_ROWS // seeds))
    if size <= 1:
        return 1
    return next((n for n in range(size, 2 * size) if ticks % n == 0), size)


def row_ends(first: int, count: int, size: int, done: int) -> np.ndarray:
    """Ticks of the run at the end of each of `count` rows from row `first` on, int [R]; the last ends at `done`."""
    return np.minimum(size * np.arange(first + 1, first + count + 1), done)


class RowBuilder:
    """Joins ticks to rows as chunks of them arrive.

    Returns are means over the episodes behind them, episodes and updates are sums, evaluations the last in a row, and
    everything else is a mean over ticks.

    Args:
        size: Ticks per row.
        latest: Columns of which a row has the last value, besides `LATEST`.
    """

    def __init__(self, size: int, latest: Collection[str] = ()):
        self.size, self.latest = size, {*latest, *LATEST}
        self.tail: dict[str, np.ndarray] = {}
        """The ticks of a row that is not complete yet: name → [S, T]."""

    def add(self, columns: Columns) -> dict[str, np.ndarray]:
        """Add a chunk [S, T]. Returns the rows that are complete with it, [S, R]; R may be 0."""
        if self.size == 1:
            return dict(columns)
        whole = {
            name: np.concatenate([self.tail[name], values], axis=1) if self.tail else values
            for name, values in columns.items()
        }
        count = next(iter(whole.values())).shape[1] // self.size * self.size
        left = next(iter(whole.values())).shape[1] - count
        self.tail = {name: values[:, count:] for name, values in whole.items()} if left else {}
        return self._joined({name: values[:, :count] for name, values in whole.items()}, self.size)

    def flush(self) -> dict[str, np.ndarray]:
        """The last row [S, 1], of fewer ticks than the others; empty if there is none."""
        tail, self.tail = self.tail, {}
        return self._joined(tail, next(iter(tail.values())).shape[1]) if tail else {}

    def _joined(self, columns: Columns, size: int) -> dict[str, np.ndarray]:
        """Rows of `size` ticks each."""
        parts = {name: values.reshape(len(values), -1, size) for name, values in columns.items()}  # [S, R, ticks]
        return {name: self._join(name, values, episode_weights(name, parts)) for name, values in parts.items()}

    def _join(self, name: str, values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        if name in SUMMED:
            return values.sum(-1)
        if name in self.latest:
            measured = np.isfinite(values)
            last = values.shape[-1] - 1 - np.argmax(measured[..., ::-1], axis=-1)
            return np.take_along_axis(values, last[..., None], -1)[..., 0]
        plain = values.mean(-1, dtype=float) if weights is None else None
        if plain is None or not np.isfinite(plain).all():  # slower: only where something was not measured
            plain = weighted_mean(values, weights, axis=-1)
        return plain.astype(np.float32)
