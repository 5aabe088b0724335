"""Data from which the structure of a graph is inferred: drawn from a random graph, or read from a CSV file.

Shapes: N samples, n variables, which are the nodes of the graph.
"""

from __future__ import annotations

import csv
from typing import NamedTuple

import numpy as np

from xladder.errors import UsageError, brief
from xladder.worlds.table_files import find_table, lines_of

NOISE = 0.1  # variance of the noise of linear models, as in Deleu et al. 2022
MOST_VALUES = 64  # of a discrete variable


class Dataset(NamedTuple):
    """Samples, and the graph that they come from, if it is known."""

    names: tuple[str, ...]  # of the variables
    values: np.ndarray  # float64 [N, n], or int64 [N, n]: codes from 0 on
    arities: np.ndarray | None  # int64 [n]: numbers of values; None if continuous
    graph: np.ndarray | None  # bool [n, n]: row → column


def random_graph(rng: np.random.Generator, nodes: int, edges_per_node: float) -> np.ndarray:
    """bool [n, n]: an Erdős–Rényi graph, acyclic by a random order of its nodes."""
    p = min(1.0, 2 * edges_per_node / (nodes - 1))
    below = np.triu(rng.random((nodes, nodes)) < p, 1)
    order = rng.permutation(nodes)
    return below[order][:, order]


def gaussian_dataset(nodes: int, samples: int, edges_per_node: float, seed: int) -> Dataset:
    """Samples of a random linear model: weights from N(0, 1), Gaussian noise with variance 0.1 (Deleu et al. 2022)."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, nodes, edges_per_node)
    weights = np.where(graph, rng.normal(size=(nodes, nodes)), 0.0)
    noise = np.sqrt(NOISE) * rng.normal(size=(samples, nodes))
    # x = x·W + noise; W is nilpotent, so the inverse exists.
    values = noise @ np.linalg.inv(np.eye(nodes) - weights)
    return Dataset(_names(nodes), values, None, graph)


def discrete_dataset(nodes: int, samples: int, edges_per_node: float, arity: int, seed: int) -> Dataset:
    """Samples of a random graph whose conditional probabilities are drawn from uniform Dirichlet distributions."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, nodes, edges_per_node)
    values, done = np.zeros((samples, nodes), np.int64), np.zeros(nodes, bool)
    while not done.all():
        for node in np.flatnonzero(~done & ~(graph & ~done[:, None]).any(0)):
            parents = np.flatnonzero(graph[:, node])
            row = values[:, parents] @ arity ** np.arange(len(parents))
            sums = rng.dirichlet(np.ones(arity), arity ** len(parents)).cumsum(1)
            values[:, node] = (rng.random(samples)[:, None] >= sums[row, :-1]).sum(1)
            done[node] = True
    return Dataset(_names(nodes), values, np.full(nodes, arity), graph)


def _names(nodes: int) -> tuple[str, ...]:
    return tuple(f"X{i + 1}" for i in range(nodes))


def read_csv(path: str, discrete: bool, most: int) -> Dataset:
    """Read a table with a row of names and a row for each sample.

    Args:
        path: The file.
        discrete: Whether values are categories, which may be any text, instead of numbers.
        most: Number of variables that are possible.
    """
    where = f"`--world.data {path}`"
    names, rows = _rows(path, where, most)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{where} has two columns called `{twice}`.")
    return _categories(names, rows, where) if discrete else _numbers(names, rows, where)


def _rows(path: str, where: str, most: int) -> tuple[list[str], list[list[str]]]:
    names, rows = list[str](), list[list[str]]()
    try:
        with find_table(path, "world.data").open(newline="", encoding="utf-8-sig") as file:
            for read in filter(None, csv.reader(lines_of(file, path, "world.data"))):
                row, number = [cell.strip() for cell in read], len(rows) + 2
                if not names:
                    names = row
                    if not 2 <= len(names) <= most:
                        raise UsageError(f"{where} has {len(names)} columns, but 2 to {most} variables are possible.")
                    continue
                if len(row) != len(names):
                    raise UsageError(
                        f"{where} has {len(row)} cells in row {number}, and {len(names)} names in the first."
                    )
                if "" in row:
                    raise UsageError(f"{where} has an empty cell in row {number}, column `{names[row.index('')]}`.")
                rows.append(row)
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not a CSV file: it holds bytes that are no text in UTF-8.") from error
    except (OSError, csv.Error) as error:
        raise UsageError(f"{where} cannot be read: {brief(error)}.") from error
    if not rows:
        raise UsageError(f"{where} has no samples: it needs a row of names and a row for each sample.")
    if all(_is_number(name) for name in names):
        raise UsageError(f"{where} begins with numbers: its first row has to be the names of the variables.")
    return names, rows


def _numbers(names: list[str], rows: list[list[str]], where: str) -> Dataset:
    for number, row in enumerate(rows, 2):
        for name, cell in zip(names, row, strict=True):
            if not (_is_number(cell) and np.isfinite(float(cell))):
                raise UsageError(
                    f"{where} has `{cell}` in row {number}, column `{name}`: BGe needs finite numbers. For categories, "
                    "add `--world.score bde`."
                )
    return Dataset(tuple(names), np.array(rows, float), None, None)


def _categories(names: list[str], rows: list[list[str]], where: str) -> Dataset:
    table = np.array(rows)
    values = np.zeros(table.shape, np.int64)
    for column, name in enumerate(names):
        known, values[:, column] = np.unique(table[:, column], return_inverse=True)
        if len(known) > MOST_VALUES:
            raise UsageError(
                f"{where} has {len(known)} different values in column `{name}`: BDe is for discrete variables with at "
                f"most {MOST_VALUES}. For numbers, add `--world.score bge`."
            )
    return Dataset(tuple(names), values, values.max(0) + 1, None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
