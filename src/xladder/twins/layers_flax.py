"""The Flax side of a pair of twins: finds its layers in call order, and calls it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from xladder.errors import UsageError
from xladder.twins.calls import Call, first_line
from xladder.twins.layers import (
    BATCH_NORM,
    CELLS,
    CONVOLUTION,
    EMBEDDING,
    KERNEL,
    LINEAR,
    NOISY,
    NORM,
    PARAMETER,
    Kind,
    Layer,
)

Path = tuple[str, ...]
COLLECTIONS = ("params", "batch_stats")
# Arguments that turn dropout off and keep the statistics fixed.
_EVALUATING = {"train": False, "training": False, "deterministic": True}


def check_module(module: Any) -> None:
    """Raise a `UsageError` unless it is a Flax Linen module."""
    if isinstance(module, nn.Module):
        return
    if isinstance(module, type) and issubclass(module, nn.Module):
        raise UsageError(f"`{module.__name__}` is a class: give a Flax module made from it, `{module.__name__}(…)`.")
    raise UsageError(
        f"The second module is a {type(module).__module__}.{type(module).__name__}, but it has to be a Flax Linen "
        "module (flax.linen.Module). The PyTorch module comes first."
    )


def apply(module: nn.Module, variables: Any, call: Call) -> Any:
    """The output of the module, with dropout off."""
    return module.apply(variables, *call.args, **_evaluating(module, call))


def network(module: nn.Module, variables: Any) -> Callable[..., Any]:
    """The module bound to its variables, called like the PyTorch module."""

    def net(*args: Any, **kwargs: Any) -> Any:
        return apply(module, variables, Call(args, kwargs))

    return net


def apply_checked(module: nn.Module, variables: Any, call: Call) -> Any:
    """The same, with a `UsageError` if it fails."""
    try:
        return apply(module, variables, call)
    except Exception as error:
        raise _failed(module, call, error) from error


def find_layers(module: nn.Module, call: Call) -> list[Layer]:
    """All layers that have parameters, in the order of their first call."""
    order: dict[Path, tuple[int, str]] = {}

    def note(next_fun: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.method_name == "__call__" or context.module.path not in order:
            order.setdefault(context.module.path, (len(order), type(context.module).__name__))
        return next_fun(*args, **kwargs)

    def init() -> Any:
        keys = {name: jax.random.key(0) for name in ("params", "dropout")}
        return module.init(keys, *call.args, **_evaluating(module, call))

    try:
        with nn.intercept_methods(note):
            shapes = nn.meta.unbox(jax.eval_shape(init))
    except Exception as error:
        raise _failed(module, call, error) from error
    return layers_of(shapes, order)


def layers_of(variables: Any, order: Mapping[Path, tuple[int, str]] | None = None) -> list[Layer]:
    """The layers of a tree of variables, whose leaves only need a shape."""
    other = [name for name in variables if name not in COLLECTIONS and jax.tree.leaves(variables[name])]
    if other:
        raise UsageError(
            f"The Flax module has the collection `{other[0]}` besides its parameters, without counterpart in PyTorch: "
            "pass it as an input."
        )
    order = order or {}
    leaves = {name: _flat(variables.get(name, {})) for name in COLLECTIONS}
    if not leaves["params"]:
        raise UsageError("The Flax module has no parameters.")
    cells = _cells(leaves["params"])
    units: dict[Path, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for collection, found in leaves.items():
        for path, leaf in found.items():
            home = path[:-2] if path[:-2] in cells else path[:-1]
            units.setdefault(home, {})["/".join(path[len(home) :])] = (collection, tuple(np.shape(leaf)))
    layers: list[tuple[tuple[Any, ...], Layer]] = []
    for home, arrays in units.items():
        place, name = order.get(home, (len(order), ""))
        for layer in _layers_at(home, arrays, cells.get(home), name):
            layers.append(((place, _natural(layer.name)), layer))
    return [layer for _, layer in sorted(layers, key=lambda pair: pair[0])]


def _layers_at(
    home: Path, arrays: Mapping[str, tuple[str, tuple[int, ...]]], cell: Kind | None, name: str
) -> list[Layer]:
    """The layer at one path of the tree, or its parameters one by one if its kind is unknown."""
    shapes = {leaf: shape for leaf, (_, shape) in arrays.items()}
    places = {leaf: "/".join((collection, *home, leaf)) for leaf, (collection, _) in arrays.items()}
    kind = cell or _kind(shapes, name)
    if kind is not None:
        return [Layer("/".join(home), name or kind.name, kind, places, shapes, torch=False)]
    layers = []
    for leaf, shape in shapes.items():
        kind = KERNEL if "kernel" in leaf and len(shape) == 2 else PARAMETER
        short = "kernel" if kind is KERNEL else "value"
        full = "/".join((*home, leaf))
        layers.append(Layer(full, "parameter", kind, {short: places[leaf]}, {short: shape}, torch=False))
    return layers


def _kind(shapes: Mapping[str, tuple[int, ...]], name: str) -> Kind | None:
    """The kind of a layer, by the names of its arrays."""
    names = set(shapes)
    if "kernel" in names and names <= {"kernel", "bias"}:
        rank = len(shapes["kernel"])
        return LINEAR if rank == 2 else CONVOLUTION if rank > 2 and "Transpose" not in name else None
    if {"kernel", "sigma_kernel"} <= names <= {"kernel", "bias", "sigma_kernel", "sigma_bias"}:
        return NOISY
    if names == {"embedding"}:
        return EMBEDDING
    if {"mean", "var"} <= names <= {"mean", "var", "scale", "bias"}:
        return BATCH_NORM
    # A custom parameter may be called `scale`, too.
    if names <= {"scale", "bias"} and (name.endswith("Norm") or (not name and shapes.get("scale"))):
        return NORM
    return None


def _cells(leaves: Mapping[Path, Any]) -> dict[Path, Kind]:
    """The paths of recurrent cells, which are recognised by the layers in them."""
    inside: dict[Path, set[str]] = {}
    for path in leaves:
        if len(path) >= 2:
            inside.setdefault(path[:-2], set()).add(path[-2])
    return {path: CELLS[frozenset(names)] for path, names in inside.items() if frozenset(names) in CELLS}


def capture(values: dict[Path, list[tuple[Any, Any]]]) -> AbstractContextManager:
    """While this is open, record inputs and outputs of every module by path, call by call."""

    def note(next_fun: Any, args: Any, kwargs: Any, context: Any) -> Any:
        outputs = next_fun(*args, **kwargs)
        if context.method_name == "__call__":
            values.setdefault(context.module.path, []).append((args, outputs))
        return outputs

    return nn.intercept_methods(note)


def place(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set a value in a nested dict."""
    *parents, leaf = path.split("/")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[leaf] = value


