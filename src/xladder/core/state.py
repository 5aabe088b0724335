"""Conversion of a run's state to named arrays, and back.

A state is a pytree whose leaves are arrays, numbers, generators, or objects with a state of their own (`Stateful`). The
names are the paths to the leaves, such as `runs.agent.params.head.kernel`. JAX is imported only where it is needed,
because a command line is parsed, and refused, before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from xladder.errors import DamagedRun

Arrays = dict[str, np.ndarray]
WORD = 2**64


class Stateful:
    """An object whose state consists of the attributes in `STATE`."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def state(self) -> Mapping[str, Any]:
        """Everything that is needed to resume."""
        return {name: getattr(self, name) for name in self.STATE}

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        for name, value in state.items():
            setattr(self, name, value)


class Portable:
    """A program whose runs can be saved and resumed elsewhere; by default, unchanged."""

    def carried(self, runs: Any) -> Any:
        """The part of a population that a checkpoint holds."""
        return runs

    def fresh_params(self, seed: Any) -> Any:
        """The initial parameters of one run, for their shapes."""
        program: Any = self
        return program.params(program.init(seed))

    def put_back(self, fresh: Any, kept: Any) -> Any:
        """A population resumed from a checkpoint; `fresh` is a newly initialised one."""
        return kept


def unique(*things: Any) -> list[Any]:
    """The distinct objects among the arguments: actor and learner may be the same object."""
    return [thing for i, thing in enumerate(things) if all(thing is not earlier for earlier in things[:i])]


def capture(thing: Any, prefix: str = "") -> Arrays:
    """Name → NumPy array for every leaf. On a CPU these may be views: write them before training continues."""
    import jax

    arrays: Arrays = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(thing):
        name = prefix + jax.tree_util.keystr(path, simple=True, separator=".")
        if hasattr(leaf, "take_state"):
            arrays |= capture(leaf.state(), name + ".")
        elif isinstance(leaf, np.random.Generator):
            arrays[name] = _generator_words(leaf)
        elif _is_key(leaf):
            arrays[name] = np.asarray(jax.random.key_data(leaf))
        else:
            arrays[name] = np.asarray(leaf)
    return arrays


def restore(like: Any, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Any:
    """The inverse of `capture`. `like` is a state of the same structure; `Stateful` objects in it are changed."""
    import jax

    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    leaves = []
    for path, leaf in paths:
        name = prefix + jax.tree_util.keystr(path, simple=True, separator=".")
        if hasattr(leaf, "take_state"):
            leaf.take_state(restore(leaf.state(), arrays, name + "."))
            leaves.append(leaf)
            continue
        expected = capture(leaf)[""]
        found = arrays.get(name)
        if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
            there = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
            raise DamagedRun(
                f"The checkpoint does not fit this run: `{name}` is {there}, and should be "
                f"{expected.dtype} {list(expected.shape)}."
            )
        leaves.append(_like(leaf, found))
    return jax.tree_util.tree_unflatten(structure, leaves)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The leaves of nested dicts, with dotted names."""
    leaves: list[tuple[str, Any]] = []
    for name, value in sorted(tree.items()):
        leaves += flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, value)]
    return leaves


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts from leaves with dotted names."""
    tree: dict[str, Any] = {}
    for name, value in leaves.items():
        *path, last = name.split(".")
        node = tree
        for branch in path:
            node = node.setdefault(branch, {})
        node[last] = value
    return tree


def _like(leaf: Any, found: np.ndarray) -> Any:
    """Convert an array to the type of a leaf."""
    import jax

    if isinstance(leaf, np.random.Generator):
        return _generator_from(found)
    if _is_key(leaf):
        return jax.device_put(
            jax.random.wrap_key_data(jax.numpy.array(found), impl=jax.random.key_impl(leaf)), leaf.sharding
        )
    if isinstance(leaf, jax.Array):
        # Never an alias: the program may change its buffers in place.
        return jax.device_put(found.copy(), leaf.sharding, may_alias=False)
    if isinstance(leaf, np.ndarray):
        return found.copy()
    return found.dtype.type(found[()]) if isinstance(leaf, np.generic) else type(leaf)(found[()])


def _is_key(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _generator_words(generator: np.random.Generator) -> np.ndarray:
    """uint64 [6]: the complete state of NumPy's default generator (PCG64)."""
    state: Any = generator.bit_generator.state
    wide = [state["state"]["state"], state["state"]["inc"]]
    words = [part for number in wide for part in (number % WORD, number // WORD)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _generator_from(words: np.ndarray) -> np.random.Generator:
    low, high, inc_low, inc_high, has, held = (int(word) for word in words)
    generator = np.random.default_rng(0)
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": low + high * WORD, "inc": inc_low + inc_high * WORD},
        "has_uint32": has,
        "uinteger": held,
    }
    return generator
