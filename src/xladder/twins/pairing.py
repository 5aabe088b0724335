"""Pairs the layers of twins by names, kinds, shapes and order.

First by the names that the user gives, then by equal names, then by shapes that occur once, then by the order of calls
among layers of the same shape. The last is a guess, which `matching.py` tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from xladder.errors import UsageError, unknown
from xladder.twins.layers import Layer

GIVEN, NAME, SHAPE, ORDER, FORWARD = "given", "name", "shape", "order", "forward pass"


class Pair(NamedTuple):
    """Two corresponding layers, and how they were matched."""

    torch: Layer
    flax: Layer
    how: str
    group: str = ""
    """The user's name that both are under, if there is one."""

    def __str__(self) -> str:
        return f"`{self.torch.title}` ↔ `{self.flax.title}`"


def propose(ours: Sequence[Layer], theirs: Sequence[Layer], names: Mapping[str, str] | None = None) -> list[Pair]:
    """Pair every PyTorch layer (`ours`) with a Flax layer; a `UsageError` names the first that does not fit.

    `names` maps names of layers or of modules that contain them: {"encoder": "Encoder_0", "head.0": "Dense_2"}.
    """
    if names and not (isinstance(names, Mapping) and all(isinstance(name, str) for x in names.items() for name in x)):
        raise UsageError('`names` has to be a dict of PyTorch\'s names and Flax\'s: {"encoder.0": "Dense_0"}.')
    waiting, wanted, pairs = list(ours), list(theirs), []
    for key, value in sorted((names or {}).items(), key=lambda item: -len(_parts(item[0]))):
        if not _under(key, ours):
            raise unknown("layer in the PyTorch module that is called", key, _names(ours))
        if not _under(value, theirs):
            raise unknown("layer in the Flax module that is called", value, _names(theirs))
        some, others = _under(key, waiting), _under(value, wanted)
        found = _pair(some, others, len(_parts(key)), len(_parts(value)))
        pairs += [pair._replace(group=key) for pair in found]
        waiting = [layer for layer in waiting if layer not in some]
        wanted = [layer for layer in wanted if layer not in others]
    pairs += _pair(waiting, wanted)
    return sorted(pairs, key=lambda pair: ours.index(pair.torch))


