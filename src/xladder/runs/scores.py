"""The numbers an evaluation reports, with the meaning of the JSON keys fixed in one place."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from xladder.core.types import Params
from xladder.registry import Workload
from xladder.runs.statistics import mean_and_interval


def score(workload: Workload, config: Any, params: Params, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Play `episodes` with every seed's agents, without exploring, and at random beside it.

    `mean_return` is the total over agents. With one seed the interval is over episodes, with several over the
    seeds' means: agents trained from one seed are not independent of each other.
    """
    found = import_module(workload.evaluation).evaluate(config, params, episodes, seed)
    several = found.returns.shape[0] > 1
    totals = found.returns.sum(-1)  # [seed, episode]
    mean, interval = mean_and_interval(totals.mean(1) if several else totals[0])
    chance, chance_interval = mean_and_interval(found.random.sum(-1)[0])
    return {
        "mean_return": float(mean),
        "ci95": float(interval),
        "per_agent": [float(x) for x in found.returns.mean((0, 1))],
        "episodes": episodes,
        "seeds": found.returns.shape[0],
        "random_return": float(chance),
        "random_ci95": float(chance_interval),
    }
