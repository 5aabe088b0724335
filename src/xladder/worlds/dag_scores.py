"""Bayesian scores of directed acyclic graphs: the logarithm of the marginal likelihood of data, given a graph.

- BGe, for linear models with Gaussian noise: Geiger & Heckerman 1994, 2002, as corrected by Kuipers, Moffa & Heckerman
  2014 ("Addendum on the scoring of Gaussian directed acyclic graphical models").
- BDe, for discrete data: Heckerman, Geiger & Chickering 1995, with a uniform joint prior (also called BDeu).

Both give every set S of variables a marginal likelihood of its own, p(d_S). A graph's score is a product over nodes of
p(d of the node and its parents) / p(d of the parents), so a table of the 2^n sets holds all scores, and graphs that
encode the same independences have equal scores. Sets are bit masks: bit i stands for node i. All in NumPy, float64.

Shapes: n nodes, N samples, S = 2^n sets of nodes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

FORBIDDEN = -np.inf  # the score of a node that is its own parent


def members(nodes: int) -> np.ndarray:
    """bool [S, n]: which nodes belong to each set."""
    return (np.arange(2**nodes)[:, None] >> np.arange(nodes) & 1).astype(bool)


def bge(data: np.ndarray, alpha_mu: float = 1.0, alpha_w: float | None = None) -> np.ndarray:
    """float64 [S]: log-marginal likelihood of every set of variables in a Gaussian model.

    Args:
        data: float [N, n].
        alpha_mu: Weight of the prior mean, zero, in samples.
        alpha_w: Degrees of freedom of the Wishart prior, more than n + 1; n + 2 if None. Its scale matrix is diagonal,
            chosen so that the prior expects a unit covariance.
    """
    count, nodes = data.shape
    alpha_w = nodes + 2.0 if alpha_w is None else alpha_w
    scale = alpha_mu * (alpha_w - nodes - 1) / (alpha_mu + 1)
    mean = data.mean(0)
    centred = data - mean
    posterior = scale * np.eye(nodes) + centred.T @ centred
    posterior += count * alpha_mu / (count + alpha_mu) * np.outer(mean, mean)
    inside = members(nodes)
    size = inside.sum(1)
    # The determinant of a part of a matrix: ones on the diagonal stand for what is left out.
    parts = np.where(inside[:, :, None] & inside[:, None, :], posterior, np.eye(nodes))
    log_det = np.linalg.slogdet(parts)[1]
    freedom = alpha_w - nodes + size
    return (
        0.5 * size * (np.log(alpha_mu) - np.log(count + alpha_mu))
        - 0.5 * count * size * np.log(np.pi)
        + _log_gamma_ratio(freedom, size, count)
        + 0.5 * freedom * size * np.log(scale)
        - 0.5 * (count + freedom) * log_det
    )


def _log_gamma_ratio(freedom: np.ndarray, size: np.ndarray, count: int) -> np.ndarray:
    """float64 [S]: log Γ_l((N + ν)/2) − log Γ_l(ν/2), multivariate in l = `size` dimensions."""
    below = np.arange(size.max())[None, :]
    used = below < size[:, None]
    start = np.where(used, freedom[:, None] - below, 2.0)  # anything valid where it is not used
    return np.where(used, gammaln(0.5 * (start + count)) - gammaln(0.5 * start), 0.0).sum(1)


def bde(codes: np.ndarray, arities: np.ndarray, sample_size: float = 1.0) -> np.ndarray:
    """float64 [S]: log-marginal likelihood of every set of variables in a discrete model.

    Args:
        codes: int [N, n]: values, from 0 on.
        arities: int [n]: number of values of each variable.
        sample_size: The equivalent sample size of the prior, spread evenly over all joint values.
    """
    found = np.zeros(2 ** codes.shape[1])
    for number, inside in enumerate(members(codes.shape[1])):
        # Joint values that do not occur contribute nothing.
        counts = np.unique(codes[:, inside], axis=0, return_counts=True)[1] if inside.any() else np.array([len(codes)])
        each = sample_size / np.prod(arities[inside], dtype=float)
        found[number] = (gammaln(counts + each) - gammaln(each)).sum()
    return found


def local_scores(sets: np.ndarray) -> np.ndarray:
    """float64 [n, S]: log-score of each node given each set of parents, from the sets' own [S].

    The empty set's value cancels. FORBIDDEN where a node is among its parents.
    """
    nodes = int(np.log2(len(sets)))
    parents, own = np.arange(len(sets)), 1 << np.arange(nodes)[:, None]
    scores = sets[parents | own] - sets[None, :]
    return np.where(parents & own, FORBIDDEN, scores)


def log_prior(kind: str, nodes: int, edges_per_node: float) -> np.ndarray:
    """float64 [n]: logarithm of the prior's factor for a node with k = 0 … n − 1 parents, up to a constant.

    `uniform` over graphs; `fair` over the number of parents (Friedman & Koller 2003); `erdos-renyi`: every edge is
    present with the probability at which a graph has `edges_per_node` edges per node on average.
    """
    parents = np.arange(nodes)
    if kind == "fair":
        return gammaln(parents + 1) + gammaln(nodes - parents) - gammaln(nodes)
    if kind == "erdos-renyi":
        p = min(2 * edges_per_node / (nodes - 1), 1 - 1e-6)
        return parents * np.log(p / (1 - p))
    return np.zeros(nodes)


def add_prior(local: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """float64 [n, S]: local scores with the prior's factors [n] added."""
    size = members(len(local)).sum(1)
    return local + prior[np.minimum(size, len(prior) - 1)]  # the set of all nodes is forbidden anyway


