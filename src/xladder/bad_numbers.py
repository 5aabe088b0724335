"""Finds where numbers that are not finite come from, in the state of a run: from the learner, or from the world."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xladder.core.state import Arrays

STEPS = {
    **dict.fromkeys(("jax", "gymnax"), ("reset_env", "step_env")),
    **dict.fromkeys(("marl", "jaxmarl"), ("reset", "step_env")),
    **dict.fromkeys(("gym", "zoo"), ("reset", "step")),
}
"""The functions of worlds that are not ours, by source."""
FROM_WORLD = {"rewards": "reward", "total": "reward", "frames": "observation", "stack": "observation"}
"""Arrays that hold what worlds return, in memories and where agents act → what it is called."""


class BadLeaf(NamedTuple):
    """An array that holds nan or infinity, and the index of the first such entry."""

    name: str
    place: tuple[int, ...]


def first_bad(arrays: Arrays) -> BadLeaf | None:
    """Find the first array of an agent that holds nan or infinity."""
    for name, array in arrays.items():
        learned = any(word in name for word in ("params", "opt_state", "target", "nets"))
        learned = learned and ".hyperparams." not in name  # which may be infinite: a gradient that is not clipped
        if learned and array.dtype.kind == "f" and not np.isfinite(array).all():
            return BadLeaf(name.removeprefix("state."), tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0]))
    return None


def returned_by_world(name: str, arrays: Arrays) -> str:
    """A sentence if a world that is not ours has returned numbers that are not finite; empty otherwise."""
    functions = STEPS.get(name.partition("/")[0])
    for path, array in arrays.items() if functions else ():
        field = FROM_WORLD.get(path.rpartition(".")[2])
        if functions and field and array.dtype.kind == "f" and not np.isfinite(array).all():
            begin, step = functions
            what = f"a reward that is not a finite number from `{step}`"
            if field == "observation":
                what = f"an observation that is not a finite number from `{begin}` or `{step}`"
            return f"`{name}` returns {what}: `xladder check {name}` looks for it."
    return ""
