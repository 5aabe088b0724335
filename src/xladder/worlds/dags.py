"""Directed acyclic graphs, built edge by edge, with the posterior over structures as target (Deleu et al. 2022).

A state is a graph with n nodes as bit masks: the parents of each node, and its ancestors. Ancestors tell which edges
would close a cycle: i → j does if j is i or an ancestor of i. Adding an edge updates them in O(n); removing one, which
is always possible, computes them anew. Every graph is an object, so stop is always allowed.

Actions are the ordered pairs of nodes: `sources[a]` → `targets[a]`. The log-reward is the log-score of the data plus
the log-prior, relative to the best graph: the best has 0, and log Z is the negative logarithm of its posterior
probability.

Shapes: n nodes, A = n·(n − 1) + 1 actions, D = 2·n numbers in a state, S = 2^n sets of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds import dag_features, dag_scores
from xladder.worlds.dag_data import Dataset, gaussian_dataset
from xladder.worlds.dag_features import Features
from xladder.worlds.flow import FlowWorld, HostWorld, Sampler

MOST_ENUMERATED = 5  # nodes: 29,281 graphs; six have 3,781,503
SAMPLES = 2000  # from which metrics are estimated where graphs cannot be enumerated
OF_THE_TRUTH = {
    "expected_shd": "expected structural Hamming distance to the true graph",
    "auroc": "AUROC of edge probabilities for the true graph",
}
LARGEST_KNOWN = {"edge_correlation": 8, "path_correlation": 5, "blanket_correlation": 5}  # nodes, for exact values
OF_THE_POSTERIOR = {
    "edge_correlation": "correlation of edge probabilities with the exact posterior's",
    "path_correlation": "correlation of path probabilities",
    "blanket_correlation": "correlation of Markov blanket probabilities",
}


class Dags(FlowWorld):
    """Graphs in proportion to their posterior probability.

    Args:
        local: float64 [n, S]: log-score of each node given each set of parents, prior included; by default the BGe
            scores of 100 samples from a random linear model with five nodes.
        dataset: What the scores were computed from, for evaluation: names and, where it is known, the true graph.
    """

    def __init__(self, local: np.ndarray | None = None, dataset: Dataset | None = None):
        if local is None:
            dataset = dataset or gaussian_dataset(nodes=5, samples=100, edges_per_node=1.0, seed=0)
            local = dag_scores.local_scores(dag_scores.bge(dataset.values))
        self.dataset, self.local, self.nodes = dataset, local, len(local)
        self.best = dag_scores.best_parents(local)
        n = self.nodes
        self.num_actions, self.max_steps = n * (n - 1) + 1, n * (n - 1) // 2 + 1
        pairs = np.argwhere(~np.eye(n, dtype=bool)).astype(np.int32)
        self.sources, self.targets = pairs[:, 0], pairs[:, 1]
        # Relative to the best graph, node by node: small numbers lose no digits in float32.
        relative = local - local[np.arange(n), self.best][:, None]
        self.table = np.where(np.isfinite(relative), relative, 0.0).astype(np.float32)
        truth = dataset is not None and dataset.graph is not None and dataset.graph.any()
        self.truth = dataset.graph if dataset is not None and truth else None
        self.metric_texts = {
            "expected_edges": "expected number of edges",
            **(OF_THE_TRUTH if truth else {}),
            **{name: text for name, text in OF_THE_POSTERIOR.items() if n <= LARGEST_KNOWN[name]},
        }
        self.chart_text, self.chart_axes = "probability of every edge", ("from", "to")

    @property
    def best_log_score(self) -> float:
        """The log-score of the best graph, which log-rewards are relative to."""
        return float(self.local[np.arange(self.nodes), self.best].sum())

    def initial(self) -> jax.Array:
        """The graph without edges."""
        return jnp.zeros(2 * self.nodes, jnp.int32)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """Any edge that is not there and closes no cycle; stop."""
        parents, ancestors = state[: self.nodes], state[self.nodes :]
        taken = has(parents[self.targets], self.sources)
        cyclic = has(ancestors[self.sources], self.targets)
        return jnp.append(~(taken | cyclic), True)

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """Any edge may have been added last."""
        return has(state[: self.nodes][self.targets], self.sources)

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Add an edge: what leads to its source now also leads to its target, and to what follows from there."""
        parents, ancestors, node = state[: self.nodes], state[self.nodes :], jnp.arange(self.nodes)
        source, target = jnp.asarray(self.sources)[action], jnp.asarray(self.targets)[action]
        new = jnp.where(node == source, ancestors, 0).sum() | (1 << source)
        reached = (node == target) | has(ancestors, target)
        return jnp.concatenate(
            [
                jnp.where(node == target, parents | (1 << source), parents),
                jnp.where(reached, ancestors | new, ancestors),
            ]
        )

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Remove an edge."""
        parents, node = state[: self.nodes], jnp.arange(self.nodes)
        source, target = jnp.asarray(self.sources)[action], jnp.asarray(self.targets)[action]
        fewer = jnp.where(node == target, parents & ~(1 << source), parents)
        return jnp.concatenate([fewer, self._ancestors(fewer)])

    def encode(self, state: jax.Array) -> jax.Array:
        """Which edges there are, and which nodes lead to which: float32 [2·n·(n − 1)]."""
        masks = state.reshape(2, self.nodes)
        return has(masks[:, self.targets], self.sources[None]).reshape(-1).astype(jnp.float32)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """The sum of its nodes' scores, relative to the best graph."""
        return jnp.asarray(self.table)[jnp.arange(self.nodes), state[: self.nodes]].sum()

    def states(self) -> np.ndarray | None:
        """int32 [N, D]: all graphs, if there are few enough nodes."""
        return self._states

    @cached_property
    def _states(self) -> np.ndarray | None:
        return all_graphs(self.nodes) if self.nodes <= MOST_ENUMERATED else None

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """What is published of posteriors over graphs: exact, or from samples."""
        whole = sampler.distribution()
        graphs = sampler.sample(SAMPLES) if whole is None else whole[0]
        p = jnp.full(SAMPLES, 1 / SAMPLES, jnp.float32) if whole is None else jnp.exp(whole[1])
        ours = dag_features.features(graphs, p)
        found = {"expected_edges": ours.edges.sum()}
        if self.truth is not None:
            found["expected_shd"] = p @ dag_features.structural_distance(graphs, self.truth).astype(jnp.float32)
            found["auroc"] = dag_features.auroc(ours.edges, self.truth)
        for name, mine, exact in zip(OF_THE_POSTERIOR, ours, self._posterior, strict=True):
            if exact is not None:
                found[name] = dag_features.correlation(mine, exact)
        return found

    def table_columns(self, objects: np.ndarray) -> Mapping[str, np.ndarray]:
        """A column of 0 and 1 for every edge."""
        names = self.dataset.names if self.dataset else [f"X{i + 1}" for i in range(self.nodes)]
        pairs = zip(self.sources, self.targets, strict=True)
        return {f"{names[i]}->{names[j]}": objects[:, j] >> i & 1 for i, j in pairs}

    def known_log_z(self) -> float | None:
        """Exact for any number of nodes, by summing over orders of the nodes; see `dag_scores.log_evidence`."""
        return float(dag_scores.log_evidence(self.local[None])[0]) - self.best_log_score

    def chart(self, state: jax.Array) -> jax.Array:
        """float32 [n, n]: which edges there are."""
        return dag_features.unpack(state[None, : self.nodes])[0].astype(jnp.float32)

    @cached_property
    def _posterior(self) -> Features | tuple[np.ndarray | None, ...]:
        """The exact posterior's features as far as they are known: of few nodes all, of some more the edges."""
        graphs = self.states()
        if graphs is None:
            known = self.nodes <= LARGEST_KNOWN["edge_correlation"]
            return dag_scores.edge_probabilities(self.local) if known else None, None, None
        scores = self.local[np.arange(self.nodes), graphs[:, : self.nodes]].sum(1)
        p = np.exp(scores - np.logaddexp.reduce(scores))
        with jax.ensure_compile_time_eval():
            found = jax.jit(dag_features.features)(jnp.asarray(graphs), jnp.asarray(p, jnp.float32))
            return Features(*map(np.asarray, found))

    def host_twin(self) -> HostWorld:
        """The same in NumPy."""
        from xladder.worlds.dags_host import HostDags

        return HostDags(self.table)

    def _ancestors(self, parents: jax.Array) -> jax.Array:
        """int32 [n]: the ancestors of each node (Warshall's algorithm, on bit masks)."""
        ancestors = parents
        for node in range(self.nodes):
            ancestors = jnp.where(has(ancestors, node), ancestors | ancestors[node], ancestors)
        return ancestors


