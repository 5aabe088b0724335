"""Nothing is traced or compiled twice. A weak type in an initial state would be enough for that."""

from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import TINY, TINY_GRID
from xladder.core.compiling import compiled
from xladder.families.gflownet import jax_backend as hypergrid_jax
from xladder.families.gflownet import program as hypergrid
from xladder.learners.gflownet import Trajectories
from xladder.rungs import fused, parallel, sequential

CONFIGS = {"treasurehunt": TINY, "hypergrid": TINY_GRID}
REMEMBERING = replace(TINY_GRID, loss="subtb", learner=replace(TINY_GRID.learner, replay="prioritised"))

_events: list[str] = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: _events.append(name))


@contextmanager
def counted():
    """Counts what is traced, and what is compiled, while it is open."""
    before = len(_events)
    counts = {}
    yield counts
    new = _events[before:]
    counts["traced"] = sum("jaxpr_trace" in name for name in new)
    counts["compiled"] = sum("backend_compile" in name for name in new)


def test_the_counter_counts():
    function = jax.jit(lambda x: x + 1)
    with counted() as first:
        function(jnp.float32(1))
    with counted() as again:
        function(jnp.float32(2))
    with counted() as weak:
        function(2.0)  # the same shape, but a weak type: traced once more
    assert first["traced"] > 0 and weak["traced"] > 0
    assert again == {"traced": 0, "compiled": 0}


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize(
    "rung", [sequential, pytest.param(parallel, marks=pytest.mark.slow), fused], ids=["sequential", "parallel", "fused"]
)
def test_a_second_call_traces_nothing(config, rung):
    run = rung.start(config, [0])
    run.advance(3)  # treasurehunt begins to learn in the second tick
    with counted() as counts:
        run.advance(4)
    assert counts == {"traced": 0, "compiled": 0}


@pytest.mark.parametrize("config", [*CONFIGS.values(), REMEMBERING], ids=[*CONFIGS, "hypergrid with a memory"])
def test_a_tick_gives_back_what_it_takes(config):
    """Types and shapes of the state are a fixed point of the tick, weak types included."""
    program = config.family.program(config)
    before = jax.eval_shape(lambda: (program.init_counters(), jax.vmap(program.init)(jnp.arange(1))))
    after = jax.eval_shape(program.tick, *before)[:2]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)


@pytest.mark.slow
def test_another_seed_of_the_same_settings_traces_no_verb_again(tiny):
    sequential.start(tiny, [0]).advance(3)
    with counted() as counts:
        sequential.start(tiny, [1]).advance(3)
    assert counts == {"traced": 0, "compiled": 0}


def test_one_program_serves_chunks_of_every_length(tiny):
    run = fused.start(tiny, [0, 1])
    run.advance(1)
    with counted() as counts:
        lengths = [run.advance(ticks)["returns"].shape[1] for ticks in (1, 2, 5)]
    assert lengths == [1, 2, 5]
    assert counts == {"traced": 0, "compiled": 0}
    assert np.asarray(run.counters.tick) == 9


@pytest.mark.slow
def test_longer_trajectories_trace_nothing_new(monkeypatch):
    """An update for every size of room is in the program from the start."""
    monkeypatch.setattr(hypergrid, "SMALLEST_BUCKET", 30)
    config = replace(TINY_GRID, iterations=21)  # not what other tests have compiled without these rooms
    backend = hypergrid_jax.Backend(config, 0, compiled)
    assert backend.program.buckets == (36, 54)
    backend.warm_up()
    steps, count = config.world.steps, config.learner.batch_size
    way = np.arange(steps, dtype=np.int32)
    states = np.stack([np.minimum(way, 4), np.maximum(way - 4, 0)], axis=-1)  # along one edge, then along the other
    with counted() as counts:
        for length in (1, 6, 7, steps):  # 6, 36, 42 and 54 steps in all
            actions = np.where(way == length - 1, config.world.dim, way >= 4).astype(np.int32)
            batch = (np.repeat(x[:, None], count, axis=1) for x in (states, actions))
            assert np.isfinite(backend.learn(0, 0, Trajectories(*batch, np.full(count, length, np.int32))).loss)
    assert counts == {"traced": 0, "compiled": 0}
