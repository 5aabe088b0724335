"""What every registered workload and rung has to keep, whichever they are."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from tests.conftest import TINY, TINY_BITS, TINY_GRAPHS, TINY_GRID, TINY_ISING, TINY_SEQUENCES, TINY_SETS, TINY_VALUES
from tests.in_process import InProcess
from tests.test_value_rungs import GYM, PONG, SEVERAL_STEPS
from xladder import settings, user_code
from xladder.errors import UsageError
from xladder.families.gflownet import sequences_presets
from xladder.families.multi_agent import cleanup_presets, iowa_presets, tag_presets
from xladder.registry import RUNGS, SOURCES, WORKLOADS, find_rung, find_workload

user_code.allow("tests.own_worlds")
OWN = {
    "jax": "jax/tests.own_worlds:Corridor",
    "marl": "marl/tests.own_worlds:Race",
    "zoo": "zoo/tests.own_worlds:Duel",
}
ALL = WORKLOADS | {w.name: w for w in (find_workload(OWN.get(s, SOURCES[s].name)) for s in SOURCES)}


def small(name):
    found = find_workload(name).family.presets(name)["default"]
    learner = replace(TINY_VALUES, steps_per_update=4)
    return replace(found, world=replace(found.world, num_envs=4), learner=learner, steps=80, evaluate_episodes=0)


TINY_BOARD = {"height": 6, "width": 6, "num_agents": 2, "radius": 1, "max_turns": 8}
SMALL = {
    "treasurehunt": TINY,
    "cleanup": cleanup_presets.Config(cleanup_presets.WorldConfig(**TINY_BOARD, initial_apples=2), TINY.learner),
    "tag": tag_presets.Config(tag_presets.WorldConfig(**TINY_BOARD), TINY.learner),
    "iowa": iowa_presets.Config(iowa_presets.WorldConfig(**TINY_BOARD, view="rgb"), TINY.learner),
    "hypergrid": TINY_GRID,
    "bits": TINY_SEQUENCES,
    "dags": TINY_GRAPHS,
    "ising": TINY_ISING,
    "sets": TINY_SETS,
    "sequences": sequences_presets.Config(learner=TINY_GRID.learner, iterations=20),
    "cartpole": SEVERAL_STEPS,
    "atari/breakout": PONG,
    "gym/CartPole-v1": GYM,
    "flow/bits": TINY_BITS,
    **{name: small(name) for name in OWN.values()},
}
"""A config for every workload that runs in a moment, and whose programs other tests compile too."""
LENGTHS = 1, 4
SLOW = {
    ("atari/breakout", rung) for rung in ("hybrid", "torch", "sequential", "fused", "actors")
}  # to compile, or to run
# Rungs that run the programs of others have tests of their own, and one cell here.
SLOW |= {
    (w, r) for w in ALL for r in ("mesh", "hosts", "actors") if w != ("cartpole" if r == "actors" else "hypergrid")
}
SLOW |= {(w, "compiled") for w in ALL}  # a C++ compiler takes seconds: tests/test_compiled.py has quick ones
SLOW |= {
    ("treasurehunt", "hybrid"),
    ("treasurehunt", "parallel"),
    ("treasurehunt", "sequential"),
    ("treasurehunt", "fused"),
    ("hypergrid", "fused"),
    ("hypergrid", "hybrid"),
    ("hypergrid", "parallel"),
    ("hypergrid", "mesh"),
    ("hypergrid", "hosts"),
    ("cartpole", "parallel"),
    ("atari/breakout", "parallel"),
    ("gym/CartPole-v1", "parallel"),
    ("gym/CartPole-v1", "hybrid"),
    ("gym/CartPole-v1", "sequential"),
    ("hypergrid", "sequential"),
}
# Of users' own worlds, a cell for each way of stepping them.
QUICK = {
    (OWN["jax"], "torch"),
    (OWN["marl"], "torch"),
    (OWN["zoo"], "parallel"),
    ("flow/bits", "torch"),
    ("ising", "torch"),
    ("sets", "torch"),
}
QUICK |= {("iowa", "torch")}
SLOW |= {
    (w, r)
    for w in ("cleanup", "tag", "iowa", *OWN.values(), "flow/bits", "bits", "dags", "ising", "sets", "sequences")
    for r in RUNGS
    if (w, r) not in QUICK
}
CELLS = [
    pytest.param(w, r, marks=pytest.mark.slow if (w, r) in SLOW else ())
    for w in ALL
    for r in RUNGS
    if r not in ALL[w].missing
]


# All states of these are listed, to see whether every one of them has a reward.
LISTED = ("sets", "flow/bits")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LISTED else ()) for n in ALL])
def test_settings_are_light_checked_and_go_through_json(name):
    module = ALL[name].family
    presets = module.presets(name)
    for preset in presets.values():
        module.check(preset)
        hash(preset)
        assert settings.updated(presets["default"], settings.to_dict(preset)) == preset
        assert preset.ticks * preset.units_per_tick == getattr(preset, ALL[name].length)
        module.check(module.compared(preset))


def seeds_of(workload, rung):
    return [3, 4] if RUNGS[rung].population and ALL[workload].population else [3]


def options_of(rung):
    """`actors` makes the same run in lock step, and nothing of that depends on where the others are."""
    return {"lock_step": True, "actors": 2, "engine": InProcess()} if rung == "actors" else {}


def train(workload, rung):
    """What every one of two calls reports, and the parameters after them."""
    start = RUNGS[rung].start
    running = start(SMALL[workload], seeds_of(workload, rung), **options_of(rung))
    return [running.advance(ticks) for ticks in LENGTHS], running.params()


trained = cache(train)  # the first run of every cell serves both laws


@pytest.mark.parametrize(("workload", "rung"), CELLS)
def test_a_rung_runs_exactly_what_was_asked(workload, rung):
    metrics, params = trained(workload, rung)
    count, columns = len(seeds_of(workload, rung)), ALL[workload].family.columns
    for ticks, found in zip(LENGTHS, metrics, strict=True):
        table = columns(SMALL[workload], found)
        assert {"return", "loss", "epsilon"} <= set(table)
        assert all(values.shape == (count, ticks) for values in table.values())
    leaves = jax.tree.leaves(params)
    assert all(isinstance(leaf, np.ndarray) and leaf.shape[0] == count for leaf in leaves)
    assert all(np.isfinite(leaf).all() for leaf in leaves)


REPEATED = {(w, "torch") for w in ("treasurehunt", "hypergrid", "cartpole")} | {("cartpole", "fused")}


@pytest.mark.parametrize(
    ("workload", "rung"),
    [pytest.param(*cell.values, marks=() if cell.values in REPEATED else pytest.mark.slow) for cell in CELLS],
)
def test_the_same_seed_gives_the_same_run(workload, rung):
    first, second = trained(workload, rung), train(workload, rung)
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
    module = RUNGS[rung]
    assert isinstance(module.starting, str) and isinstance(module.population, bool)
