"""Checks of what the functions of a JAX world return, by tracing them: nothing is computed.

`xladder train` makes them before a run begins, and `xladder check` before it steps the world. Each fault is a
`UsageError` whose sentence names the world, the function and the field.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.errors import CONTINUOUS, UsageError, XladderError, located
from xladder.worlds.observations import describe, is_real

MOST_KEYS = 5  # of a dict, in a sentence
IMPURE = "changes something outside, such as a counter in `self`: compiled, this happens once and never again"
NUMBERS = {2: "two", 5: "five"}


def attempt(shown: str, function: str, call: Callable[[], Any]) -> Any:
    """Call a function of a world; an error names the world and the function."""
    try:
        return call()
    except XladderError:
        raise
    except (Exception, SystemExit) as error:
        of_tracing = isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError)
        kind = "cannot be traced by `jit`" if of_tracing else "fails"
        raise UsageError(f"`{shown}` {kind} in its `{function}`: {located(error)}.") from error


def trace(shown: str, function: str, call: Callable[..., Mapping[str, Any]], *given: Any) -> dict[str, Any]:
    """Trace a function of a world.

    Args:
        shown: The world's name.
        function: The function's name.
        call: Calls it, and returns what it returned by name: observation, state, reward …
        *given: Arguments of `call`, as shapes and dtypes.

    Returns:
        The shapes and dtypes of what was returned, by name.
    """

    def checked(*given: Any) -> dict[str, Any]:
        returned = dict(call(*given))
        for field, part in returned.items():
            _require_arrays(shown, function, field, part)
        return returned

    found: dict[str, Any] = attempt(shown, function, lambda: kinds(jax.eval_shape(checked, *given)))
    return found


def unchanging(shown: str, function: str, call: Callable[[Any], list[jax.Array]], state: Any) -> list[jax.Array] | None:
    """What a function of a world's state always returns; None if it depends on the state, given by its shapes."""

    def traced() -> Any:
        with jax.disable_jit():  # so that results that do not depend on the state stay concrete
            return jax.make_jaxpr(call)(state)

    program = attempt(shown, function, traced)
    depends = set(map(id, program.jaxpr.invars))
    for equation in program.jaxpr.eqns:
        if any(id(variable) in depends for variable in equation.invars):
            depends |= set(map(id, equation.outvars))
    if any(id(variable) in depends for variable in program.jaxpr.outvars):
        return None
    return jax.core.eval_jaxpr(program.jaxpr, program.consts, *map(_zeros, jax.tree.leaves(state)))


def _zeros(kind: jax.ShapeDtypeStruct) -> jax.Array:
    """An array of a shape and dtype, which may be one of random keys."""
    if not jnp.issubdtype(kind.dtype, jax.dtypes.prng_key):
        return jnp.zeros(kind.shape, kind.dtype)
    data = jax.eval_shape(jax.random.key_data, kind)
    return jax.random.wrap_key_data(jnp.zeros(data.shape, data.dtype))


def differs_traced_again(call: Callable[..., Any], *given: Any) -> bool:
    """Whether a function gives another program when it is traced a second time.

    Whatever JAX does not compute from the arguments is a constant of the program: what `np.random` draws, or a counter.
    """
    programs = []
    for promotion in ("allow", "warn"):  # another setting, so that what the user has jitted is traced again, too
        with jax.numpy_rank_promotion(promotion), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            programs.append(jax.make_jaxpr(call)(*given))
    once, again = programs
    return _program_text(once) != _program_text(again) or not same(once.consts, again.consts)


def _program_text(program: Any) -> str:
    """A traced program as text, without the addresses of objects."""
    return re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr))


