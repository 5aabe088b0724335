"""A reward of the user's own on a built-in world: `--world.reward module:function`, from an object to its log-reward.

Shapes: B objects, D numbers in each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core.caching import cached_by_identity
from xladder.errors import UsageError, located, untraceable
from xladder.worlds.flow import AT_ONCE
from xladder.worlds.jax_checks import IMPURE, differs_traced_again

MOST_LOG_REWARD = 1e18  # in size: losses square it, in float32


class Words(NamedTuple):
    """What a world's objects are called in messages."""

    one: str
    """One object: "cell"."""
    numbers: str
    """The numbers that it consists of: "coordinates"."""


def find_reward(name: str) -> Callable[[jax.Array], Any]:
    """Load the user's reward, named `module:name`: a function, a callable object, or a class of them."""
    found = user_code.find(name, "reward")
    if inspect.isclass(found):
        found = _instance(found)
    if not callable(found):
        raise UsageError(f"`--world.reward` is {name}, which is of type {type(found).__name__} and not a function.")
    return found


def log_rewards(name: str, objects: np.ndarray) -> np.ndarray:
    """float32 [B]: the reward of objects int [B, D], in batches of some thousands."""
    reward = _mapped(find_reward(name))
    found = []
    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        for begin in range(0, len(objects), AT_ONCE):
            part = np.asarray(objects[begin : begin + AT_ONCE], np.int32)
            room = min(AT_ONCE, max(16, 1 << (len(part) - 1).bit_length()))
            padded = np.concatenate([part, np.repeat(part[:1], room - len(part), axis=0)])
            found.append(np.asarray(reward(padded))[: len(part)])
    return np.concatenate(found)


def check(name: str, objects: Callable[[], np.ndarray], size: int, words: Words) -> None:
    """Raise a `UsageError` if a reward does not map every object, int [B, D], to one finite number."""
    flag, fault = f"`--world.reward {name}`", _shape_fault(find_reward(name), size, words)
    if fault:
        raise UsageError(f"{flag} {fault}")
    try:
        changes = differs_traced_again(find_reward(name), jax.ShapeDtypeStruct((size,), jnp.int32))
    except (Exception, SystemExit) as error:
        raise UsageError(f"{flag} {untraceable(error) or f'fails: {located(error)}'}.") from error
    if changes:
        raise UsageError(f"{flag} draws random numbers, such as by `np.random`, or {IMPURE}.")
    tried = objects()
    values = log_rewards(name, tried)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        shown = ", ".join(map(str, tried[bad[0]].tolist()[:20]))
        raise UsageError(
            f"{flag} returns {values[bad[0]]:g} in {words.one} ({shown}), and is not finite in {len(bad):,} of "
            f"{len(tried):,} {words.one}s: log-rewards have to be finite numbers."
        )
    if (largest := np.abs(values).max()) > MOST_LOG_REWARD:
        raise UsageError(
            f"{flag} goes up to {largest:g} in size, and {MOST_LOG_REWARD:g} is possible: a loss squares it. It has to "
            "return the logarithm of the reward."
        )


def _shape_fault(reward: Callable[[jax.Array], Any], size: int, words: Words) -> str:
    """What is wrong with a reward for any object; an empty string if nothing is."""
    kinds: list[type] = []

    def probed(place: jax.Array) -> Any:
        given = reward(place)
        kinds.append(type(given))
        return given

    try:
        shape = jax.eval_shape(probed, jax.ShapeDtypeStruct((size,), jnp.int32))
    except (Exception, SystemExit) as error:
        return f"fails inside `jit`, given {words.numbers} int32 [{size}]: {located(error)}. It has to be pure JAX."
    kind = kinds[-1].__name__
    if kinds[-1] in (float, int, bool):
        return (
            f"returns a Python {kind}, the same for every {words.one}: return a JAX number that depends on the "
            f"{words.numbers}."
        )
    one = len(jax.tree.leaves(shape)) == 1 and isinstance(shape, jax.ShapeDtypeStruct)
    if not one or shape.shape != () or jnp.dtype(shape.dtype).kind not in "iuf":
        given = f"{shape.dtype} {list(shape.shape)}" if one else f"a {kind}"
        return f"returns {given} for one {words.one}, but it has to be one float, the logarithm of its reward."
    return ""


@cached_by_identity
def _instance(kind: Any) -> Any:
    return user_code.instantiate(kind, user_code.shown(kind))


@cached_by_identity
def _mapped(reward: Callable[[jax.Array], Any]) -> Callable[[np.ndarray], jax.Array]:
    return jax.jit(jax.vmap(lambda place: jnp.asarray(reward(place), jnp.float32)))