def has(masks: jax.Array, node: jax.Array | np.ndarray | int) -> jax.Array:
    """bool […]: whether sets of nodes contain a node."""
    return (masks >> node & 1).astype(bool)


def all_graphs(nodes: int) -> np.ndarray:
    """int32 [N, 2·n]: all acyclic graphs as states, the one without edges first."""
    node = np.arange(nodes)
    choices = [np.flatnonzero(~(np.arange(2**nodes) >> i & 1).astype(bool)) for i in node]
    parents = np.stack(np.meshgrid(*choices, indexing="ij"), -1).reshape(-1, nodes).astype(np.int32)
    left = np.full(len(parents), 2**nodes - 1, np.int32)
    for _ in node:  # remove nodes without parents among those left; a cycle stays
        left &= ~((((parents & left[:, None]) == 0) << node).sum(1).astype(np.int32))
    parents = parents[left == 0]
    return np.concatenate([parents, find_ancestors(parents)], axis=1)


def find_ancestors(parents: np.ndarray) -> np.ndarray:
    """int [B, n]: the ancestors of each node of graphs, given the parents [B, n]."""
    ancestors = parents.copy()
    for node in range(parents.shape[1]):
        below = (ancestors >> node & 1).astype(bool)
        ancestors = np.where(below, ancestors | ancestors[:, node : node + 1], ancestors)
    return ancestors
