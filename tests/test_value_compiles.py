"""What XLA makes of a value world: the memory stays where it is, and what does not fit is refused before it starts."""

import re
from dataclasses import replace

import jax
import pytest

from tests.conftest import TINY_CART
from xladder import devices
from xladder.errors import Diverged, UsageError
from xladder.execution import execute
from xladder.families.value import config as value
from xladder.plans import plan
from xladder.rungs import fused
from xladder.trainer import Observer

ROWS = 777  # of each env: a number that no other array has


@pytest.mark.slow
@pytest.mark.parametrize(
    "prioritised", [pytest.param(False, id="uniform"), pytest.param(True, id="prioritised", marks=pytest.mark.slow)]
)
def test_no_tick_copies_the_memory(prioritised):
    """Pictures, because it is there that XLA on a CPU would fuse the write with the read, and copy."""
    small = {"memory": 4 * ROWS, "width": 16, "batch_size": 8, "learning_starts": 8, "steps_per_update": 2}
    chosen = plan("minatar/breakout", world={"num_envs": 4}, learner={**small, "prioritised": prioritised}, steps=160)
    program = fused.start(chosen.config, [0], jax.devices("cpu")[0]).chunk.as_text()
    assert f"u8[1,4,{ROWS},10,10,4]" in program  # it is there, under this shape
    assert not [line for line in program.splitlines() if re.search(rf"{ROWS},10,10,4\]\S* copy\(", line)]


def test_a_memory_that_does_not_fit_is_refused_and_one_that_fits_is_named(monkeypatch):
    monkeypatch.setattr(devices, "memory_bytes", lambda device: 10_000)
    with pytest.raises(UsageError, match=r"GiB.*--learner\.memory \d+"):
        execute(plan("cartpole", "fused", config=TINY_CART, learner={"memory": 4000}))


def test_what_a_memory_takes():
    # 16 bytes of frame, 1 of action, 4 of reward, 3 flags; and a priority where there are any.
    assert value.memory_bytes(TINY_CART) == 64 * 24
    assert value.memory_bytes(replace(TINY_CART, learner=replace(TINY_CART.learner, prioritised=True))) == 64 * 28
    atari = plan("atari/pong").config
    assert value.memory_bytes(atari) == 1_000_000 * (84 * 84 + 8)


@pytest.mark.slow
def test_a_loss_that_never_was_a_number_is_noticed_at_the_first_update():
    class Silent(Observer):
        """Hears of no chunk with an update."""

        def chunk(self, seeds, first, columns, seconds):
            assert (columns["updates"] == 0).all()

    chosen = plan("cartpole", "fused", config=TINY_CART)
    learner = replace(TINY_CART.learner, gamma=float("nan"))  # which no command line would let pass
    bad = replace(chosen, config=replace(TINY_CART, learner=learner))
    begin = max(TINY_CART.learner.learning_starts, (TINY_CART.learner.n_step + 1) * TINY_CART.world.num_envs)
    with pytest.raises(Diverged, match=f"tick {-(-begin // TINY_CART.per_tick)}"):
        execute(bad, Silent())
