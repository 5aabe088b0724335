"""Means over a few repetitions and their confidence intervals. Shapes: S seeds, T ticks."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import numpy as np

# The 97.5 % quantile of Student's t for 1 … 10 degrees of freedom, where no short formula is good enough.
_T_TABLE = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139)
_Z = 1.959963985  # the same quantile of the normal distribution
LARGE = 1e12  # from here on, numbers are written with a power of ten


def t_quantile(freedom: np.ndarray | int) -> np.ndarray:
    """The 97.5 % quantile of Student's t, elementwise, to 4 decimals; NaN for less than one degree of freedom."""
    freedom = np.asarray(freedom)
    z, v = _Z, np.maximum(freedom, 1).astype(float)
    # Cornish and Fisher's expansion around the normal quantile (Abramowitz and Stegun 26.7.5).
    far = (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4)
    )
    near = np.array([np.nan, *_T_TABLE])[np.clip(freedom, 0, len(_T_TABLE))]
    return np.where(freedom > len(_T_TABLE), far, near)


def mean_and_interval(values: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mean over `axis` and the half width of its 95 % interval (Student's t).

    NaN and infinity count as "not measured". The mean of nothing is NaN, and so is the half width for one value.
    """
    values = np.asarray(values, float)
    measured = np.isfinite(values)
    count = measured.sum(axis)
    # Dividing by 1 where there is nothing to divide keeps NumPy from warning; the result is replaced by NaN.
    mean = np.where(measured, values, 0.0).sum(axis) / np.maximum(count, 1)
    apart = np.where(measured, values - np.expand_dims(mean, axis), 0.0)
    variance = (apart**2).sum(axis) / np.maximum(count - 1, 1)
    half_width = t_quantile(count - 1) * np.sqrt(variance / np.maximum(count, 1))
    return np.where(count > 0, mean, np.nan), half_width


def moving_mean(values: np.ndarray, window: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Centred moving mean of [S, T] along T; the window shrinks at both ends, and missing values stay NaN.

    With `weights` [S, T], such as the number of episodes behind each value, it is a weighted mean.
    """
    measured = np.isfinite(values)
    ticks = values.shape[1]
    first = np.maximum(np.arange(ticks) - (window - 1) // 2, 0)
    stop = np.minimum(np.arange(ticks) + window // 2 + 1, ticks)

    def total(terms: np.ndarray) -> np.ndarray:
        sums = np.cumsum(np.pad(terms, ((0, 0), (1, 0))), axis=1, dtype=float)
        return sums[:, stop] - sums[:, first]

    weight = _weights(values, weights)
    sums = total(weight * np.where(measured, values, 0.0))
    return np.where(measured, sums / np.where(measured, total(weight), 1.0), np.nan)


def join_gaps(line: np.ndarray, window: int) -> np.ndarray:
    """Interpolate a moving mean [T] across gaps: seeds whose episodes end in different ticks can then be averaged."""
    measured, ticks = np.flatnonzero(np.isfinite(line)), np.arange(len(line))
    if not len(measured):
        return line
    ended = (ticks < measured[0] - window) | (ticks > measured[-1] + window)
    return np.where(ended, np.nan, np.interp(ticks, measured, line[measured]))


def weighted_mean(values: np.ndarray, weights: np.ndarray | None = None, axis: int | None = None) -> np.ndarray:
    """Mean of the measured values, each with its weight; NaN where there are none."""
    weight = _weights(values, weights)
    total = weight.sum(axis)
    sums = (weight * np.where(weight > 0, values, 0.0)).sum(axis)
    return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)


def _weights(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The weight of each value; 0 where nothing was measured."""
    measured = np.isfinite(values)
    return measured.astype(float) if weights is None else np.where(measured, np.nan_to_num(weights), 0.0)


def episode_weights(name: str, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The number of episodes behind each value of a column; None if it is not a mean over episodes.

    A tick in which sixteen episodes ended counts sixteen times as much as one in which a single early finisher did.
    """
    over_episodes = name in ("return", "length") or name.startswith("return_")
    return columns.get("episodes") if over_episodes else None


def last_tenth(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Mean of [S, T] over the last tenth of the ticks, and the half width of its 95 % interval over the seeds."""
    mean, half_width = mean_and_interval(tenths(values, weights)[1])
    return float(mean), float(half_width)


def tenths(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Means [S] of [S, T] over the first and over the last tenth of the ticks."""
    size = max(1, values.shape[1] // 10)
    parts = slice(None, size), slice(-size, None)
    first, last = (weighted_mean(values[:, p], None if weights is None else weights[:, p], axis=1) for p in parts)
    return first, last


def format_mean(values: np.ndarray) -> str:
    """A mean over seeds [S] as text, with its 95 % interval if there are several."""
    mean, interval = mean_and_interval(values)
    return signed(float(mean)) + (f" ± {interval:.1f}" if np.isfinite(interval) else "")


def counted(number: int, noun: str) -> str:
    """A number with a noun that takes an `s` in the plural: `1 core`, `2 cores`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def signed(number: float, digits: int = 1) -> str:
    """A number as text, with a minus sign instead of a hyphen, and a power of ten if it is very large."""
    text = f"{number:.{digits}f}" if abs(number) < LARGE or not isfinite(number) else f"{number:.{digits + 2}e}"
    # What rounds to zero has no sign.
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", "\u2212")
