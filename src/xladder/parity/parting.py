"""Locates where two twins diverge: the first layers that get the same input and return different outputs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xladder.twins import layers_flax, layers_torch
from xladder.twins.layers import BATCH_NORM, CONVOLUTION, LINEAR, NORM
from xladder.twins.layers_flax import Path
from xladder.twins.matching import Twins
from xladder.twins.pairing import Pair

SAME = 2e-5  # relative to the largest number, as for the whole network

_IN = {
    CONVOLUTION: " By default PyTorch does not pad, and Flax pads to keep the size (`padding`).",
    NORM: " By default ε is 1e-5 in PyTorch and 1e-6 in Flax (`epsilon`).",
    BATCH_NORM: " Is ε the same, and are PyTorch's statistics used (`use_running_average`)?",
}
_BEFORE = " Look at what comes between: the activation (Flax's gelu is approximate by default), a sum."
_FLAT = " After a convolution PyTorch flattens with channels first: transpose in Flax before flattening."


def find_parting(twins: Twins, variables: Any) -> str:
    """A sentence that names the first pair of layers that differ, in PyTorch's order of calls."""
    calls: layers_torch.Calls = []
    with layers_torch.capture(twins.torch, calls):
        layers_torch.call(twins.torch, None, twins.call)
    theirs: dict[Path, list[tuple[Any, Any]]] = {}
    with layers_flax.capture(theirs):
        layers_flax.apply(twins.flax, variables, twins.flax_call)
    pairs = {pair.torch.name: pair for pair in twins.match.pairs}
    counts: dict[str, int] = {}
    before: Pair | None = None
    convolved = False  # since the last linear layer
    for name, given, outputs in calls:
        pair = pairs.get(name)
        other = theirs.get(tuple(filter(None, pair.flax.name.split("/"))), []) if pair else []
        k = counts[name] = counts.get(name, -1) + 1
        if pair is None or k >= len(other):
            continue
        found = _part(pair, before, convolved, (given, outputs), other[k])
        if found:
            return found
        before, convolved = pair, pair.torch.kind is CONVOLUTION or (convolved and pair.torch.kind is not LINEAR)
    last = f" They diverge after the last, {before}." if before else ""
    hint = " Are channels last in Flax's output, but not in PyTorch's?" if convolved else ""
    return f"All layers that could be compared agree.{last}{hint}"


def _part(pair: Pair, before: Pair | None, convolved: bool, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> str:
    """A sentence if one call of a pair of layers differs."""
    kind, distances = pair.torch.kind, []
    for which in (0, 1):
        # A cell also takes and returns its state: the new hidden state is compared.
        a, b = _leaf(ours[which], 0), _leaf(theirs[which], -1 if kind.recurrent else 0)
        if a is None or b is None or (kind.recurrent and (which == 0 or np.shape(a) != np.shape(b))):
            distances.append((0.0, ""))
        else:
            distances.append(_distance(pair, np.asarray(a), np.asarray(b)))
    (given, input_shapes), (outputs, output_shapes) = distances
    if given > SAME:
        after = f" {before} still agree." if before else ""
        hint = _FLAT if kind is LINEAR and convolved else _BEFORE if before else ""
        return f"They diverge before {pair}: these layers get different inputs{input_shapes}.{after}{hint}"
    if outputs > SAME:
        same = "these layers" if kind.recurrent else "with the same input, these layers"
        return f"They diverge in {pair}: {same} return something different{output_shapes}.{_IN.get(kind, '')}"
    return ""


def _leaf(tree: Any, which: int) -> Any:
    """The first or last array; None for an abstract value inside a scan."""
    leaves = [x for x in jax.tree.leaves(tree) if hasattr(x, "shape")]
    return None if not leaves or isinstance(leaves[which], jax.core.Tracer) else leaves[which]


def _distance(pair: Pair, ours: np.ndarray, theirs: np.ndarray) -> tuple[float, str]:
    """The difference relative to the largest number; and the shapes, if these differ."""
    last = np.moveaxis(ours, 1, -1) if ours.ndim > 2 else ours  # Flax has channels last
    if pair.torch.kind.channels or pair.torch.type == "GroupNorm" or ours.shape != theirs.shape == last.shape:
        ours = last
    if ours.shape != theirs.shape:
        note = " (with its channels last)" if pair.torch.kind.channels else ""
        return np.inf, f", {list(ours.shape)}{note} and {list(theirs.shape)}"
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    largest = max(float(np.max(np.abs(a), initial=0.0)), 1e-30)
    return float(np.max(np.abs(a - b), initial=0.0)) / largest, ""
