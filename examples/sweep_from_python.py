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
    returns, episodes = progress.metrics["return"], progress.metrics["episodes"]
    return bool(episodes.sum() and np.nansum(returns * episodes) / episodes.sum() < 25)


def main():
    """Train every rate on all seeds at once, and print the best first."""
    found = []
    for lr in RATES:
        settings = {"steps": 12_000, "evaluate_episodes": 0, "learner": {"lr": lr, "hidden": (64,), "width": 64}}
        result = xladder.train("cartpole", "fused", seeds=SEEDS, callback=give_up, progress=False, **settings)
        returns, episodes = (result.metrics[name][:, -200:] for name in ("return", "episodes"))
        last = np.nansum(returns * episodes, axis=1) / episodes.sum(axis=1)  # mean per episode, of each seed
        found.append((last.mean(), last.std(), lr, result.units_done))
    for mean, spread, lr, steps in sorted(found, reverse=True):
        print(f"lr {lr:<6g} return {mean:5.1f} ± {spread:.1f} over {SEEDS} seeds after {steps:,} steps")


if __name__ == "__main__":
    main()
