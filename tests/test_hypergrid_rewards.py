"""Rewards of the hypergrid that torchgfn has: its own numbers, closed forms, modes, and boards without any."""

import math
from functools import partial
from io import StringIO

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from xladder.cli.train import report_result
from xladder.families.gflownet.config import note
from xladder.families.gflownet.hypergrid_presets import Config
from xladder.families.gflownet.summaries import summary
from xladder.plans import plan
from xladder.results import Result
from xladder.worlds import hypergrid, hypergrid_rewards
from xladder.worlds.hypergrid_host import HostGrid
from xladder.worlds.hypergrid_settings import WorldConfig

# Computed once in float64 with torchgfn 2.4's CosineReward, SparseReward and DeceptiveReward at their own defaults, and
# its thresholds of a mode: reward, H, D, log Z, mode cells, total variation of the uniform distribution.
TORCHGFN = [
    ("cosine", 8, 2, 1.895260, 0, 0.015310),
    ("cosine", 16, 2, 3.403365, 0, 0.080943),
    ("cosine", 20, 2, 3.853154, 0, 0.090010),
    ("cosine", 9, 3, 4.489119, 27, 0.104692),
    ("cosine", 3, 2, 0.244077, 1, 0.216604),
    ("sparse", 8, 2, 1.098612, 3, 0.953125),
    ("sparse", 9, 3, 1.945910, 7, 0.990398),
    ("sparse", 3, 2, 0.000000, 1, 0.888889),
    ("sparse", 2, 2, 1.098612, 3, 0.250000),
    ("deceptive", 8, 2, 2.379605, 4, 0.678201),
    ("deceptive", 16, 2, 2.955044, 4, 0.546802),
    ("deceptive", 20, 2, 3.837386, 16, 0.649599),
    ("deceptive", 9, 3, 3.629853, 8, 0.691224),
    ("deceptive", 6, 2, 0.693327, 0, 0.444364),
]
CELLS = [  # single rewards by the same code
    ("cosine", 8, (1, 1), 0.107847265),
    ("cosine", 16, (8, 8), 0.163289089),
    ("deceptive", 16, (2, 2), 2.00001),
    ("deceptive", 16, (8, 8), 0.10001),
    ("deceptive", 16, (6, 0), 0.10001),  # exactly a tenth away from the centre
    ("deceptive", 16, (5, 0), 1e-5),
    ("sparse", 8, (1, 6), 1.0),
    ("sparse", 8, (1, 1), 1e-12),
]


@partial(jax.jit, static_argnums=0)
def look_up(config, cells):
    return jax.vmap(partial(hypergrid.log_reward, config))(cells)


