"""Actions from logits or probabilities and uniform random numbers.

Shapes: B states or R rows, A actions.
"""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xladder.core.types import Array
from xladder.nets.flow import MOST_WRITTEN_OUT

MOST_SUMMED = 512  # actions up to which all running sums are computed in one product
MASKED_LOGIT = -1e9  # logit of an action that is not allowed; finite, so that gradients are


class Explore(NamedTuple):
    """How sampling differs from the policy."""

    epsilon: Array  # float32 []: fraction of uniformly random steps
    temperature: Array  # float32 []: logits are divided by it


def mixture(logits: jax.Array, mask: jax.Array, explore: Explore) -> jax.Array:
    """float32 [B, A]: softmax of the logits of allowed actions at a temperature, mixed with ε of uniform steps."""
    masked = jnp.where(mask, logits, MASKED_LOGIT)
    # The maximum is subtracted first: divided by a small temperature, allowed logits could fall below MASKED_LOGIT.
    policy = jax.nn.softmax((masked - masked.max(-1, keepdims=True)) / explore.temperature)
    return (1 - explore.epsilon) * policy + explore.epsilon * mask / mask.sum(-1, keepdims=True)


def act(logits: jax.Array, mask: jax.Array, explore: Explore, draw: jax.Array) -> jax.Array:
    """int32 [B]: `choose` from the `mixture`, in two kernels where the actions are few.

    XLA computes neither reductions nor divisions nor exponentials twice, and so ends a kernel at each that several
    others need. So actions are written out, one vector [B] each: running sums take the place of probabilities, and
    both sides of every comparison are multiplied by the denominators.
    """
    actions = range(logits.shape[-1])
    if len(actions) > MOST_WRITTEN_OUT:
        return choose(mixture(logits, mask, explore), draw)
    masked = jnp.where(mask, logits, MASKED_LOGIT)
    highest = reduce(jnp.maximum, [masked[:, a] for a in actions])
    powers = jnp.exp((masked - highest[:, None]) * (1 / explore.temperature))
    weights = list(accumulate(powers[:, a] for a in actions))
    counts = list(accumulate(mask[:, a].astype(logits.dtype) for a in actions))
    *heights, whole = (
        (1 - explore.epsilon) * counts[-1] * weight + explore.epsilon * weights[-1] * count
        for weight, count in zip(weights, counts, strict=True)
    )
    passed = ((height <= draw * whole).astype(jnp.int32) for height in heights)
    return jax.lax.optimization_barrier(sum(passed, start=jnp.zeros(draw.shape, jnp.int32)))


def choose(probs: jax.Array, draw: jax.Array) -> jax.Array:
    """int32 [B]: actions sampled from probabilities [B, A] with uniform numbers [B]; never one with probability 0."""
    if probs.shape[-1] > MOST_SUMMED:
        return _choose_in_two_steps(probs, draw)
    # Running sums by a triangular matrix of ones. Each adds the same terms in the same order, so that an action with
    # probability zero adds exactly nothing, which a tree-shaped scan does not guarantee.
    below = jnp.tri(probs.shape[-1], dtype=probs.dtype)
    if probs.shape[-1] > MOST_WRITTEN_OUT:
        heights = jnp.dot(probs, below.T, precision="highest")
    else:  # fuses with the code around it
        heights = jnp.sum(probs[:, None, :] * below[None], axis=-1)
    return (heights[:, :-1] <= (draw * heights[:, -1])[:, None]).sum(-1)


def _choose_in_two_steps(probs: jax.Array, draw: jax.Array) -> jax.Array:
    """As `choose`, for many actions: first a group of them, then one of its actions."""
    count, actions = probs.shape
    size = int(actions**0.5) + 1
    groups = -(-actions // size)
    parts = jnp.pad(probs, ((0, 0), (0, groups * size - actions))).reshape(count, groups, size)
    inside = jnp.einsum("bgi,ji->bgj", parts, jnp.tri(size, dtype=probs.dtype), precision="highest")
    until = jnp.dot(inside[..., -1], jnp.tri(groups, dtype=probs.dtype).T, precision="highest")  # [B, G]
    level = draw * until[:, -1]
    group = (until[:, :-1] <= level[:, None]).sum(-1)
    before = jnp.where(group > 0, take(until, group - 1), 0.0)
    heights = jnp.take_along_axis(inside, group[:, None, None], axis=1)[:, 0]  # [B, I]
    # Rounding must not lead past the group's last action that has a probability.
    rest = jnp.minimum(level - before, heights[:, -1] * (1 - jnp.finfo(probs.dtype).eps))
    return group * size + (heights[:, :-1] <= rest[:, None]).sum(-1)


def take(values: jax.Array, index: jax.Array) -> jax.Array:
    """float32 [R]: one entry of each row [R, A]."""
    return jnp.sum(values, axis=-1, where=index[:, None] == jnp.arange(values.shape[-1])[None, :])
