"""Exploration that keeps to its random actions for some steps: the same on every rung, and what it is for."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import xladder
from xladder.core import keys
from xladder.errors import UsageError
from xladder.families.value import presets as named
from xladder.families.value.program import Program
from xladder.families.value.torch_backend import Backend

MOUNTAIN = named.presets("mountaincar")["explore"]


def drawn(config, steps):
    """Whether to explore and how, of each step, float [T, 2, N]; and in PyTorch."""
    program, torch = Program(config), Backend(config, 3, "cpu")
    ours = jax.jit(jax.vmap(lambda step: program.draw_act(keys.root(3), step)))(np.arange(steps))
    theirs = [torch.draw(step, 0) for step in range(steps)]
    return np.stack([ours.explore, ours.action], 1), np.stack([[t.explore, t.action] for t in theirs])


def test_random_actions_are_held_for_as_many_steps():
    for numbers in drawn(MOUNTAIN, 64):
        blocks = numbers.reshape(4, 16, 2, 8)
        assert np.all(blocks == blocks[:, :1]) and np.all(blocks[0, 0] != blocks[1, 0], axis=-1)[0]
    for numbers in drawn(replace(MOUNTAIN, learner=replace(MOUNTAIN.learner, explore_repeat=1)), 64):
        assert len(np.unique(numbers[:, 0])) > 500


def test_it_has_to_be_a_step_or_more():
    with pytest.raises(UsageError, match=r"`--learner.explore-repeat` is 0, but it has to be 1 or more"):
        xladder.plan("mountaincar", learner={"explore_repeat": 0})


def test_it_is_what_random_play_needs_to_climb_the_mountain():
    """The world's own equations, as in Moore (1990): no episode in a thousand reaches the top, or every twelfth."""
    shares = []
    for repeat in (1, 16):
        rng = np.random.default_rng(0)
        place, speed, there = rng.uniform(-0.6, -0.4, 1000), np.zeros(1000), np.zeros(1000, bool)
        for step in range(200):
            if step % repeat == 0:
                push = rng.integers(0, 3, 1000) - 1
            speed = np.clip(speed + 0.001 * push - 0.0025 * np.cos(3 * place), -0.07, 0.07)
            place = np.clip(place + speed, -1.2, 0.6)
            speed = np.where((place <= -1.2) & (speed < 0), 0.0, speed)
            there |= place >= 0.5
        shares.append(there.mean())
    assert shares[0] == 0.0 and 0.05 < shares[1] < 0.12


@pytest.mark.slow
def test_the_preset_reaches_the_goal_of_mountaincar():
    """Four seeds; −103.7 ± 4.0 over eight others, where random play has −200."""
    result = xladder.train("mountaincar", preset="explore", seed=400, seeds=4)
    assert result.evaluate(20)["mean_return"] > -130
