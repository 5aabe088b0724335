"""The world of directed acyclic graphs: masks, scores against other opinions, features, data."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_t

from xladder.errors import UsageError
from xladder.worlds import dag_data, dag_features, dag_scores, dags


def state_of(*edges, nodes):
    """The state with these edges, worked out from the definition of ancestors."""
    parents, ancestors = np.zeros((2, nodes), np.int32)
    for i, j in edges:
        parents[j] |= 1 << i
    for _ in range(nodes):
        for i, j in edges:
            ancestors[j] |= ancestors[i] | 1 << i
    return np.concatenate([parents, ancestors])


def mapped(function):
    return jax.jit(jax.vmap(function))


def score_of(local, state):
    return sum(local[node, state[node]] for node in range(len(local)))


@pytest.mark.parametrize(("nodes", "count"), [(2, 3), (3, 25), (4, 543), (5, 29281)])
def test_all_graphs_are_there_once(nodes, count):
    # Robinson 1973: the number of labelled acyclic graphs.
    graphs = dags.all_graphs(nodes)
    assert len(graphs) == len(np.unique(graphs, axis=0)) == count
    assert not graphs[0].any()


def test_steps_follow_the_definition():
    """In every graph with four nodes: edges may be added unless they close a cycle, and removed."""
    world = dags.Dags(np.zeros((4, 16)))
    graphs = dags.all_graphs(4)
    known = {tuple(graph[:4]): tuple(graph) for graph in graphs}
    masks, back = (np.asarray(mapped(mask)(graphs)) for mask in (world.forward_mask, world.backward_mask))
    step = jax.jit(jax.vmap(jax.vmap(world.forward, (None, 0)), (0, None)))
    undo = jax.jit(jax.vmap(jax.vmap(world.backward, (None, 0)), (0, None)))
    after, before = (np.asarray(f(graphs, jnp.arange(12))) for f in (step, undo))
    assert masks[:, -1].all()
    for number, graph in enumerate(graphs):
        for action, (i, j) in enumerate(zip(world.sources, world.targets, strict=True)):
            parents = graph[:4].copy()
            parents[j] |= 1 << i
            present = graph[j] >> i & 1
            assert back[number, action] == present
            assert masks[number, action] == (not present and tuple(parents) in known)
            if masks[number, action]:
                assert tuple(after[number, action]) == known[tuple(parents)]
            if present:
                parents[j] ^= 1 << i
                assert tuple(before[number, action]) == known[tuple(parents)]


def test_twin_is_equal():
    world = dags.Dags()
    twin, rng = world.host_twin(), np.random.default_rng(0)
    graphs = dags.all_graphs(5)[rng.integers(0, 29281, 256)]
    for name in ("forward_mask", "backward_mask", "encode", "log_reward"):
        ours = np.asarray(mapped(getattr(world, name))(graphs))
        np.testing.assert_allclose(getattr(twin, name)(graphs.astype(np.int64)), ours, rtol=1e-5, atol=1e-5)
    for mask, name in (("forward_mask", "forward"), ("backward_mask", "backward")):
        allowed = np.asarray(mapped(getattr(world, mask))(graphs))[:, :20]
        some = allowed.any(1)
        actions = allowed[some].argmax(1)
        ours = np.asarray(mapped(getattr(world, name))(graphs[some], actions))
        np.testing.assert_array_equal(getattr(twin, name)(graphs[some].astype(np.int64), actions), ours)
        stays = getattr(twin, name)(graphs.astype(np.int64), np.full(len(graphs), 20))
        np.testing.assert_array_equal(stays, graphs)


# Scores


def test_bge_is_the_product_of_predictive_distributions():
    """Sample by sample, a Normal-Wishart prior predicts a multivariate t distribution: SciPy's, set by set."""
    data = np.random.default_rng(1).normal(size=(7, 3)) @ np.array([[1, 0.5, 0], [0, 1, -2], [0, 0, 1]]) + 0.3
    alpha_mu, alpha_w = 2.0, 6.5
    scale = alpha_mu * (alpha_w - 3 - 1) / (alpha_mu + 1)
    ours = dag_scores.bge(data, alpha_mu, alpha_w)
    for some in range(1, 8):
        chosen = [i for i in range(3) if some >> i & 1]
        mean, kappa, nu = np.zeros(len(chosen)), alpha_mu, alpha_w - 3 + len(chosen)
        matrix, total = scale * np.eye(len(chosen)), 0.0
        for x in data[:, chosen]:
            free = nu - len(chosen) + 1
            total += multivariate_t.logpdf(x, mean, matrix * (kappa + 1) / (kappa * free), df=free)
            matrix = matrix + kappa / (kappa + 1) * np.outer(x - mean, x - mean)
            mean, kappa, nu = (kappa * mean + x) / (kappa + 1), kappa + 1, nu + 1
        assert ours[some] == pytest.approx(total, rel=1e-10)


