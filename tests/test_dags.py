"""Posteriors over graphs as a workload: exact metrics, learning, commands, and what modified detailed balance needs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import TINY_BITS, TINY_GRAPHS, TINY_GRID
from xladder import bridge, user_code
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.gflownet import evaluation, parity, settings_check
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.dags_presets import DEFAULT, PRESETS, Config, WorldConfig
from xladder.learners.gflownet import GFlowNetLearner
from xladder.learners.gflownet_torch import TorchGFlowNet
from xladder.rungs import fused
from xladder.worlds import dags
from xladder.worlds.dags_settings import count_graphs


def test_graphs_are_counted():
    # OEIS A003024
    assert [count_graphs(n) for n in range(1, 8)] == [1, 3, 25, 543, 29281, 3781503, 1138779265]


class Stub:
    """A sampler with a known distribution, or some samples."""

    def __init__(self, whole=None, samples=None):
        self.whole, self.samples = whole, samples

    def distribution(self):
        return self.whole

    def sample(self, count, number=0):
        return self.samples[jnp.arange(count) % len(self.samples)]


def posterior(world):
    """The exact posterior, from the float64 scores."""
    graphs = dags.all_graphs(world.nodes)
    scores = world.local[np.arange(world.nodes), graphs[:, : world.nodes]].sum(1)
    return graphs, np.exp(scores - np.logaddexp.reduce(scores))


def test_metrics_of_the_posterior_itself():
    world = WorldConfig(nodes=4, data_seed=1).make()
    graphs, p = posterior(world)
    adjacency = (graphs[:, None, :4] >> np.arange(4)[None, :, None] & 1).astype(bool)
    exact = jax.jit(lambda graphs, log_p: world.metrics(Stub((graphs, log_p))))
    found = exact(graphs, np.log(p).astype(np.float32))
    assert set(found) == set(world.metric_texts)
    assert found["expected_edges"] == pytest.approx(p @ adjacency.sum((1, 2)), rel=1e-5)
    # A pair of nodes is right if both directions are.
    wrong = (adjacency != world.truth) | (adjacency != world.truth).swapaxes(1, 2)
    assert found["expected_shd"] == pytest.approx(p @ wrong.sum((1, 2)) / 2, rel=1e-5)
    for name in dags.OF_THE_POSTERIOR:
        assert found[name] == pytest.approx(1.0, abs=1e-5)
    # A sampler that knows only the true graph.
    truth = np.flatnonzero((adjacency == world.truth).all((1, 2)))
    sampled = jax.jit(lambda graphs: world.metrics(Stub(samples=graphs)))(graphs[truth])
    assert sampled["expected_edges"] == pytest.approx(world.truth.sum(), rel=1e-4)
    assert sampled["expected_shd"] == 0
    assert sampled["auroc"] == 1
    assert sampled["edge_correlation"] < 0.99


def test_exact_evaluation_knows_log_z_and_the_picture():
    config = Config(WorldConfig(nodes=4), LearnerConfig(width=8), loss="mdb")
    world, (graphs, p) = config.world.make(), posterior(config.world.make())
    bound = config.world.build()
    assert bound.log_z() == pytest.approx(-np.log(p.max()), abs=1e-4)
    expected = np.einsum("b,bij->ij", p, (graphs[:, None, :4] >> np.arange(4)[None, :, None] & 1).astype(float))
    np.testing.assert_allclose(bound.target_picture(exact=True), expected, atol=1e-5)
    assert world.known_log_z() == pytest.approx(-np.log(p.max()), abs=1e-9)
    # Graphs that encode the same independences have the same score: all of them are modes.
    assert bound.enumeration().modes.sum() == (p > p.max() * (1 - 1e-9)).sum() > 1
    large = WorldConfig(nodes=6).make()
    assert large.states() is None
    assert set(large.metric_texts) == {"expected_edges", "expected_shd", "auroc", "edge_correlation"}


def test_sampled_graphs_are_a_column_for_each_edge():
    columns = TINY_GRAPHS.world.build().table(np.array([[0, 0b101, 0, 0, 0b101, 0]], np.int32))
    assert [name for name, values in columns.items() if values[0]] == ["X1->X2", "X3->X2"]
    assert len(columns) == 6


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (WorldConfig(nodes=13), "2 to 12 nodes"),
        (WorldConfig(score="bic"), "one of bge, bde"),
        (WorldConfig(prior="flat"), "one of uniform, fair, erdos-renyi"),
        (WorldConfig(samples=0), "has to be 1 to"),
        (WorldConfig(categories=1), "2 to 64 values"),
        (WorldConfig(data_seed=-1), "negative"),
        (WorldConfig(nodes=4, edges_per_node=1.6), "at most 1.5 edges per node"),
        (WorldConfig(alpha_mu=0.0), "positive"),
        (WorldConfig(alpha_w=6.0), "more than 6, or 0 for 7"),
        (WorldConfig(equivalent_samples=float("nan")), "positive"),
        (WorldConfig(data="none.csv"), "cannot be read"),
    ],
)
def test_bad_settings_are_a_sentence(config, says):
    with pytest.raises(UsageError, match=says):
        config.check()


def test_modified_detailed_balance_needs_objects_everywhere():
    for config in (TINY_GRID, TINY_GRAPHS):
        settings_check.check(replace(config, loss="mdb"))
    with pytest.raises(UsageError, match=r"every state is an object, but \[0, 0, .*incomplete"):
        settings_check.check(replace(TINY_BITS, loss="mdb"))
    with pytest.raises(UsageError, match="mdb-delta"):
        settings_check.check(replace(TINY_GRAPHS, learner=LearnerConfig(mdb_delta=0.0)))


def test_the_flow_is_read_off_the_stop_edge_on_both_sides():
    twin = TorchGFlowNet(replace(TINY_GRAPHS, loss="mdb"))
    graphs = dags.all_graphs(3)
    params = bridge.to_jax("gflownet", twin.net.state_dict())
    log_pf, _, ours = jax.jit(GFlowNetLearner(twin.config).log_policies)(params, graphs)
    rewards = twin.world.log_reward(graphs)
    np.testing.assert_allclose(ours, rewards - np.asarray(log_pf)[:, -1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(twin.log_flow(graphs.astype(np.int64)), ours, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_updates_that_multiply_rounding_errors_have_the_tolerance_of_rounding(monkeypatch):
    """By 1.04e-2 after a hundred updates; JAX comes as far from itself if its weights are changed by 1e-6."""
    level = parity.levels(DEFAULT)[-1]
    assert level.passed and parity.MANY_UPDATES < level.tolerance <= parity.MOST_DRIFT
    update = TorchGFlowNet.update
    monkeypatch.setattr(TorchGFlowNet, "update", lambda twin, batch: [update(twin, batch) for _ in range(2)])
    assert not parity.levels(DEFAULT)[-1].passed


def test_presets_are_valid():
    for config in PRESETS.values():
        settings_check.check(config)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["bge", "bde"])
def test_the_posterior_is_learned(score):
    config = replace(DEFAULT, world=WorldConfig(nodes=3, score=score), iterations=2000)
    run = fused.start(config, [0, 1])
    run.advance(2000)
    found = evaluation.measure(config, run.params(), 0, compiled).columns
    assert np.all(found["tv"] < 0.05)
    assert np.all(found["edge_correlation"] > 0.97)
    assert np.all(found["logz_error"] < 0.1)


def test_own_data_are_used(tmp_path):
    path = tmp_path / "mine.csv"
    values = np.random.default_rng(0).normal(size=(30, 3))
    values[:, 2] = values[:, 0] + 0.1 * values[:, 2]
    path.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in values))
    config = WorldConfig(data=str(path))
    config.check()
    assert (config.num_nodes, config.steps, config.state_size, config.states) == (3, 4, 6, 25)
    world = config.make()
    assert world.truth is None and "auroc" not in world.metric_texts
    graphs, p = posterior(world)
    edges = jax.vmap(world.chart)(graphs)
    assert p @ np.asarray(edges[:, 0, 2] + edges[:, 2, 0]) > 0.99  # a and c belong together
    assert "30 samples of" in config.headline()
    # The file is part of a run.
    before = user_code.digests({"world": {"data": str(path)}})
    user_code.check_unchanged(before, "a run", {"data": str(path)})
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(UsageError, match="has changed"):
        user_code.check_unchanged(before, "a run", {"data": str(path)})
