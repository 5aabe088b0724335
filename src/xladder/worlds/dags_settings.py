"""Settings of the posterior over directed acyclic graphs: data, score and prior. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from xladder.errors import need
from xladder.worlds.flow_built_in import BuiltInSettings
from xladder.worlds.table_files import check_recorded

if TYPE_CHECKING:
    from xladder.worlds.dag_data import Dataset
    from xladder.worlds.dags import Dags

MOST_NODES = 12  # the table of scores has n·2^n entries
MOST_SAMPLES = 1_000_000
Score = Literal["bge", "bde"]
Prior = Literal["uniform", "fair", "erdos-renyi"]


@dataclass(frozen=True)
class WorldConfig(BuiltInSettings):
    """Data, score and prior of a posterior over graphs."""

    workload: ClassVar[str] = "dags"
    all_complete: ClassVar[bool] = True
    nodes: int = 5
    """Number of nodes, unless data are given: 2 to 12. Up to 5 are evaluated exactly."""
    score: Score = "bge"
    """bge: linear models with Gaussian noise; bde: discrete data."""
    prior: Prior = "uniform"
    """Over graphs: uniform; fair (uniform over the number of parents); erdos-renyi (edges_per_node expected)."""
    samples: int = 100
    """Samples that are generated."""
    edges_per_node: float = 1.0
    """Expected edges per node of the graph that generates them."""
    categories: int = 2
    """Values of each generated variable, for bde."""
    data_seed: int = 0
    """Seed of graph and samples."""
    data: str = ""
    """A CSV file with your own data: a row of names, then a row per sample. It replaces the generated ones."""
    alpha_mu: float = 1.0
    """Prior of bge: weight of the mean, zero, in samples."""
    alpha_w: float = 0.0
    """Prior of bge: degrees of freedom, more than nodes + 1; 0 means nodes + 2."""
    equivalent_samples: float = 1.0
    """Prior of bde: the equivalent sample size."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes, n: the columns of the data."""
        return self.dataset().values.shape[1] if self.data else self.nodes

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop: n·(n − 1) / 2 edges."""
        return self.num_nodes * (self.num_nodes - 1) // 2 + 1

    @property
    def state_size(self) -> int:
        """Numbers in a state: two for each node."""
        return 2 * self.num_nodes

    @property
    def states(self) -> int:
        """Number of graphs."""
        return count_graphs(self.num_nodes)

    def check(self) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed."""
        for flag, value, known in [("score", self.score, Score), ("prior", self.prior, Prior)]:
            need(value in get_args(known), f"world.{flag}", value, f"it has to be one of {', '.join(get_args(known))}")
        need(2 <= self.nodes <= MOST_NODES, "world.nodes", self.nodes, f"2 to {MOST_NODES} nodes are possible")
        need(1 <= self.samples <= MOST_SAMPLES, "world.samples", self.samples, f"it has to be 1 to {MOST_SAMPLES:,}")
        need(2 <= self.categories <= 64, "world.categories", self.categories, "a variable has 2 to 64 values")
        need(self.data_seed >= 0, "world.data-seed", self.data_seed, "it cannot be negative")
        nodes = self.num_nodes
        most = (nodes - 1) / 2
        need(
            0.0 < self.edges_per_node <= most,
            "world.edges-per-node",
            self.edges_per_node,
            f"a graph with {nodes} nodes has more than 0 and at most {most:g} edges per node",
        )
        for flag, number in [("alpha-mu", self.alpha_mu), ("equivalent-samples", self.equivalent_samples)]:
            need(0.0 < number < float("inf"), f"world.{flag}", number, "it has to be a positive number")
        need(
            self.alpha_w == 0 or nodes + 1 < self.alpha_w < float("inf"),
            "world.alpha-w",
            self.alpha_w,
            f"with {nodes} nodes it has to be more than {nodes + 1}, or 0 for {nodes + 2}",
        )

    def headline(self) -> str:
        """A short description of the posterior."""
        source = f"samples of {self.data}" if self.data else f"samples (data seed {self.data_seed})"
        count, nodes = self.dataset().values.shape
        return f"{self.size_in_words()} with {nodes} nodes, {count} {source}, score {self.score}"

    def size_in_words(self) -> str:
        """How many graphs there are."""
        return super().size_in_words().replace("states", "graphs")

    def make(self) -> Dags:
        """The world."""
        from xladder.worlds import dag_scores
        from xladder.worlds.dags import Dags

        found = self.dataset()
        if found.arities is None:
            sets = dag_scores.bge(found.values, self.alpha_mu, self.alpha_w or None)
        else:
            sets = dag_scores.bde(found.values, found.arities, self.equivalent_samples)
        prior = dag_scores.log_prior(self.prior, found.values.shape[1], self.edges_per_node)
        return Dags(dag_scores.add_prior(dag_scores.local_scores(sets), prior), found)

    def dataset(self) -> Dataset:
        """The data, generated or read."""
        check_recorded(self.data, "world.data")
        return _dataset(self)


@lru_cache(maxsize=16)
def _dataset(settings: WorldConfig) -> Dataset:
    from xladder.worlds import dag_data

    if settings.data:
        return dag_data.read_csv(settings.data, settings.score == "bde", MOST_NODES)
    size = settings.nodes, settings.samples, settings.edges_per_node
    if settings.score == "bge":
        return dag_data.gaussian_dataset(*size, settings.data_seed)
    return dag_data.discrete_dataset(*size, settings.categories, settings.data_seed)


def count_graphs(nodes: int) -> int:
    """The number of acyclic graphs with labelled nodes (Robinson 1973)."""
    counts = [1]
    for n in range(1, nodes + 1):
        # By the k nodes without parents; inclusion and exclusion.
        counts.append(sum((-1) ** (k + 1) * comb(n, k) * 2 ** (k * (n - k)) * counts[n - k] for k in range(1, n + 1)))
    return counts[nodes]
