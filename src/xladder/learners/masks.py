"""Action masks: where a state holds them, and how they apply to Q-values.

For a `masked` learner the state contains the mask: the last A entries of the newest frame's last axis are positive for
available actions and 0 for the others (in an image, those of every row). The network does not see them. If none is
available, all count as equal, so that nothing becomes infinite; no action matters in such a state.

Shapes: F frames, D numbers per frame, A actions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

MASKED_VALUE = -1e9
"""The value of an action that is not available: finite, so that 0 · value stays 0."""


def split_mask(states: jax.Array, actions: int, axes: int = 1, team: bool = False) -> tuple[jax.Array, jax.Array]:
    """States without their masks, […, F, D − A], and which actions are available, bool […, A], from […, F, D].

    The frames may be images, with more `axes` than one, […, F, H, W] or […, F, H, W, C]. Those of a `team` have an axis
    of agents before them, and so has the mask.
    """
    newest = (..., -1, *(slice(None),) * team, *(0,) * (axes - 1), slice(-actions, None))
    return states[..., :-actions], states[newest] > 0


def mask_values(values: jax.Array, mask: jax.Array | None) -> jax.Array:
    """float32 […, A]: the values, with `MASKED_VALUE` for unavailable actions; without a mask, unchanged."""
    return values if mask is None else jnp.where(mask, values, jnp.float32(MASKED_VALUE))