def take(tree: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a nested dict."""
    node: Any = tree
    for name in path.split("/"):
        if not isinstance(node, Mapping) or name not in node:
            raise UsageError(f"The parameters have no `{path}`: are they those of this Flax module?")
        node = node[name]
    return node


def _flat(tree: Any, path: Path = ()) -> dict[Path, Any]:
    """Path → leaf."""
    if not isinstance(tree, Mapping):
        return {path: tree}
    return {full: leaf for name, part in tree.items() for full, leaf in _flat(part, (*path, str(name))).items()}


def _evaluating(module: nn.Module, call: Call) -> dict[str, Any]:
    """The keyword arguments of a call, plus those that turn dropout off."""
    signature = inspect.signature(type(module).__call__)
    try:
        given = signature.bind_partial(module, *call.args, **call.kwargs).arguments
    except TypeError:
        given = dict(call.kwargs)  # the call itself will report what is wrong
    more = {name: value for name, value in _EVALUATING.items() if name in signature.parameters and name not in given}
    return {**call.kwargs, **more}


def _failed(module: nn.Module, call: Call, error: Exception) -> UsageError:
    hint = ""
    if "InvalidRng" in type(error).__name__:
        hint = " Take random numbers as inputs instead of drawing them inside; then both sides can be given the same."
    return UsageError(
        f"The Flax module `{type(module).__name__}` cannot be called with {call}: {first_line(error)}{hint}"
    )


def _natural(name: str) -> list[Any]:
    """A sort key that puts `Dense_10` after `Dense_9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