def same(a: Any, b: Any) -> bool:
    """Whether two trees have the same arrays."""
    return all(
        np.array_equal(_plain(x), _plain(y), equal_nan=jnp.issubdtype(jnp.result_type(x), jnp.inexact))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def _plain(array: Any) -> Any:
    """An array that NumPy can read, of random keys too."""
    keys = hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if keys else array


def unpack(shown: str, function: str, returned: Any, fields: Sequence[str]) -> dict[str, Any]:
    """The values that a function has returned, by name; there have to be as many as names."""
    if not isinstance(returned, tuple | list) or len(returned) != len(fields):
        what = f"{len(returned)} values" if isinstance(returned, tuple | list) else kind_of(returned)
        raise UsageError(
            f"`{shown}` returns {what} from `{function}`, but there have to be {NUMBERS[len(fields)]}: "
            f"{', '.join(fields[:-1])} and {fields[-1]}."
        )
    return dict(zip(fields, returned, strict=True))


def count_actions(shown: str, space: Any, agent: str = "") -> int:
    """The number of actions in a space, which has to be `Discrete`; of one agent, if there are several."""
    of = f" for {agent}" if agent else ""
    if not hasattr(space, "n"):
        raise UsageError(
            f"`{shown}` has the actions {type(space).__name__}{of} (its `action_space`), but value learners need "
            f"discrete ones: they have to be `Discrete`. {CONTINUOUS}"
        )
    try:
        count = 0 if isinstance(space.n, bool) else operator.index(space.n)
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(
            f"`{shown}` has {space.n!r} as the number of actions{of} (`n` of its `action_space`), but it has to be a "
            "whole number, 1 or more."
        )
    return count


def require_scalar(shown: str, function: str, field: str, found: Any, must: str = "one real number") -> None:
    """Raise a `UsageError` unless something returned is a real scalar; `must` says so."""
    if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != () or not is_real(found.dtype):
        raise UsageError(f"`{shown}` returns {kind_of(found)} as {field} from `{function}`: it has to be {must}.")


def require_unchanged(shown: str, function: str, field: str, before: Any, after: Any) -> None:
    """Raise a `UsageError` if a step changes the structure, a shape or a dtype; `field` is "its state"."""
    if changed := _change((), before, after):
        path, was, now = changed
        where = jax.tree_util.keystr(path, simple=True, separator=".")
        what = f"`{where}`" if where else field.replace("its ", "the ")
        how = f"changes from {was} to {now}" if was != now else f"has fields that are not arrays ({was}) and change"
        raise UsageError(f"`{shown}` changes the type of {field}: in `{function}`, {what} {how}.")


def kinds(tree: Any) -> Any:
    """Shapes and dtypes of a tree of arrays or Python numbers, without weak types."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), tree)


def kind_of(tree: Any) -> str:
    """What something is, in words: `float32 [3]`, `a list of 3`, `a dict with a, b`."""
    if tree is None:
        return "None"
    if isinstance(tree, Mapping):
        keys = [*map(str, list(tree)[:MOST_KEYS]), *["…"][: len(tree) > MOST_KEYS]]
        return f"a dict with {', '.join(keys)}" if keys else "an empty dict"
    if type(tree) in (list, tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    if hasattr(tree, "shape") and hasattr(tree, "dtype"):
        return describe(tree)
    name = type(tree).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _change(path: tuple[Any, ...], before: Any, after: Any) -> tuple[tuple[Any, ...], str, str] | None:
    """The first place where two trees of shapes differ, and what is there in each; None if they do not."""
    one, one_node = _children(before)
    two, two_node = _children(after)
    if one_node != two_node:
        return path, kind_of(before), kind_of(after)
    if len(one) == 1 and not one[0][0]:  # both are leaves
        same = (before.shape, before.dtype) == (after.shape, after.dtype)
        return None if same else (path, describe(before), describe(after))
    for (step, was), (_, now) in zip(one, two, strict=True):
        if found := _change((*path, *step), was, now):
            return found
    return None


def _children(tree: Any) -> tuple[list[Any], str]:
    """The children of a node with their paths, and its kind; a leaf is its own child, with an empty path."""
    found, node = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    return found, str(node)


def _require_arrays(shown: str, function: str, field: str, tree: Any) -> None:
    """Raise a `UsageError` if something in a tree is neither an array nor a number."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        known = isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex)
        if not known or (isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "biufcV"):
            where = jax.tree_util.keystr(path, simple=True, separator=".")
            what = f"`{where}` of its {field}" if where else f"its {field}"
            raise UsageError(
                f"`{shown}` returns {kind_of(leaf)} as {what} from `{function}`: it has to be an array or a number."
            )