def alternatives(pairs: Sequence[Pair]) -> list[list[int]]:
    """Indices of pairs that could be exchanged as their shapes are equal, except those given by the user."""
    groups: dict[tuple, list[int]] = {}
    for i, pair in enumerate(pairs):
        if pair.how != GIVEN:
            groups.setdefault((pair.group, pair.torch.key), []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def exchange(pairs: Sequence[Pair], partners: Mapping[int, int], how: str) -> list[Pair]:
    """The same pairs, but the PyTorch layer of pair `i` gets the Flax layer of pair `partners[i]`."""
    return [
        pair._replace(flax=pairs[partners[i]].flax, how=how) if partners.get(i, i) != i else pair
        for i, pair in enumerate(pairs)
    ]


def as_names(pairs: Sequence[Pair]) -> str:
    """Pairs in the form of the argument `names`."""
    return "names={" + ", ".join(f'"{pair.torch.name}": "{pair.flax.name}"' for pair in pairs) + "}"


def _pair(ours: list[Layer], theirs: list[Layer], skip_ours: int = 0, skip_theirs: int = 0) -> list[Pair]:
    """Pair layers by name, shape and order; the given number of leading parts of their names is ignored."""
    if skip_ours and len(ours) == len(theirs) == 1:
        if ours[0].key != theirs[0].key:
            raise _misfit(ours[0], theirs[0])
        return [Pair(ours[0], theirs[0], GIVEN)]
    pairs = _by_name(ours, theirs, skip_ours, skip_theirs)
    ours = [layer for layer in ours if all(layer is not pair.torch for pair in pairs)]
    theirs = [layer for layer in theirs if all(layer is not pair.flax for pair in pairs)]
    counts, others = Counter(layer.key for layer in ours), Counter(layer.key for layer in theirs)
    if counts != others:
        raise _first_misfit(ours, theirs)
    for key, count in counts.items():
        some, partners = ([layer for layer in layers if layer.key == key] for layers in (ours, theirs))
        pairs += [Pair(a, b, SHAPE if count == 1 else ORDER) for a, b in zip(some, partners, strict=True)]
    return pairs


def _by_name(ours: list[Layer], theirs: list[Layer], skip_ours: int, skip_theirs: int) -> list[Pair]:
    """Pair layers whose names are equal apart from notation: `encoder.0` and `encoder/layers_0`."""
    some = {_plain(layer.name, skip_ours): layer for layer in ours}
    others = {_plain(layer.name, skip_theirs): layer for layer in theirs}
    pairs = []
    for name, layer in some.items():
        # The two may count differently, so a number in a name counts only if both sides have the same numbers.
        if name and name in others and _siblings(name, some) == _siblings(name, others):
            if layer.key != others[name].key:
                raise _misfit(layer, others[name])
            pairs.append(Pair(layer, others[name], NAME))
    return pairs


def _siblings(name: str, names: Iterable[str]) -> set[str]:
    """All names that differ only in the number after the last `_`; empty if there is no such number."""
    stem, _, count = name.rpartition("_")
    return {other for other in names if _splits(other, stem)} if count.isdigit() else set()


def _splits(name: str, stem: str) -> bool:
    before, _, count = name.rpartition("_")
    return before == stem and count.isdigit()


def _plain(name: str, skip: int) -> str:
    """A name without the parts that only one side has."""
    return re.sub(r"(^|_)layers_(?=\d)", r"\1", "_".join(_parts(name)[skip:]).lower())


def _first_misfit(ours: list[Layer], theirs: list[Layer]) -> UsageError:
    """The error for the first two layers, in order, that do not fit, or for the first without counterpart."""
    for layer, other in zip_longest(ours, theirs):
        if layer is None:
            return UsageError(f"{other} of the Flax module has no counterpart in the PyTorch module.{_advice(other)}")
        if other is None:
            return UsageError(f"{layer} of the PyTorch module has no counterpart in the Flax module.{_advice(layer)}")
        if layer.key != other.key:
            return _misfit(layer, other)
    raise AssertionError("all of them fit")


def _misfit(layer: Layer, other: Layer) -> UsageError:
    return UsageError(
        f"The modules do not fit each other. The first pair that does not: {layer} in PyTorch and {other} in Flax."
        f"{_wish(layer, other)} If these two are not meant to be the same layer, say which are: "
        f'names={{"{layer.name}": "…"}}.'
    )


def _wish(layer: Layer, other: Layer) -> str:
    """What would have to be different about Flax's layer."""
    if layer.kind is not other.kind:
        return ""
    wanted, there = layer.torch_shapes, other.torch_shapes
    if wanted.keys() - there.keys():
        return f" Flax's has no {_roles(wanted.keys() - there.keys())}."
    if there.keys() - wanted.keys():
        return f" PyTorch's has no {_roles(there.keys() - wanted.keys())}."
    name = next(name for name in wanted if wanted[name] != there[name])
    return f" In PyTorch's order of axes Flax's {name} is {list(there[name])}, not {list(wanted[name])}."


def _roles(names: set[str]) -> str:
    return " and ".join(f"`{name}`" for name in sorted(names))


def _advice(layer: Layer) -> str:
    if layer.torch and layer.kind.name == "parameter":
        return " A custom parameter is copied to one of the same shape, made by `self.param`."
    return ""


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[./]", name) if part]


def _under(prefix: str, layers: Sequence[Layer]) -> list[Layer]:
    """The layers with that name, or inside a module with that name."""
    start = _parts(prefix)
    return [layer for layer in layers if _parts(layer.name)[: len(start)] == start]


def _names(layers: Sequence[Layer]) -> list[str]:
    return [layer.name for layer in layers if layer.name]
