"""A sweep from Python: learning rates side by side, stopped early where they do not learn.

python sweep_from_python.py
"""

import numpy as np

import xladder

RATES = (1e-4, 1e-3)
SEEDS = 4


def give_up(progress):
    """Stop a run that after half its steps is no better than at the start."""
    if progress.tick < progress.ticks // 2:
        return False
    returns = progress.metrics["return"]
    return bool(np.nanmean(returns) < 25) if np.isfinite(returns).any() else False


def main():
    """Train every rate on all seeds at once, and print the best first."""
    found = []
    for lr in RATES:
        result = xladder.train(
            "cartpole", "fused", seeds=SEEDS, steps=12_000, learner={"lr": lr}, callback=give_up, progress=False
        )
        score = result.evaluate(episodes=10)
        found.append((score["mean_return"], score["ci95"], lr, result.units_done))
    for mean, interval, lr, steps in sorted(found, reverse=True):
        print(f"lr {lr:<6g} return {mean:5.1f} ± {interval:.1f} over {SEEDS} seeds after {steps:,} steps")


if __name__ == "__main__":
    main()
