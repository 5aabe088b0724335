"""Checks the twin in NumPy that a user's own world may have, `host_twin`; each fault is a sentence.

Shapes: B states, D numbers in a state, A forward actions, the last of which is stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from xladder.errors import brief
from xladder.worlds.flow import FlowWorld
from xladder.worlds.flow_jitted import JittedHost

MOST_STATES = 256  # that are compared
CLOSE = 1e-4
SIZES = ("state_size", "num_actions", "max_steps", "num_inputs")
METHODS = ("initial", "forward_mask", "backward_mask", "forward", "backward", "encode", "log_reward")


def twin_faults(world: FlowWorld, host: JittedHost, states: np.ndarray) -> Iterator[str]:
    """The first fault of a world's twin, if it has one.

    Args:
        world: The world.
        host: The same world in JAX, called from the host.
        states: int32 [B, D]: some of its states.
    """
    try:
        twin: Any = world.host_twin()
    except (Exception, SystemExit) as error:
        yield f"`host_twin` fails: {brief(error)}."
        return
    if twin is None:
        return
    lacking = [name for name in (*SIZES, *METHODS) if not hasattr(twin, name)]
    if lacking:
        yield (
            f"`host_twin` gives an object of type {type(twin).__name__} without `{lacking[0]}`: it has to be a "
            "`HostWorld` (of `xladder.worlds.flow`), or None."
        )
        return
    for name in SIZES:
        if getattr(twin, name) != getattr(host, name):
            yield f"`{name}` is {getattr(twin, name)!r} in its `host_twin`, and {getattr(host, name)} here."
            return
    some = states[np.linspace(0, len(states) - 1, min(len(states), MOST_STATES)).astype(int)]
    forward, backward = host.forward_mask(some), host.backward_mask(some)
    given = {
        "initial": (2,),
        "forward_mask": (some,),
        "backward_mask": (some,),
        "forward": (some[forward.any(1)], forward[forward.any(1)].argmax(1)),
        "backward": (some[backward.any(1)], backward[backward.any(1)].argmax(1)),
        "encode": (some,),
        "log_reward": (some[forward[:, -1]],),
    }
    for name in METHODS:
        ours: np.ndarray = getattr(host, name)(*given[name])
        try:
            theirs = np.asarray(getattr(twin, name)(*given[name]))
        except (Exception, SystemExit) as error:
            yield f"`{name}` of its `host_twin` fails: {brief(error)}."
            return
        if theirs.shape != ours.shape or theirs.dtype.kind not in "biuf":
            yield (
                f"`{name}` of its `host_twin` gives {theirs.dtype} {list(theirs.shape)}, where the world gives "
                f"{ours.dtype} {list(ours.shape)}."
            )
            return
        if not np.allclose(theirs, ours, rtol=CLOSE, atol=CLOSE):
            yield f"`{name}` of its `host_twin` gives other numbers than the world."
            return