def test_bde_by_hand():
    # Two binary variables, four samples (0,0) (0,0) (1,1) (0,1); one equivalent sample.
    codes = np.array([[0, 0], [0, 0], [1, 1], [0, 1]])
    local = dag_scores.local_scores(dag_scores.bde(codes, np.array([2, 2])))
    # X1 alone: Γ(1)/Γ(5) · Γ(3.5)Γ(1.5)/Γ(0.5)² = (1/24) · (2.5·1.5·0.5) · 0.5.
    assert local[0, 0] == pytest.approx(np.log(1.875 * 0.5 / 24))
    # X2 alone has counts 2 and 2: (1/24) · (1.5·0.5)².
    assert local[1, 0] == pytest.approx(np.log(0.75**2 / 24))
    # X2 given X1: each parent value has half a sample, each cell a quarter. Parent 0 has counts 2 and 1, parent 1 has
    # 0 and 1: Γ(0.5)/Γ(3.5) · (1.25·0.25)·0.25, times 0.25/0.5.
    assert local[1, 1] == pytest.approx(np.log(1.25 * 0.25 * 0.25 / 1.875 * 0.5))
    assert local[1, 2] == -np.inf


# Local scores (node, parents, score) that the code of Deleu et al. 2022 (jax-dag-gflownet) gives for the tables below.
PEER = {
    "bge": [
        (0, [], -10.248404579466166),
        (1, [0], -9.198422350529599),
        (2, [0, 1], -12.99317613592084),
        (0, [2], -12.231897594436646),
    ],
    "bde": [
        (0, [], -9.307692102760045),
        (1, [0], -6.214608098422194),
        (2, [0, 1], -5.678708837104086),
        (0, [2], -8.5012162368931),
    ],
}


def test_scores_are_those_of_a_peer():
    numbers = [[0.5, -1, 2, 0.25, 1.5], [1, -0.5, 1.75, 0, 3], [-2, 0.5, 0.75, 1, -1.25]]
    codes = [[0, 1, 0, 2, 1, 0, 2], [1, 1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 1, 0, 0]]
    sets = {"bge": dag_scores.bge(np.array(numbers).T)}
    sets["bde"] = dag_scores.bde(np.array(codes).T, np.array([3, 2, 2]), sample_size=2.0)
    for kind, rows in PEER.items():
        local = dag_scores.local_scores(sets[kind])
        for node, parents, score in rows:
            assert local[node, sum(1 << i for i in parents)] == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("kind", ["bge", "bde"])
def test_equivalent_graphs_have_equal_scores(kind):
    if kind == "bge":
        sets = dag_scores.bge(np.random.default_rng(0).normal(size=(20, 3)))
    else:
        sets = dag_scores.bde(dag_data.discrete_dataset(3, 30, 1.0, 3, 0).values, np.array([3, 3, 3]))
    local = dag_scores.local_scores(sets)
    chains = [[(0, 1), (1, 2)], [(1, 0), (1, 2)], [(2, 1), (1, 0)]]
    scores = [score_of(local, state_of(*edges, nodes=3)) for edges in chains]
    np.testing.assert_allclose(scores, scores[0], rtol=1e-12)
    # A collider says something else.
    assert abs(score_of(local, state_of((0, 1), (2, 1), nodes=3)) - scores[0]) > 1e-3
    complete = [
        score_of(local, state_of(*itertools.combinations(order, 2), nodes=3))
        for order in itertools.permutations(range(3))
    ]
    np.testing.assert_allclose(complete, complete[0], rtol=1e-12)