@pytest.mark.parametrize(("reward", "side", "dim", "log_z", "modes", "tv"), TORCHGFN)
def test_torchgfns_numbers_come_out(reward, side, dim, log_z, modes, tv):
    config = WorldConfig(dim, side, reward)
    cells = hypergrid.cells(config)
    exactly = hypergrid.all_log_rewards(config)
    assert hypergrid_rewards.log_z(config) == pytest.approx(log_z, abs=1e-6)
    assert np.logaddexp.reduce(exactly) == pytest.approx(log_z, abs=1e-6)
    assert np.abs(hypergrid.target(config) - 1 / config.states).sum() / 2 == pytest.approx(tv, abs=1e-6)
    assert hypergrid.mode_cells(config).sum() == hypergrid.build(config).num_mode_cells() == modes
    # Both twins add in float32 what is here a sum of products in float64.
    np.testing.assert_allclose(look_up(config, cells), exactly, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(HostGrid(config).log_reward(cells), exactly, rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize(("reward", "side", "cell", "value"), CELLS)
def test_single_cells_are_torchgfns(reward, side, cell, value):
    config = WorldConfig(2, side, reward)
    assert np.exp(look_up(config, jnp.array([cell]))[0]) == pytest.approx(value, rel=2e-5)


@pytest.mark.parametrize(
    ("reward", "dim", "side", "best", "second", "sums"),
    [
        # Counted with torchgfn 2.4.1's `BitwiseXORReward` and `MultiplicativeCoprimeReward` with their easy presets:
        # cells with 111 and with 1 more than R0, and the sums of the coordinates of those with 111.
        ("xor", 2, 8, 8, 0, [28, 28]),
        ("xor", 2, 64, 64, 64, [2016, 2016]),
        ("xor", 3, 8, 64, 0, None),
        ("xor", 4, 6, 168, 0, None),
        ("coprime", 2, 8, 23, 0, [73, 73]),
        ("coprime", 2, 32, 75, 0, [647, 647]),
        ("coprime", 3, 16, 275, 0, [1563, 1092, 1563]),
        ("coprime", 4, 6, 450, 0, [1302, 1242, 1302, 1125]),
    ],
)
def test_rules_about_whole_numbers_are_torchgfns(reward, dim, side, best, second, sums):
    config = WorldConfig(dim, side, reward)
    grid, cells = hypergrid.Hypergrid(config), hypergrid.cells(config)
    known = grid.enumeration()
    values = np.exp(known.log_rewards) - 1e-3
    assert [(np.abs(values - value) < 1e-9).sum() for value in (111, 1)] == [best, second]
    assert known.modes.sum() == best
    assert sums is None or cells[known.modes].sum(0).tolist() == sums
    assert grid.log_z() == pytest.approx(np.log(111 * best + second + 1e-3 * side**dim), rel=1e-9)
    np.testing.assert_allclose(HostGrid(config).log_reward(cells), known.log_rewards, rtol=1e-6)
    np.testing.assert_allclose(look_up(config, cells), known.log_rewards, rtol=1e-6)


@pytest.mark.parametrize("reward", ["cosine", "sparse", "deceptive"])
def test_marginals_and_samples_follow_the_target(reward):
    config = WorldConfig(3, 5, reward)
    target = hypergrid.target(config)
    np.testing.assert_allclose(hypergrid_rewards.marginal(config), target.reshape(5, 5, 5).sum(2), atol=1e-12)
    if reward == "cosine":
        return
    count = 20_000
    found = np.asarray(jax.jit(hypergrid_rewards.draw_target, static_argnums=(0, 2))(config, jax.random.key(0), count))
    seen = np.bincount(np.ravel_multi_index(found.T, (5, 5, 5)), minlength=125) / count
    assert np.abs(seen - target).sum() / 2 < 0.05  # noise alone makes 0.03 of a uniform target


def test_a_reward_of_many_coordinates_has_a_log_z():
    """Cells of `deceptive` are counted by their first coordinate near the centre."""
    config = WorldConfig(100, 21, "deceptive")
    near = math.log(21**100 - 16**100)  # of 21 values five lie within a tenth of the centre
    expected = [np.log(1e-5) + 100 * np.log(21), np.log(0.1) + near, np.log(2.0) + 100 * np.log(2)]
    assert hypergrid_rewards.log_z(config) == pytest.approx(np.logaddexp.reduce(expected), rel=1e-12)


@pytest.mark.parametrize("side", [2, 3, 4, 5, 8, 20])
@pytest.mark.parametrize("reward", ["easy", "corners", "sparse", "deceptive"])
def test_regions_of_modes_are_those_that_neighbours_make(reward, side):
    config = WorldConfig(2, side, reward)
    grid, cells = hypergrid.Hypergrid(config), hypergrid.cells(config)
    known = grid.enumeration()
    assert hypergrid_rewards.num_modes(config) == grid.num_modes() == known.num_regions
    if not known.num_regions:
        return
    said = np.asarray(grid.mode_of(jnp.asarray(cells)))
    assert ((said < known.num_regions) == known.modes).all()
    pairs = {(ours, theirs) for ours, theirs in zip(said, known.regions, strict=True) if theirs < known.num_regions}
    assert len(pairs) == known.num_regions  # one number each, whatever their order
    masses = np.bincount(said, weights=hypergrid.target(config), minlength=known.num_regions + 1)[:-1]
    np.testing.assert_allclose(grid.mode_masses(), masses, rtol=1e-9)


@pytest.mark.parametrize(
    ("world", "warned"),
    [
        *((WorldConfig(2, side), side < 7 or side == 11) for side in (2, 6, 7, 10, 11, 12)),
        (WorldConfig(2, 6, "deceptive"), True),
        (WorldConfig(2, 8, "cosine"), True),
        (WorldConfig(3, 9, "cosine"), False),
        (WorldConfig(2, 5, "corners"), False),
        (WorldConfig(2, 3, "sparse"), False),
    ],
)
def test_boards_without_a_mode_are_told_before_training_and_in_reports(world, warned):
    config = Config(world)
    said = [line for line in summary(config, {"tv": np.array([[np.nan, 0.5]])}) if "No cell" in line]
    assert bool(said) == warned == ("No cell of this grid is a mode" in note(config))
    if warned and world.reward != "cosine":
        assert f"with {world.side} values (`--world.side`), none lies in the band" in said[0]


def test_after_training_nothing_is_said_again():
    config = Config(WorldConfig(2, 4))
    result = Result(plan("hypergrid", "fused", config=config), {"tv": np.array([[0.25]])}, {}, 0.0, [0.001])
    console = Console(file=StringIO())
    report_result(result, None, console)
    said = console.file.getvalue()
    assert "total variation" in said and "No cell" in note(config) and "No cell" not in said
