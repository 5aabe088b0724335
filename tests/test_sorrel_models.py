"""What `xladder.sorrel` computes, without sorrel; `tests/sorrel` compares it with the real package."""

import jax
import numpy as np
import pytest

import xladder.sorrel
from xladder.core.packages import is_installed
from xladder.errors import UsageError
from xladder.replay.batch import Batch
from xladder.sorrel import installation, learning
from xladder.sorrel.learning import Learned, Network, Rates, Row, Task
from xladder.sorrel.policies import QuantilePolicy, ValuePolicy

SIZES = {"iqn": Network("iqn", 24, 3, 8, 4, quantiles=5), "dqn": Network("dqn", 24, 3, 8, 4)}
FAST = Rates(np.float32(0.01), np.float32(0.1), np.float32(1))


def fresh(network, seed):
    """An agent with random weights."""
    taus = np.zeros(1, np.float32) if network.quantiles else None
    init = network.learner.net.init(jax.random.key(seed), np.zeros(network.inputs, np.float32), taus)
    return network.fresh(init["params"])


def batch(network, seed):
    drawn, size = np.random.default_rng(seed), network.batch_size
    states = drawn.random((2, size, network.inputs), dtype=np.float32)
    actions = drawn.integers(network.actions, size=size).astype(np.int32)
    returns, ones = drawn.normal(size=size).astype(np.float32), np.ones(size, np.float32)
    return Batch(states[0], actions, returns, 0.9 * ones, states[1], ones)


@pytest.mark.skipif(is_installed("sorrel"), reason="sorrel is installed")
def test_without_sorrel_a_sentence_says_how_to_get_it():
    assert "JaxIQN" in dir(xladder.sorrel)
    with pytest.raises(UsageError, match=r"`sorrel` is not installed: .*pip install 'sorrel==1\.6"):
        _ = xladder.sorrel.JaxIQN
    with pytest.raises(AttributeError, match="no attribute `JaxPPO`"):
        _ = xladder.sorrel.JaxPPO


@pytest.mark.parametrize(("version", "fits"), [("1.6.0", True), ("1.6.3", True), ("1.60.0", False), ("2.0.0", False)])
def test_another_version_of_sorrel_is_named(version, fits, monkeypatch):
    monkeypatch.setattr(installation.util, "find_spec", lambda name: object())
    monkeypatch.setattr(installation.metadata, "version", lambda name: version)
    if fits:
        installation.require_sorrel()
    else:
        with pytest.raises(UsageError, match=f"sorrel {version} is installed"):
            installation.require_sorrel()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_the_policy_in_numpy_has_the_networks_values(kind, share):
    network = SIZES[kind]
    learned, drawn = fresh(network, 1), np.random.default_rng(2)
    states = (drawn.random((6, 24)) * (drawn.random((6, 24)) < share)).astype(np.float32)
    params = jax.device_get(learned.params)
    policy = ValuePolicy(params) if kind == "dqn" else QuantilePolicy(params, 5, np.random.default_rng(3))
    taus = np.random.default_rng(3).random((6, network.quantiles), dtype=np.float32)
    expected = np.asarray(network.learner.values(learned.params, states, taus, None))
    np.testing.assert_allclose(policy.q_values(states), expected, atol=1e-6)
    for state, values, fractions in zip(states, expected, taus, strict=True):
        if kind == "iqn":
            policy.generator = type("Fixed", (), {"random": lambda self, shape, dtype, f=fractions: f.reshape(shape)})()
        assert policy.greedy(state[None]) == values.argmax()
    with pytest.raises(UsageError, match="A state has 7 numbers, but this model takes 24"):
        policy.greedy(np.zeros((1, 7)))  # the rows of a sparse state could be looked up all the same


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_agents_that_are_stacked_learn_what_each_learns_alone(kind, monkeypatch):
    """The program for a GPU, on a CPU: stacked agents, and their rows, against one after another."""
    network = SIZES[kind]
    cpu = jax.devices("cpu")[0]

    class Gpu:
        platform = "gpu"

    monkeypatch.setattr(learning.jax, "device_put", lambda tree, device: jax.tree.map(jax.numpy.asarray, tree))
    keys = [jax.random.key(i) for i in range(3)]
    together = separate = [fresh(network, i) for i in range(3)]
    for number in range(3):
        tasks = [
            [Task(a, FAST, batch(network, 10 * number + i), keys[i], number) for i, a in enumerate(agents)]
            for agents in (together, separate)
        ]
        ours = learning.run_tasks(network, Gpu(), tasks[0])
        theirs = learning.run_tasks(network, cpu, tasks[1])
        np.testing.assert_allclose([d.loss for d in ours], [d.loss for d in theirs], rtol=2e-5)
        together, separate = [d.learned for d in ours], [d.learned for d in theirs]
        assert all(isinstance(row, Row) for row in together)
        assert learning.stack(together) is together[0].stack.learned
        assert learning.stack(together[::-1]) is not together[0].stack.learned
    for row, alone in zip(together, separate, strict=True):
        assert isinstance(alone, Learned)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), row.take(), alone)
        jax.tree.map(np.testing.assert_array_equal, learning.host_params(row), row.take().params)