def test_rewards_are_relative_to_the_best_graph():
    world = dags.Dags()
    graphs = dags.all_graphs(5)
    scores = world.local[np.arange(5), graphs[:, :5]].sum(1)
    rewards = np.asarray(mapped(world.log_reward)(graphs))
    assert world.best_log_score == pytest.approx(scores.max())
    assert rewards.max() == pytest.approx(0.0, abs=1e-4)
    np.testing.assert_allclose(rewards, scores - scores.max(), atol=1e-3)
    # Adding an edge changes the score of its target alone.
    state, action = state_of((0, 1), nodes=5), 4 * 2  # 2 → 0, of 0 → 1 … 0 → 4, 1 → 0 …
    assert (world.sources[action], world.targets[action]) == (2, 0)
    change = world.log_reward(world.forward(jnp.asarray(state), jnp.int32(action))) - world.log_reward(state)
    assert change == pytest.approx(world.local[0, 0b100] - world.local[0, 0], abs=1e-3)


def test_priors():
    np.testing.assert_allclose(np.exp(dag_scores.log_prior("fair", 5, 1.0)), [1, 1 / 4, 1 / 6, 1 / 4, 1])
    np.testing.assert_allclose(dag_scores.log_prior("erdos-renyi", 5, 0.5), np.log(1 / 3) * np.arange(5))
    assert not dag_scores.log_prior("uniform", 5, 1.0).any()
    local = dag_scores.add_prior(np.zeros((3, 8)), np.array([0.0, 1.0, 5.0]))
    np.testing.assert_array_equal(local[0, [0b000, 0b010, 0b110]], [0, 1, 5])


@pytest.mark.parametrize("nodes", [2, 4])
def test_the_evidence_and_the_edges_are_those_of_all_graphs(nodes):
    local = dag_scores.local_scores(dag_scores.bge(dag_data.gaussian_dataset(nodes, 30, 0.5, 2).values))
    graphs = dags.all_graphs(nodes)
    scores = local[np.arange(nodes), graphs[:, :nodes]].sum(1)
    log_z = np.logaddexp.reduce(scores)
    assert dag_scores.log_evidence(local[None])[0] == pytest.approx(log_z, rel=1e-12)
    there = (graphs[:, None, :nodes] >> np.arange(nodes)[None, :, None] & 1).astype(float)
    expected = np.einsum("b,bij->ij", np.exp(scores - log_z), there)
    np.testing.assert_allclose(dag_scores.edge_probabilities(local), expected, atol=1e-12)
    # All graphs alike: their number, Robinson's.
    flat = np.where(np.isfinite(local), 0.0, local)
    assert np.exp(dag_scores.log_evidence(flat[None])[0]) == pytest.approx(len(graphs))


# Features


def test_features_by_hand():
    # 0 → 1 → 2 ← 3, with probability 0.25, and no edges.
    states = np.stack([state_of((0, 1), (1, 2), (3, 2), nodes=4), state_of(nodes=4)])
    found = jax.jit(dag_features.features)(states, np.float32([0.25, 0.75]))
    edges, paths, blankets = (4 * np.asarray(feature) for feature in found)
    assert {*zip(*np.nonzero(edges), strict=True)} == {(0, 1), (1, 2), (3, 2)}
    assert {*zip(*np.nonzero(paths), strict=True)} == {(0, 1), (0, 2), (1, 2), (3, 2)}
    near = {(0, 1), (1, 2), (3, 2), (1, 3)}  # 1 and 3 have a child in common
    assert {*zip(*np.nonzero(blankets), strict=True)} == near | {(j, i) for i, j in near}
    assert edges.max() == edges[0, 1] == 1


