"""The value learner solves something small for real."""

import numpy as np

from xladder.training import train


def test_dqn_balances_the_pole():
    result = train("cartpole", "fused", seed=0, evaluate_episodes=0)
    score = result.evaluate(20)
    assert score["mean_return"] >= 450
    assert score["random_return"] < 60


def test_dqn_breaks_bricks():
    """A short run with quicker exploration; random play scores about half a point."""
    result = train(
        "minatar/breakout",
        "fused",
        seed=0,
        steps=80_000,
        learner={
            "lr": 1e-3,
            "epsilon_steps": 30_000,
            "learning_starts": 2000,
            "n_step": 3,
            "double": True,
            "memory": 50_000,
        },
        evaluate_episodes=0,
    )
    score = result.evaluate(20)
    assert score["mean_return"] > score["random_return"] + 1.5
    assert np.nanmean(result.metrics["return"][0, -800:]) > 1.5
