"""What every registered workload and rung has to keep, whichever they are."""

from importlib import import_module

import jax
import numpy as np
import pytest

from tests.conftest import TINY, TINY_ATARI, TINY_CART, TINY_GRID, TINY_GYM
from xladder import settings
from xladder.errors import UsageError
from xladder.registry import FAMILIES, RUNGS, WORKLOADS, find_rung

ALL = WORKLOADS | {family.name: family for family in FAMILIES.values()}
SMALL = {
    "treasurehunt": TINY,
    "hypergrid": TINY_GRID,
    "cartpole": TINY_CART,
    "atari/breakout": TINY_ATARI,
    "gym/CartPole-v1": TINY_GYM,
}
"""A config for every workload that runs in a moment."""
SLOW = {("atari/breakout", "hybrid"), ("atari/breakout", "fused"), ("atari/breakout", "torch")}  # to compile, or to run
CELLS = [
    pytest.param(w, r, marks=pytest.mark.slow if (w, r) in SLOW else ())
    for w in ALL
    for r in RUNGS
    if r not in ALL[w].missing
]


@pytest.mark.parametrize("name", ALL)
def test_settings_are_light_checked_and_go_through_json(name):
    module = ALL[name].load_settings()
    presets = module.presets(name)
    for preset in presets.values():
        module.check(preset)
        hash(preset)
        assert settings.updated(presets["default"], settings.to_dict(preset)) == preset
        assert preset.ticks * preset.units_per_tick == getattr(preset, ALL[name].length)
        module.check(module.compared(preset))


@pytest.mark.parametrize(("workload", "rung"), CELLS)
def test_a_rung_runs_exactly_what_was_asked(workload, rung):
    config, module = SMALL[workload], import_module(RUNGS[rung].module)
    seeds = [3, 4] if module.POPULATION and ALL[workload].population else [3]
    running = module.start(config, seeds)
    columns = ALL[workload].load_settings().columns
    for ticks in (1, 4):
        table = columns(config, running.advance(ticks))
        assert {"return", "loss", "epsilon"} <= set(table)
        assert all(values.shape == (len(seeds), ticks) for values in table.values())
    leaves = jax.tree.leaves(running.params())
    assert all(isinstance(leaf, np.ndarray) and leaf.shape[0] == len(seeds) for leaf in leaves)
    assert all(np.isfinite(leaf).all() for leaf in leaves)


@pytest.mark.parametrize(("workload", "rung"), CELLS)
def test_the_same_seed_gives_the_same_run(workload, rung):
    config, module = SMALL[workload], import_module(RUNGS[rung].module)

    def train():
        run = module.start(config, [7])
        return run.advance(5), run.params()

    first, second = train(), train()
    for ours, theirs in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ALL)
def test_a_missing_rung_is_explained(name):
    for rung, (why, nearest) in ALL[name].missing.items():
        assert why and nearest not in ALL[name].missing
        with pytest.raises(UsageError, match=nearest):
            find_rung(rung, ALL[name])


@pytest.mark.parametrize("rung", sorted({cell.values[1] for cell in CELLS}))
def test_every_rung_says_what_it_does_while_starting(rung):
    module = import_module(RUNGS[rung].module)
    assert isinstance(module.STARTING, str) and isinstance(module.POPULATION, bool)
