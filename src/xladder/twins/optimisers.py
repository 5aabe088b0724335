"""Optimisers that both sides have under one name, with PyTorch's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax

from xladder.errors import UsageError, unknown

_OPTAX: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "adam": optax.adam,
    "adamw": lambda lr: optax.adamw(lr, weight_decay=1e-2),
    "rmsprop": lambda lr: optax.rmsprop(lr, decay=0.99, eps=1e-8, eps_in_sqrt=False),
}
HOW = "Give a name and a learning rate, (\"adam\", 1e-3), or a pair: (PyTorch's, optax's)."


def named(optimiser: Any) -> tuple[str, float] | None:
    """Name and learning rate, or None if something else was given; a `UsageError` if either is wrong."""
    if isinstance(optimiser, str):
        raise UsageError(f'`optimiser="{optimiser}"` has no learning rate: give ("{optimiser}", 1e-3).')
    if not (isinstance(optimiser, tuple | list) and len(optimiser) == 2 and isinstance(optimiser[0], str)):
        return None
    name, lr = optimiser
    if name not in _OPTAX:
        raise unknown("optimiser", name, _OPTAX)
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not 0 < lr < float("inf"):
        raise UsageError(f"The learning rate is {lr!r}, but it has to be a number above 0.")
    return name, float(lr)


def in_jax(optimiser: Any) -> optax.GradientTransformation:
    """Optax's optimiser: by name, as a transformation, or as the second of a pair."""
    found = named(optimiser)
    if found:
        return _OPTAX[found[0]](found[1])
    ours = optimiser
    if isinstance(optimiser, tuple | list) and len(optimiser) == 2 and not hasattr(optimiser, "update"):
        ours = optimiser[1]
    if not (hasattr(ours, "init") and hasattr(ours, "update")):
        raise UsageError(f"{type(ours).__name__} is not an optax transformation. {HOW}")
    return ours
