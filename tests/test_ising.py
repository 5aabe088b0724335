"""The Ising model: log Z and samples by three methods, its rules, its twin, and what a sampler is measured by."""

import math
from dataclasses import replace
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.gflownet import evaluation, ising_presets
from xladder.families.gflownet.check import check_world
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.program import Program
from xladder.plans import plan
from xladder.rungs import fused
from xladder.worlds import ising_exact
from xladder.worlds.flow_own import OwnWorld
from xladder.worlds.ising import Ising
from xladder.worlds.ising_settings import WorldConfig

CRITICAL = np.log(1 + np.sqrt(2)) / 2
TINY = LearnerConfig(batch_size=8, width=16)


@cache
def bonds_of_all(side: int) -> np.ndarray:
    """int [2^n]: Σ s·s′ of every lattice, bond by bond."""
    places = list(product(range(side), repeat=2))
    found = np.zeros(2 ** (side * side), int)
    for number, lattice in enumerate(product((-1, 1), repeat=side * side)):
        spin = np.reshape(lattice, (side, side)).tolist()
        found[number] = sum(spin[i][j] * (spin[i][(j + 1) % side] + spin[(i + 1) % side][j]) for i, j in places)
    return found


@pytest.mark.parametrize("side", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strength", [0.0, 0.1, CRITICAL, 1.0, -0.3])
def test_log_z_is_the_sum_over_all_lattices(side, strength):
    weights = strength * bonds_of_all(side)
    log_z = weights.max() + np.log(math.fsum(np.exp(weights - weights.max())))  # 65,536 terms, summed without rounding
    assert ising_exact.log_z_by_rows(side, strength) == pytest.approx(log_z, rel=1e-13)
    assert ising_exact.log_z(side, strength) == pytest.approx(log_z, rel=1e-13)
    if strength >= 0 or side % 2 == 0:
        assert ising_exact.log_z_by_modes(side, abs(strength)) == pytest.approx(log_z, rel=1e-13)
    mean = (np.exp(weights - log_z) * bonds_of_all(side)).sum()
    assert ising_exact.mean_bonds(side, strength) == pytest.approx(mean, abs=2e-6)


def test_both_methods_agree_and_approach_onsagers_value():
    for strength in (0.2, CRITICAL, 0.9):
        assert ising_exact.log_z_by_rows(7, strength) == pytest.approx(
            ising_exact.log_z_by_modes(7, strength), rel=1e-12
        )
    assert ising_exact.log_z_by_modes(10, 0.2) == pytest.approx(73.45309780383302, rel=1e-13)  # by rows, once
    catalan = 0.915965594177219
    # Onsager 1944 at the critical point; a torus has log(2^¼ + 2^−½)… / N² more, here 1.6e-4.
    assert ising_exact.log_z_by_modes(64, CRITICAL) / 64**2 == pytest.approx(
        np.log(2) / 2 + 2 * catalan / np.pi, abs=2e-4
    )
    assert ising_exact.log_z(11, -0.5) is None  # frustrated, and too large


def test_perfect_samples_follow_the_target():
    spins = ising_exact.perfect_samples(3, 0.4, 20_000, seed=3)
    assert set(np.unique(spins)) == {-1, 1}
    places = (spins > 0) @ (1 << np.arange(8, -1, -1))
    weights = 0.4 * bonds_of_all(3)
    target = np.exp(weights - np.logaddexp.reduce(weights))
    seen = np.bincount(places, minlength=512) / 20_000
    assert np.abs(seen - target).sum() / 2 < 0.05  # 0.03 is noise


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "states"), [("any", 81), pytest.param("rows", 41, marks=pytest.mark.slow), ("sites", 31)]
)
def test_all_states_are_listed_and_nothing_is_wrong(order, states):
    world = Ising(2, coupling=0.7, temperature=1.4, order=order)
    known = OwnWorld(world).enumeration()
    assert len(known.states) == len(np.unique(known.states, axis=0)) == states
    assert known.terminal.sum() == 16
    assert known.log_z == pytest.approx(world.known_log_z(), abs=1e-6)
    assert check_world(world) == []  # steps, inverses and the twin in NumPy
    assert WorldConfig(2, order=order).states == states


