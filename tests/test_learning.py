"""Every rung learns something small for real: two agents, a small board, nothing but gems.

A gem is worth 1 and a wall costs 0.2. Random agents earn about 3 in an epoch; agents that look where gems lie find
nearly all that appear, which is about 11. From fixed seeds, with less than half of that gain demanded.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from xladder.families.multi_agent import parity
from xladder.families.multi_agent.config import LearnerConfig
from xladder.families.multi_agent.treasurehunt_presets import Config, WorldConfig
from xladder.rungs import fused, hybrid, parallel, sequential
from xladder.rungs import torch as torch_rung

RUNGS = {"sequential": sequential, "parallel": parallel, "fused": fused, "torch": torch_rung, "hybrid": hybrid}
EPOCHS = 120
GEMS_ONLY = Config(
    WorldConfig(
        height=6,
        width=6,
        num_agents=2,
        radius=1,
        max_turns=25,
        spawn_prob=0.04,
        item_names=("gem",),
        item_values=(1.0,),
        wall_value=-0.2,
    ),
    LearnerConfig(
        lr=5e-3,
        gamma=0.8,
        batch_size=64,
        memory=1000,
        n_frames=2,
        width=32,
        cosines=16,
        quantiles=8,
        act_quantiles=8,
        tau=0.05,
        epsilon_decay=0.03,
    ),
    EPOCHS,
)


@pytest.fixture(scope="module")
def random_play():
    """Returns and gems per epoch of agents that only explore."""
    settings, rng = GEMS_ONLY.world, np.random.default_rng(0)
    world, walks = settings.on_host(), []
    for _ in range(EPOCHS):
        draws = parity.WalkDraws(
            reset=world.draw_reset(rng),
            turns=world.draw_turns(rng, settings.max_turns),
            actions=rng.integers(0, 4, (settings.max_turns, world.num_agents)),
        )
        walks.append(parity.walk_host(settings, draws))
    return np.mean([walk.rewards.sum() for walk in walks]), np.mean([walk.counts[0] for walk in walks])


# `sequential` and `parallel` make the run that `fused` makes: tests/test_rungs.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "rung",
    [
        pytest.param(rung, id=name, marks=pytest.mark.slow if name in ("hybrid", "sequential", "parallel") else ())
        for name, rung in RUNGS.items()
    ],
)
def test_agents_learn_to_collect_gems(rung, random_play):
    check_learning(rung.start(GEMS_ONLY, [0]).advance(EPOCHS), random_play)


@pytest.mark.slow
def test_agents_learn_to_collect_gems_in_bfloat16(random_play):
    low = replace(GEMS_ONLY, learner=replace(GEMS_ONLY.learner, precision="bfloat16"))
    check_learning(fused.start(low, [0]).advance(EPOCHS), random_play)


def check_learning(metrics, random_play):
    """Agents collect more than at first, and more than random ones."""
    torch.set_num_threads(1)  # the torch rung chose its own number
    returns, gems = metrics["returns"].sum(-1)[0], metrics["events"][0, :, 0]
    random_return, random_gems = random_play
    assert 1.5 < random_return < 4.5
    first, last = returns[:20].mean(), returns[-20:].mean()
    assert last > first + 3
    assert last > random_return + 3
    assert gems[-20:].mean() > 1.3 * random_gems
    assert np.all(np.isfinite(metrics["loss"][0, 5:]))
