"""A cache for functions of one object, which need not be hashable: an object is known by its identity."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Result = TypeVar("Result")
MOST = 16  # results that are kept


def cached_by_identity(function: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """Keep the results for the last few objects, and the objects: the identity of a lost one might be used again."""
    kept: dict[int, tuple[Any, Result]] = {}

    @wraps(function)
    def cached(thing: Any) -> Result:
        if id(thing) not in kept:
            found = function(thing)
            while len(kept) >= MOST:
                del kept[next(iter(kept))]
            kept[id(thing)] = thing, found
        return kept[id(thing)][1]

    return cached
