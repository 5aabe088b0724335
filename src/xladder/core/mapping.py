"""Mapping a function of one run over many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax


def over_seeds(function: Callable[[Any], Any], runs: Any) -> Any:
    """`vmap` over seeds, except for a single seed: an axis of length one costs XLA on a CPU a tenth of an epoch."""
    if jax.tree.leaves(runs)[0].shape[0] > 1:
        return jax.vmap(function)(runs)
    alone = function(jax.tree.map(lambda x: x[0], runs))
    return jax.tree.map(lambda x: x[None], alone)


def pick(population: Any, seed: int) -> Any:
    """One seed's run out of a population."""
    return jax.tree.map(lambda leaf: leaf[seed], population)


def one_by_one(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Like `vmap`, but sequentially."""
    return partial(jax.lax.map, function)
