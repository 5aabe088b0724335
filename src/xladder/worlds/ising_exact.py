"""The Ising model on a torus in closed form: log Z, mean energy and perfect samples, in NumPy and float64.

Every site has a bond to the next one in its row and in its column: 2·N² bonds, of which those of a 2 × 2 torus come in
pairs. `strength` is K = J / T, and the weight of a lattice exp(K · Σ s·s′ over bonds).

`log_z_by_rows` multiplies transfer matrices between rows (Kramers and Wannier 1941); `log_z_by_modes` is Kaufman's
formula (1949), for lattices of any size without frustration.

Shapes: N sites in a row, R = 2^N possible rows, B samples.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

MOST_ROWS = 10  # sites in a row, up to which matrices between all possible rows are multiplied


@lru_cache(maxsize=64)
def log_z(side: int, strength: float) -> float | None:
    """The logarithm of the partition function; None where neither method applies."""
    if strength < 0 and side % 2:  # not all bonds can have their way
        return log_z_by_rows(side, strength) if side <= MOST_ROWS else None
    return log_z_by_modes(side, abs(strength))


def log_z_by_rows(side: int, strength: float) -> float:
    """log Z from the eigenvalues of the transfer matrix."""
    scale, matrix = _transfer(side, strength)
    values = np.linalg.eigvalsh(matrix)
    largest = np.abs(values).max()
    return side * (scale + float(np.log(largest))) + float(np.log(((values / largest) ** side).sum()))


def log_z_by_modes(side: int, strength: float) -> float:
    """log Z by Kaufman's formula, for a strength that is not negative."""
    if strength == 0.0:
        return side**2 * float(np.log(2.0))
    ratio = np.cosh(2 * strength) / np.tanh(2 * strength)
    angles = np.arccosh(ratio - np.cos(np.pi * np.arange(1, 2 * side) / side))
    angles = np.append(2 * strength + np.log(np.tanh(strength)), angles)  # the first is negative above T_c
    halves = side * angles / 2
    cosh = np.logaddexp(halves, -halves)
    size = np.abs(halves)
    # At T_c the first angle is 0, and the last product with it.
    sinh = size + np.log(-np.expm1(-2 * size), out=np.full_like(size, -np.inf), where=size > 0)
    parts = [cosh[1::2].sum(), sinh[1::2].sum(), cosh[::2].sum(), sinh[::2].sum()]
    signs = [1.0, 1.0, 1.0, np.sign(halves[0])]
    most = max(parts)
    total = most + np.log(sum(sign * np.exp(part - most) for sign, part in zip(signs, parts, strict=True)))
    return float(total - np.log(2.0) + side**2 / 2 * np.log(2 * np.sinh(2 * strength)))


def mean_bonds(side: int, strength: float) -> float | None:
    """The expected Σ s·s′ over bonds: the derivative of log Z, by differences; None where log Z is unknown."""
    step = 1e-4
    below, above = log_z(side, strength - step), log_z(side, strength + step)
    return None if below is None or above is None else (above - below) / (2 * step)


@lru_cache(maxsize=4)
def perfect_samples(side: int, strength: float, count: int, seed: int = 0) -> np.ndarray:
    """int8 [B, N²]: independent samples, spins −1 and 1, drawn row by row from exact conditional probabilities."""
    rng = np.random.default_rng(seed)
    _, step = _transfer(side, strength)
    step = step / step.sum(1).max()  # so that powers neither grow nor vanish
    powers = [step]  # from one row to a later one, over all rows in between
    for _ in range(side - 1):
        powers.append(powers[-1] @ step)
    first = _pick(np.repeat(np.diagonal(powers[-1])[None], count, axis=0), rng)
    found = [first]
    for left in range(side - 1, 0, -1):  # rows from the next one back to the first
        found.append(_pick(step[found[-1]] * powers[left - 1][first], rng))
    return np.concatenate([_rows(side)[row] for row in found], axis=1).astype(np.int8)


def _pick(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """int [B]: one column of each line, in proportion to weights [B, R]."""
    heights = np.cumsum(weights, axis=1)
    draws = rng.random((len(weights), 1)) * heights[:, -1:]
    return np.minimum((heights <= draws).sum(1), weights.shape[1] - 1)


def _rows(side: int) -> np.ndarray:
    """int [R, N]: all rows of spins −1 and 1."""
    return 2 * (np.arange(2**side)[:, None] >> np.arange(side)[None, :] & 1) - 1


def _transfer(side: int, strength: float) -> tuple[float, np.ndarray]:
    """The transfer matrix between rows [R, R], with half of either row's own bonds, divided by e^scale."""
    rows = _rows(side).astype(float)
    within = (rows * np.roll(rows, 1, axis=1)).sum(1)
    logs = strength * (rows @ rows.T + (within[:, None] + within[None, :]) / 2)
    return float(logs.max()), np.exp(logs - logs.max())