def best_parents(local: np.ndarray) -> np.ndarray:
    """int64 [n]: the parent sets of the best acyclic graph.

    Dynamic programming over the sets of nodes that may come first in an order (Silander & Myllymäki 2006).
    """
    nodes, sets = local.shape
    # The best parents of a node within every set: passed on from each set to the sets with one member more.
    value, chosen = local.copy(), np.tile(np.arange(sets), (nodes, 1))
    for bit in range(nodes):
        larger = np.flatnonzero(np.arange(sets) >> bit & 1)
        smaller = larger ^ (1 << bit)
        better = value[:, smaller] > value[:, larger]
        value[:, larger] = np.where(better, value[:, smaller], value[:, larger])
        chosen[:, larger] = np.where(better, chosen[:, smaller], chosen[:, larger])
    best, last = np.zeros(sets), np.zeros(sets, np.int64)
    for some in range(1, sets):
        sinks = [node for node in range(nodes) if some >> node & 1]
        totals = [best[some ^ (1 << node)] + value[node, some ^ (1 << node)] for node in sinks]
        best[some], last[some] = max(totals), sinks[int(np.argmax(totals))]
    parents, some = np.zeros(nodes, np.int64), sets - 1
    while some:
        node = last[some]
        some ^= 1 << int(node)
        parents[node] = chosen[node, some]
    return parents


def log_evidence(local: np.ndarray) -> np.ndarray:
    """float64 [C]: log Σ exp(score) over all acyclic graphs, for local scores [C, n, S] of several models.

    Graphs on a set of nodes are summed by the nodes T that have no children among them, with inclusion and exclusion
    (Tian & He 2009, after Robinson's count): every graph is counted once, in 3^n steps instead of one for each graph.
    No term exceeds the sum, so that little is lost by cancellation.
    """
    models, nodes, sets = local.shape
    within = local.copy()  # log-sum over the parents of a node within each set
    for bit in range(nodes):
        larger = np.flatnonzero(np.arange(sets) >> bit & 1)
        within[:, :, larger] = np.logaddexp(within[:, :, larger], within[:, :, larger ^ (1 << bit)])
    inside = members(nodes)
    total = np.zeros((models, sets))
    for some in range(1, sets):
        sinks = np.flatnonzero((np.arange(some + 1) & ~some) == 0)[1:]  # all sets T within, but the empty one
        others = some ^ sinks
        terms = total[:, others].copy()
        for node in np.flatnonzero(inside[some]):
            has = inside[sinks, node]
            terms[:, has] += within[:, node, others[has]]
        top = terms.max(1, keepdims=True)
        signs = np.where(inside[sinks].sum(1) % 2, 1.0, -1.0)
        total[:, some] = top[:, 0] + np.log((signs * np.exp(terms - top)).sum(1))
    return total[:, -1]


def edge_probabilities(local: np.ndarray) -> np.ndarray:
    """float64 [n, n]: the posterior probability of every edge, row → column, from local scores [n, S]."""
    nodes, sets = local.shape
    whole = log_evidence(local[None])[0]
    found = np.zeros((nodes, nodes))
    for i, j in np.argwhere(~np.eye(nodes, dtype=bool)):
        without = local.copy()  # graphs without the edge; their complement would be lost among forbidden sets
        without[j, (np.arange(sets) >> i & 1).astype(bool)] = FORBIDDEN
        found[i, j] = -np.expm1(min(0.0, log_evidence(without[None])[0] - whole))
    return found
