"""Where two twins part: the first of their layers that is given the same and says something else."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xladder.twins import layers_flax, layers_torch
from xladder.twins.layers import BATCH_NORM, CONVOLUTION, LINEAR, NORM
from xladder.twins.layers_flax import Path
from xladder.twins.matching import Twins
from xladder.twins.pairing import Pair

SAME = 2e-5  # of the largest number, as for the whole

_IN = {
    CONVOLUTION: " PyTorch pads with 0 rows unless told otherwise, Flax with as many as keep the size (`padding`).",
    NORM: " PyTorch's ε is 1e-5 unless told otherwise, Flax's 1e-6 (`epsilon`).",
    BATCH_NORM: " Is ε the same, and are the statistics those of PyTorch (`use_running_average`)?",
}
_BEFORE = " Look at what comes between: the activation (Flax's gelu is an approximation unless told otherwise), a sum."
_FLAT = " After a convolution PyTorch flattens with channels first: transpose in Flax before flattening."


def find_parting(twins: Twins, variables: Any) -> str:
    """A sentence that names the first pair of layers that differ, in the order in which PyTorch calls them."""
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
    for name, given, said in calls:
        pair = pairs.get(name)
        other = theirs.get(tuple(filter(None, pair.flax.name.split("/"))), []) if pair else []
        k = counts[name] = counts.get(name, -1) + 1
        if pair is None or k >= len(other):
            continue
        found = _part(pair, before, convolved, (given, said), other[k])
        if found:
            return found
        before, convolved = pair, pair.torch.kind is CONVOLUTION or (convolved and pair.torch.kind is not LINEAR)
    last = f" They part after the last, {before}." if before else ""
    hint = " Has Flax's output its channels last, and PyTorch's not?" if convolved else ""
    return f"All layers that could be compared say the same.{last}{hint}"


def _part(pair: Pair, before: Pair | None, convolved: bool, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> str:
    """A sentence if one call of a pair of layers differs."""
    kind, distances = pair.torch.kind, []
    for which in (0, 1):
        # Of a cell, which takes and returns its state as well, the new hidden state is compared.
        a, b = _leaf(ours[which], 0), _leaf(theirs[which], -1 if kind.recurrent else 0)
        if a is None or b is None or (kind.recurrent and (which == 0 or np.shape(a) != np.shape(b))):
            distances.append((0.0, ""))
        else:
            distances.append(_distance(pair, np.asarray(a), np.asarray(b)))
    (given, shapes_given), (said, shapes_said) = distances
    if given > SAME:
        after = f" {before} still say the same." if before else ""
        hint = _FLAT if kind is LINEAR and convolved else _BEFORE if before else ""
        return f"They part before {pair}: these layers are given different inputs{shapes_given}.{after}{hint}"
    if said > SAME:
        same = "these layers" if kind.recurrent else "given the same, these layers"
        return f"They part in {pair}: {same} say something else{shapes_said}.{_IN.get(kind, '')}"
    return ""


def _leaf(tree: Any, which: int) -> Any:
    """The first or last array, unless it is only a name for one, inside a scan."""
    leaves = [x for x in jax.tree.leaves(tree) if hasattr(x, "shape")]
    return None if not leaves or isinstance(leaves[which], jax.core.Tracer) else leaves[which]


def _distance(pair: Pair, ours: np.ndarray, theirs: np.ndarray) -> tuple[float, str]:
    """How far apart, as a share of the largest number; and the shapes, if it is them."""
    last = np.moveaxis(ours, 1, -1) if ours.ndim > 2 else ours  # Flax has channels there
    if pair.torch.kind.channels or pair.torch.type == "GroupNorm" or ours.shape != theirs.shape == last.shape:
        ours = last
    if ours.shape != theirs.shape:
        note = " (with its channels last)" if pair.torch.kind.channels else ""
        return np.inf, f", {list(ours.shape)}{note} and {list(theirs.shape)}"
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    largest = max(float(np.max(np.abs(a), initial=0.0)), 1e-30)
    return float(np.max(np.abs(a - b), initial=0.0)) / largest, ""
