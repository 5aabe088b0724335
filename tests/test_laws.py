"""What every registered workload and rung has to keep, whichever they are."""

from importlib import import_module

import jax
import numpy as np
import pytest

from tests.conftest import TINY, TINY_GRID
from xladder import settings
from xladder.errors import UsageError
from xladder.registry import RUNGS, WORKLOADS, find_rung

CELLS = [(w, r) for w in WORKLOADS for r in RUNGS if r not in WORKLOADS[w].missing]


SMALL = {"treasurehunt": TINY, "hypergrid": TINY_GRID}
"""A config for every workload that runs in a moment."""


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_are_light_checked_and_go_through_json(name):
    module = WORKLOADS[name].load_settings()
    for preset in module.PRESETS.values():
        module.check(preset)
        hash(preset)
        assert settings.updated(module.Config(), settings.to_dict(preset)) == preset
        assert preset.ticks == getattr(preset, WORKLOADS[name].length)


@pytest.mark.parametrize(("workload", "rung"), CELLS)
def test_a_rung_runs_exactly_what_was_asked(workload, rung):
    config, module = SMALL[workload], import_module(RUNGS[rung].module)
    seeds = [3, 4] if module.POPULATION else [3]
    running = module.start(config, seeds)
    columns = WORKLOADS[workload].load_settings().columns
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


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_missing_rung_is_explained(name):
    for rung, (why, nearest) in WORKLOADS[name].missing.items():
        assert why and nearest not in WORKLOADS[name].missing
        with pytest.raises(UsageError, match=nearest):
            find_rung(rung, WORKLOADS[name])


@pytest.mark.parametrize("rung", sorted({rung for _, rung in CELLS}))
def test_every_rung_says_what_it_does_while_starting(rung):
    module = import_module(RUNGS[rung].module)
    assert isinstance(module.STARTING, str) and isinstance(module.POPULATION, bool)