def test_distances_by_hand():
    graph = np.zeros((3, 3), bool)
    graph[0, 1] = graph[1, 2] = True
    states = np.stack([state_of(*edges, nodes=3) for edges in ([(0, 1), (1, 2)], [(1, 0)], [(0, 2)])])
    # The same; one reversed and one missing; two missing and one too many.
    distance = jax.jit(lambda states: dag_features.structural_distance(states, graph))
    np.testing.assert_array_equal(distance(states), [0, 2, 3])
    p = jnp.array([[0, 0.9, 0.2], [0.2, 0, 0.2], [0.1, 0.0, 0]])
    # Edges 0.9 and 0.2 against 0.2 0.2 0.1 0.0: four of four, and two and two halves of four.
    assert dag_features.auroc(p, graph) == pytest.approx((4 + 3) / 8)
    assert np.isnan(dag_features.auroc(p, np.zeros((3, 3), bool)))


# Data


def test_generated_data_follow_their_graph():
    found = dag_data.gaussian_dataset(5, 20_000, 1.0, 3)
    order = [node for _, node in sorted((bin(mask).count("1"), j) for j, mask in enumerate(ancestors(found.graph)))]
    assert found.graph.any()
    for place, node in enumerate(order):
        before = order[:place]
        weights = np.linalg.lstsq(found.values[:, before], found.values[:, node])[0] if before else np.zeros(0)
        rest = found.values[:, node] - found.values[:, before] @ weights
        assert rest.var() == pytest.approx(0.1, rel=0.05)  # what is left is the noise, so no parent is missing
        assert all(found.graph[i, node] or abs(weights[k]) < 0.05 for k, i in enumerate(before))
    again = dag_data.gaussian_dataset(5, 20_000, 1.0, 3)
    np.testing.assert_array_equal(again.values, found.values)


def ancestors(graph):
    parents = (graph << np.arange(len(graph))[:, None]).sum(0)
    return dags.find_ancestors(parents[None])[0]


def test_generated_categories_follow_their_graph():
    """The score of many samples prefers the graph they come from, up to equivalence."""
    found = dag_data.discrete_dataset(3, 5000, 1.0, 3, 1)
    local = dag_scores.local_scores(dag_scores.bde(found.values, found.arities))
    parents = (found.graph << np.arange(3)[:, None]).sum(0)
    best = dag_scores.best_parents(local)
    assert score_of(local, best) == pytest.approx(score_of(local, parents))


@pytest.mark.parametrize(
    ("text", "discrete", "says"),
    [
        ("", False, "has no samples"),
        ("a,b\n", False, "has no samples"),
        ("a\n1\n2\n", False, "has 1 columns, but 2 to 12"),
        ("a,b\n1,2\n3\n", False, "has 1 cells in row 3, and 2 names"),
        ("a,b\n1,\n", False, "has an empty cell in row 2, column `b`"),
        ("1,2\n3,4\n", False, "begins with numbers"),
        ("a,a\n1,2\n", False, "two columns called `a`"),
        ("a,b\n1,red\n", False, "has `red` in row 2, column `b`"),
        ("a,b\n1,inf\n", False, "has `inf` in row 2, column `b`"),
        ("a,b\n" + "".join(f"{i},0\n" for i in range(65)), True, "has 65 different values in column `a`"),
        ("\x00\xff", False, "is not a CSV file: it holds bytes that are no text"),
    ],
)
def test_bad_files_are_a_sentence(tmp_path, text, discrete, says):
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=says.replace("`", ".")):
        dag_data.read_csv(str(path), discrete, 12)


def test_files_are_read(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("rain, wet\nno,no\nyes,yes\nno,maybe\n")
    found = dag_data.read_csv(str(path), True, 12)
    assert found.names == ("rain", "wet") and found.graph is None
    np.testing.assert_array_equal(found.values, [[0, 1], [1, 2], [0, 0]])
    np.testing.assert_array_equal(found.arities, [2, 3])
    path.write_text("a,b\n1,2.5\n3,-4e1\n\n")
    np.testing.assert_array_equal(dag_data.read_csv(str(path), False, 12).values, [[1, 2.5], [3, -40]])
    with pytest.raises(UsageError, match="cannot be read"):
        dag_data.read_csv(str(tmp_path / "none.csv"), False, 12)
