"""Matches the layers of two modules, tests the pairs by running both, and converts parameters between them.

Where only the order of calls tells layers of the same shape apart, both sides are run with random parameters: only the
right pairs give the same outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise, permutations, product
from typing import Any

import jax
import numpy as np

from xladder.errors import UsageError
from xladder.twins import layers_flax, layers_torch, pairing
from xladder.twins.calls import Call, array, as_call
from xladder.twins.layers import NORM
from xladder.twins.pairing import FORWARD, NAME, ORDER, Pair

SAME = 1e-3  # relative to the largest output: layers in the wrong places change all of it
UNCHANGED = 1e-6  # an exchange that changes less than this cannot be seen
MOST_TRIED = 120  # number of ways to pair layers of the same shape


@dataclass(frozen=True, eq=False)
class Match:
    """The pairs of layers of two modules, in PyTorch's order of calls. Print it to see them."""

    pairs: tuple[Pair, ...]
    doubt: str = ""
    """What could not be verified about the pairs, and what to do about it; may be empty."""

    def to_flax(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Convert PyTorch's parameters to Flax's variables. Traceable and differentiable.

        Args:
            state: PyTorch's parameters, and statistics if there are any, by their names in the state_dict.

        Returns:
            {"params": …}, with "batch_stats" if there are any, as `flax_module.apply` takes them.
        """
        tree: dict[str, Any] = {}
        for pair in self.pairs:
            arrays = {role: _untorched(state[name]) for role, name in pair.torch.places.items()}
            for leaf, values in pair.flax.kind.to_flax(arrays).items():
                layers_flax.place(tree, pair.flax.places[leaf], values)
        return tree

    def to_torch(self, variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Convert Flax's variables to PyTorch's parameters.

        Args:
            variables: {"params": …}, with "batch_stats" if there are any.

        Returns:
            NumPy arrays by their names in PyTorch's state_dict.
        """
        state = {}
        for pair in self.pairs:
            arrays = {leaf: array(layers_flax.take(variables, path)) for leaf, path in pair.flax.places.items()}
            for leaf, values in arrays.items():
                if values.shape != pair.flax.shapes[leaf]:
                    raise UsageError(
                        f"`{pair.flax.places[leaf]}` has shape {list(values.shape)}, which does not fit {pair.flax}."
                    )
            for role, values in pair.flax.kind.to_torch(arrays).items():
                state[pair.torch.places[role]] = np.ascontiguousarray(values).reshape(values.shape)
        return state

    def counterpart(self, name: str) -> str:
        """Flax's name for an array of PyTorch; that of the layer, if it corresponds to several arrays."""
        for pair in self.pairs:
            for role, place in pair.torch.places.items():
                if place == name:
                    found = list(pair.flax.kind.to_flax(_followed(pair, role)))
                    return pair.flax.places[found[0]].partition("/")[2] if len(found) == 1 else pair.flax.name
        return "nothing"

    def __str__(self) -> str:
        rows = [("PyTorch", "Flax", "found by"), *((p.torch.title, p.flax.title, p.how) for p in self.pairs)]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {how}".rstrip() for a, b, how in rows]
        return "\n".join([*lines, *([self.doubt] if self.doubt else [])])


def _untorched(values: Any) -> Any:
    """Convert a tensor to an array; anything else, such as a JAX tracer, is returned as it is."""
    return array(values) if hasattr(values, "detach") else values


def _followed(pair: Pair, role: str) -> dict[str, Any]:
    """Arrays of a pair that correspond one to one."""
    if pair.flax.kind.recurrent:  # each of their arrays becomes several
        return {name: np.broadcast_to(np.float32(0), shape) for name, shape in pair.torch.shapes.items()}
    return {role: np.broadcast_to(np.float32(0), pair.torch.shapes[role])}


@dataclass(frozen=True, eq=False)
class Twins:
    """Two modules, their inputs, and the pairs of their layers."""

    torch: Any
    flax: Any
    call: Call
    flax_call: Call
    match: Match


def meet(
    torch_module: Any,
    flax_module: Any,
    inputs: Any = None,
    names: Mapping[str, str] | None = None,
    flax_inputs: Any = None,
) -> Twins:
    """Check both modules, call both, and match their layers; raises a `UsageError` if something is wrong."""
    layers_torch.check_module(torch_module)
    layers_flax.check_module(flax_module)
    call = guess_inputs(torch_module) if inputs is None else as_call(inputs)
    flax_call = call if flax_inputs is None else as_call(flax_inputs)
    try:
        ours = layers_torch.find_layers(torch_module, call)
        theirs = layers_flax.find_layers(flax_module, flax_call)
    except UsageError as error:
        if inputs is None:
            raise _ask_for_inputs(f"a guess failed. {error}") from error
        raise
    pairs = pairing.propose(ours, theirs, names)
    return Twins(torch_module, flax_module, call, flax_call, try_out(torch_module, flax_module, pairs, call, flax_call))


def match_parameters(params: Mapping[str, Any], torch_module: Any, names: Mapping[str, str] | None = None) -> Match:
    """Match the layers of a PyTorch module with a tree of parameters alone."""
    layers_torch.check_module(torch_module)
    theirs = layers_flax.layers_of(params)
    pairs = pairing.propose(layers_torch.find_layers(torch_module, None), theirs, names)
    unsure = [pair for pair in pairs if pair.how == ORDER]
    if unsure:
        raise UsageError(
            f"By their shapes alone {_listed([pair.torch.name for pair in unsure])} could be any of "
            f"{_listed([pair.flax.name for pair in unsure])}. Give the Flax module and inputs, so that this can be "
            f"tested, or say which is which: {pairing.as_names(unsure)}."
        )
    return Match(tuple(pairs))


def guess_inputs(torch_module: Any) -> Call:
    """Made-up inputs for a module that takes one array, by its first layer."""
    shape = layers_torch.input_shape(torch_module, layers_torch.find_layers(torch_module, None))
    if shape is None:
        raise _ask_for_inputs("the PyTorch module's first layer does not imply the size of its input.")
    (size, whole), rng = shape, np.random.default_rng(0)
    made = rng.integers(0, 2, size, np.int32) if whole else rng.standard_normal(size, np.float32)
    return Call((made,), {})


def _ask_for_inputs(why: str) -> UsageError:
    return UsageError(f"The shapes of a Flax module follow from its inputs, so give some as `inputs=`: {why}")


def try_out(torch_module: Any, flax_module: Any, pairs: list[Pair], call: Call, flax_call: Call) -> Match:
    """Verify the proposed pairs by running both sides; where layers have the same shape, find the order that agrees."""
    groups = pairing.alternatives(pairs)
    if not groups:
        return Match(tuple(pairs))
    state = random_numbers(pairs, np.random.default_rng(0))
    theirs = jax.tree.leaves(layers_torch.call(torch_module, state, call))
    apply = jax.jit(lambda variables: layers_flax.apply_checked(flax_module, variables, flax_call))

    def outputs(tried: list[Pair]) -> list[np.ndarray]:
        with jax.default_matmul_precision("highest"):
            return [np.asarray(x) for x in jax.tree.leaves(apply(Match(tuple(tried)).to_flax(state)))]

    first = outputs(pairs)
    if _distance(first, theirs) <= SAME:
        return Match(tuple(pairs), _invisible(pairs, groups, first, outputs))
    for tried in islice(_orders(pairs, groups), MOST_TRIED):
        if _distance(outputs(tried), theirs) <= SAME:
            moved = [(a, b) for a, b in zip(pairs, tried, strict=True) if a is not b]
            if all(a.how == ORDER for a, _ in moved):
                return Match(tuple(tried))
            return Match(tuple(pairs), _swapped(moved))
    unsure = [pair for pair in pairs if pair.how == ORDER]
    return Match(tuple(pairs), _undecided(unsure) if unsure else "")


def random_numbers(pairs: list[Pair], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parameters for which every layer affects the output and no two are alike."""
    state = {}
    for pair in pairs:
        for role, shape in pair.torch.shapes.items():
            values = 0.5 + rng.random(shape)
            if len(shape) > 1 and pair.torch.kind is not NORM:
                values *= rng.choice([-1.0, 1.0], shape) / np.sqrt(max(1, math.prod(shape[1:])))
            state[pair.torch.places[role]] = np.asarray(values, np.float32)
    return state


def _orders(pairs: list[Pair], groups: list[list[int]]) -> Iterator[list[Pair]]:
    """Other ways to pair layers of the same shape: single exchanges first, then all permutations."""
    for group in groups:
        for k, i in enumerate(group):
            for j in group[k + 1 :]:
                yield pairing.exchange(pairs, {i: j, j: i}, FORWARD)
    for orders in product(*(permutations(group) for group in groups)):
        partners = {
            i: j for group, order in zip(groups, orders, strict=True) for i, j in zip(group, order, strict=True)
        }
        yield pairing.exchange(pairs, partners, FORWARD)


def _distance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest difference of two lists of arrays, relative to the largest number."""
    if [x.shape for x in ours] != [np.shape(x) for x in theirs]:
        return np.inf
    shares = [
        np.max(np.abs(a.astype(np.float64) - b), initial=0.0) / max(float(np.max(np.abs(b), initial=0.0)), 1e-30)
        for a, b in zip(ours, theirs, strict=True)
    ]
    return float(max(shares, default=np.inf)) if np.all(np.isfinite(shares)) else np.inf


def _invisible(pairs: list[Pair], groups: list[list[int]], first: list[np.ndarray], outputs: Any) -> str:
    """A warning if layers that only their order tells apart could be exchanged without changing the output."""
    for group in groups:
        guessed = [i for i in group if pairs[i].how == ORDER]
        for i, j in pairwise(guessed):
            if _distance(outputs(pairing.exchange(pairs, {i: j, j: i}, FORWARD)), first) <= UNCHANGED:
                some = [pairs[i], pairs[j]]
                return (
                    f"{_listed([pair.torch.name for pair in some])} have the same shape, and with these inputs the "
                    f"output does not depend on which of {_listed([pair.flax.name for pair in some])} is which: "
                    f"say so with {pairing.as_names(some)}."
                )
    return ""


def _swapped(moved: list[tuple[Pair, Pair]]) -> str:
    by_name = next(a for a, _ in moved if a.how == NAME)
    other = next(b for a, b in moved if a is by_name)
    return (
        f"By name `{by_name.torch.name}` goes with `{by_name.flax.name}`, but the modules' outputs agree only if "
        f"it goes with `{other.flax.name}`: give {pairing.as_names([b for _, b in moved])} if that is meant, or fix "
        "the Flax module."
    )


def _undecided(unsure: list[Pair]) -> str:
    return (
        f"{_listed([pair.torch.name for pair in unsure])} could be any of "
        f"{_listed([pair.flax.name for pair in unsure])} by their shapes, and the modules' outputs do not agree in any "
        "order tried. `xladder.parity.check` shows where they diverge; or say which is which: "
        f"{pairing.as_names(unsure)}."
    )


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
