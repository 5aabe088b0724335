"""Features of graphs, by which distributions over graphs are compared: edges, paths, Markov blankets, and distances.

Graphs are given as states of `dags.py`: bit masks of each node's parents, then of its ancestors. Works on NumPy and on
JAX arrays.

Shapes: B graphs, n nodes, D = 2·n numbers in a state. A feature is a matrix [n, n], row → column.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.types import Array


class Features(NamedTuple):
    """Marginal probabilities of features, float [n, n] each, with zeros on the diagonal."""

    edges: Array  # i is a parent of j
    paths: Array  # i is an ancestor of j
    blankets: Array  # i is in the Markov blanket of j: a parent, a child, or a child's other parent


def unpack(masks: jax.Array) -> jax.Array:
    """bool [B, n, n]: whether i is in j's set, from bit masks [B, n]."""
    node = np.arange(masks.shape[-1], dtype=np.int32)
    return (masks[:, None, :] >> node[None, :, None] & 1).astype(bool)


def features(states: jax.Array, weights: jax.Array) -> Features:
    """The features' probabilities in a distribution: graphs [B, D] and the probability of each, float [B]."""
    nodes = states.shape[1] // 2
    edges, paths = unpack(states[:, :nodes]), unpack(states[:, nodes:])
    numbers = edges.astype(jnp.float32)
    spouses = jnp.einsum("bik,bjk->bij", numbers, numbers) > 0
    blankets = (edges | edges.swapaxes(1, 2) | spouses) & ~jnp.eye(nodes, dtype=bool)[None]
    return Features(*(_expected(feature, weights) for feature in (edges, paths, blankets)))


def _expected(feature: jax.Array, weights: jax.Array) -> jax.Array:
    flat = feature.reshape(len(feature), -1).astype(weights.dtype)
    return jnp.dot(weights, flat, precision="highest").reshape(feature.shape[1:])


def structural_distance(states: jax.Array, graph: np.ndarray) -> jax.Array:
    """int32 [B]: the structural Hamming distance of graphs [B, D] to a graph bool [n, n]; a reversed edge counts 1."""
    different = unpack(states[:, : len(graph)]) != jnp.asarray(graph)[None]
    either = different | different.swapaxes(1, 2)
    return either.sum((1, 2)) // 2


def auroc(edges: jax.Array, graph: np.ndarray) -> jax.Array:
    """float []: the area under the ROC curve of edge probabilities [n, n] as a classifier of the edges of a graph.

    The probability that an edge of the graph is more probable than a pair without one; ties count half. Pairs of a node
    with itself are left out. nan if the graph has no edges.
    """
    apart = ~np.eye(len(graph), dtype=bool)
    present, absent = edges[graph], edges[~graph & apart]
    pairs = present[:, None] - absent[None, :]
    return ((pairs > 0).mean() + (pairs >= 0).mean()) / 2


def correlation(ours: jax.Array, theirs: jax.Array) -> jax.Array:
    """float []: Pearson's correlation of two features' probabilities [n, n], without the diagonal."""
    apart = ~np.eye(len(ours), dtype=bool)
    return jnp.corrcoef(ours[apart], theirs[apart])[0, 1]
