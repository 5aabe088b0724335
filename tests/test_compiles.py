"""Nothing is traced or compiled twice. A weak type in an initial state would be enough for that."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.programs.treasurehunt import Program
from xladder.rungs import fused, parallel, sequential

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


@pytest.mark.parametrize("rung", [sequential, parallel, fused], ids=["sequential", "parallel", "fused"])
def test_a_second_call_traces_nothing(tiny, rung):
    run = rung.start(tiny, [0])
    run.advance(3)  # learning begins in the second tick
    with counted() as counts:
        run.advance(4)
    assert counts == {"traced": 0, "compiled": 0}


def test_a_tick_gives_back_what_it_takes(tiny):
    """Types and shapes of the state are a fixed point of the tick, weak types included."""
    program = Program(tiny)
    before = jax.eval_shape(lambda: (program.init_clock(), jax.vmap(program.init)(jnp.arange(1))))
    after = jax.eval_shape(program.tick, *before)[:2]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)


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
    assert np.asarray(run.clock.tick) == 9
