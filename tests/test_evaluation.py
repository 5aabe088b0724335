"""Evaluation inside one program, for all seeds at once, is the evaluation that steps the envs from the host."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.value import evaluation
from xladder.families.value.config import ValueConfig
from xladder.plans import plan

CART = plan("cartpole", learner={"hidden": (16,), "width": 16}).config


def population(config, seeds):
    return jax.vmap(config.family.program(config).fresh_params)(np.arange(seeds, dtype=np.int32))


@pytest.mark.slow
@pytest.mark.parametrize(("episodes", "epsilon"), [(40, 0.0), (7, 1.0)])
@pytest.mark.parametrize("longest", [10_000, 20])
def test_all_seeds_at_once_play_the_same_episodes(episodes, epsilon, longest, monkeypatch):
    monkeypatch.setattr(ValueConfig, "longest_game", longest)
    params = population(CART, 3)
    together = evaluation.run_all_seeds(CART, params, episodes, 5, compiled, epsilon)
    abandoned = 0
    for seed, found in enumerate(together):
        alone = evaluation.run_episodes(CART, pick(params, seed), episodes, 5, compiled, epsilon)
        np.testing.assert_array_equal(found.returns, alone.returns)
        assert found.left == alone.left
        abandoned += found.left
    if epsilon:
        assert (abandoned > 0) == (longest == 20), "some random episodes are longer than 20 steps, none than 10,000"
    else:
        assert len({one.mean() for one in together}) > 1, "every seed has its own agent"