def test_rewards_and_actions_are_gfnx_and_torchgfns():
    """Both: log R = xᵀJx with J = σ · adjacency, action i sets spin i mod n down and i + n up."""
    side, sigma = 3, 0.1
    world = Ising(side, coupling=2 * sigma, temperature=1.0)
    sites = side * side
    adjacency = np.zeros((sites, sites))
    for i, j in product(range(side), repeat=2):
        for near in ((i + 1) % side * side + j, i * side + (j + 1) % side):
            adjacency[i * side + j, near] = adjacency[near, i * side + j] = 1
    rng = np.random.default_rng(0)
    for _ in range(5):
        bits = rng.integers(0, 2, sites)
        state = world.initial()
        for site in rng.permutation(sites):
            action = site + sites * bits[site]
            assert world.forward_mask(state)[action] and not world.forward_mask(state)[-1]
            state = world.forward(state, jnp.int32(action))
        spins = 2 * bits - 1
        assert float(world.log_reward(state)) == pytest.approx(sigma * spins @ adjacency @ spins, abs=1e-5)
        assert np.asarray(world.forward_mask(state)).tolist() == [False] * (2 * sites) + [True]
        np.testing.assert_array_equal(world.image(np.asarray(state)), spins.reshape(side, side))


@pytest.mark.slow
def test_a_uniform_sampler_is_measured_as_what_it_is():
    """All lattices are equally likely: their energies are known, and so is how far they are from the target."""
    world = Ising(3, coupling=0.3, temperature=1.0, order="sites")

    class Uniform:
        def sample(self, count, number=0):
            return jnp.asarray(np.random.default_rng(number).integers(1, 3, (count, 9)), jnp.int32)

        def log_probability(self, objects, ways=10):
            return jnp.full(len(objects), -9 * np.log(2.0))

    found = {name: float(value) for name, value in world.metrics(Uniform()).items()}
    assert not world.metric_texts and set(found) == set(Ising(4, order="any").metric_texts)
    weights = 0.3 * bonds_of_all(3)
    target = np.exp(weights - np.logaddexp.reduce(weights))
    mean = (target * bonds_of_all(3)).sum()
    assert found["energy_error"] == pytest.approx(mean / 9, abs=0.05)  # a random lattice has no energy on average
    levels = (18 - bonds_of_all(3)) // 4
    shares = np.bincount(levels, weights=target - 1 / 512, minlength=10)
    assert found["energy_tv"] == pytest.approx(np.abs(shares).sum() / 2, abs=0.05)
    assert found["energy_floor"] < 0.05
    divergence = (target * (np.log(target) + 9 * np.log(2))).sum()
    assert found["forward_kl"] == pytest.approx(divergence, abs=0.5)  # 250 samples


@pytest.mark.slow
def test_the_chart_of_the_target_is_known_beyond_enumeration():
    world = Ising(3, coupling=0.4, temperature=1.0)
    exactly = OwnWorld(Ising(3, coupling=0.4, temperature=1.0, order="sites")).target_picture(True)
    assert world.known_chart().shape == exactly.shape == (10, 10)
    assert np.abs(world.known_chart() - exactly).sum() / 2 < 0.06
    assert Ising(12).known_chart() is None


def test_an_update_is_compiled_for_the_one_length_that_there_is():
    config = ising_presets.Config(WorldConfig(3), replace(TINY, batch_size=64))
    assert Program(config).buckets == (64 * 10,)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["any", "sites"])
def test_a_lattice_is_learned(order):
    config = ising_presets.Config(WorldConfig(2, order=order), LearnerConfig(width=64), iterations=1500)
    run = fused.start(config, [0])
    run.advance(1500)
    found = evaluation.measure(config, run.params(), 0, compiled).columns
    assert found["tv"] < 0.03 and found["logz_error"] < 0.03


@pytest.mark.slow
def test_a_lattice_too_large_to_enumerate_is_judged_by_its_metrics():
    config = ising_presets.Config(WorldConfig(5, order="any"), TINY, iterations=5, eval_samples=50)
    assert not config.exact and not config.world.enumerable
    params = Program(config).learner.init(jax.random.key(0)).params
    found = evaluation.measure(config, jax.tree.map(lambda x: x[None], params), 0, compiled)
    assert set(found.columns) == set(config.family.measured(config))
    assert np.isfinite(found.columns["logz_error"]).all() and found.pictures.shape[1:] == (26, 26)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"side": 1}, "`--world.side` is 1, but a torus has 2 to 64 sites"),
        ({"temperature": 0.0}, "`--world.temperature` is 0.0, but it has to be a positive number"),
        ({"coupling": float("nan")}, "`--world.coupling` is nan, but it has to be a finite number"),
        ({"coupling": 1e9}, "log-rewards would reach"),
    ],
)
def test_bad_settings_are_named(changes, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        replace(WorldConfig(), **changes).check()
    with pytest.raises(UsageError):
        plan("ising", world=changes)
