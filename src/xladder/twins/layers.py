"""Kinds of layers: how PyTorch lays out the numbers of each, how Flax does, and the way from one to the other.

All of it is plain array code without NumPy's or JAX's own functions on the way to Flax, so that it takes NumPy arrays
and JAX's tracers alike: a gradient can be taken through it.

Shapes: I inputs, O outputs, H hidden, G gates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]
"""The arrays of one layer by their short names: `weight`, `bias` in PyTorch; `kernel`, `hn/bias` in Flax."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of layer that both sides have."""

    name: str
    to_flax: Callable[[Arrays], dict[str, Any]]
    to_torch: Callable[[Arrays], dict[str, Any]]
    statistics: frozenset[str] = frozenset()
    """Flax's names of what is no parameter but lies in the collection `batch_stats`."""
    channels: bool = False
    """Whether PyTorch has the channels of what goes in and out on axis 1, and Flax on the last."""
    recurrent: bool = False


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of one side: its name, its kind, and where its arrays are."""

    name: str  # as the side itself writes it: `encoder.0` or `encoder/Dense_0`
    type: str  # what the class is called
    kind: Kind
    places: Mapping[str, str]  # short name of an array → its full name there
    shapes: Mapping[str, tuple[int, ...]]
    torch: bool

    @cached_property
    def torch_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes that this layer has, or would have, in PyTorch."""
        return dict(self.shapes) if self.torch else _shapes(self.kind.to_torch, self.shapes)

    @property
    def title(self) -> str:
        """The name, or what to say instead of none: a module may be nothing but one layer."""
        return self.name or "(the module itself)"

    @property
    def key(self) -> tuple[Any, ...]:
        """Layers of two sides fit each other if this is the same."""
        family = PARAMETER if self.kind is KERNEL else self.kind
        return (family.name, tuple(sorted(self.torch_shapes.items())))

    def __str__(self) -> str:
        ordered = sorted(self.shapes.items(), key=lambda item: -len(item[1]))  # the matrix before its bias
        arrays = ", ".join(f"{name} {list(shape)}" for name, shape in ordered)
        return f"`{self.title}` ({self.type}: {arrays})"


def _shapes(convert: Callable[[Arrays], dict[str, Any]], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What a conversion makes of shapes; the arrays that it is tried on take no room."""
    empty = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    return {name: tuple(array.shape) for name, array in convert(empty).items()}


def _kernel(weight: Any) -> Any:
    """[…, I, O] from [O, I, …]: a dense layer's, or a convolution's with its places first."""
    return weight.transpose((*range(2, weight.ndim), 1, 0))


def _weight(kernel: Any) -> Any:
    """[O, I, …] from […, I, O]."""
    return kernel.transpose((kernel.ndim - 1, kernel.ndim - 2, *range(kernel.ndim - 2)))


def _renamed(name: str, leaves: Mapping[str, str], **more: Any) -> Kind:
    """A kind whose arrays bear other names in Flax, and whose kernels are transposed on the way."""
    back = {leaf: role for role, leaf in leaves.items()}

    def to_flax(arrays: Arrays) -> dict[str, Any]:
        return {leaves[role]: _kernel(x) if "kernel" in leaves[role] else x for role, x in arrays.items()}

    def to_torch(arrays: Arrays) -> dict[str, Any]:
        return {back[leaf]: _weight(x) if "kernel" in leaf else x for leaf, x in arrays.items()}

    return Kind(name, to_flax, to_torch, **more)


def _gated(name: str, gates: str, holder: str, apart: str) -> Kind:
    """A recurrent cell. PyTorch stacks the gates: [G·H, I] and [G·H, H]; Flax has a dense layer for each of them.

    PyTorch adds two biases to each gate where Flax has only their sum (in the layer of the input or of the hidden
    state: `holder`), except for the gates in `apart`. On the way back the sum becomes the first and the second is 0.
    """

    def to_flax(arrays: Arrays) -> dict[str, Any]:
        size, leaves = arrays["weight_hh"].shape[1], {}
        for k, gate in enumerate(gates):
            rows = slice(k * size, (k + 1) * size)
            leaves[f"i{gate}/kernel"] = _kernel(arrays["weight_ih"][rows])
            leaves[f"h{gate}/kernel"] = _kernel(arrays["weight_hh"][rows])
            if "bias_ih" in arrays:
                of_input, of_hidden = arrays["bias_ih"][rows], arrays["bias_hh"][rows]
                if gate in apart:
                    leaves[f"i{gate}/bias"], leaves[f"h{gate}/bias"] = of_input, of_hidden
                else:
                    leaves[f"{holder}{gate}/bias"] = of_input + of_hidden
        return leaves

    def to_torch(arrays: Arrays) -> dict[str, Any]:
        zeros = np.zeros_like(arrays[f"{holder}{gates[0]}/bias"])
        of_input = [arrays[f"{'i' if gate in apart else holder}{gate}/bias"] for gate in gates]
        of_hidden = [arrays[f"h{gate}/bias"] if gate in apart else zeros for gate in gates]
        return {
            "weight_ih": np.concatenate([_weight(arrays[f"i{gate}/kernel"]) for gate in gates]),
            "weight_hh": np.concatenate([_weight(arrays[f"h{gate}/kernel"]) for gate in gates]),
            "bias_ih": np.concatenate(of_input),
            "bias_hh": np.concatenate(of_hidden),
        }

    return Kind(name, to_flax, to_torch, recurrent=True)


_DENSE = {"weight": "kernel", "bias": "bias"}
_SCALED = {"weight": "scale", "bias": "bias"}
LINEAR = _renamed("linear", _DENSE)
CONVOLUTION = _renamed("convolution", _DENSE, channels=True)
NOISY = _renamed("noisy linear", _DENSE | {"sigma_weight": "sigma_kernel", "sigma_bias": "sigma_bias"})
EMBEDDING = _renamed("embedding", {"weight": "embedding"})
NORM = _renamed("norm", _SCALED)
BATCH_NORM = _renamed(
    "batch norm",
    _SCALED | {"running_mean": "mean", "running_var": "var"},
    statistics=frozenset({"mean", "var"}),
    channels=True,
)
# r·(W h + b) has a bias of its own inside, so that the biases of n do not add up.
GRU = _gated("GRU", "rzn", holder="i", apart="n")
LSTM = _gated("LSTM", "ifgo", holder="h", apart="")
# A parameter of somebody's own module: as it is, or transposed where Flax's side calls it a kernel.
PARAMETER = _renamed("parameter", {"value": "value"})
KERNEL = _renamed("parameter, transposed", {"value": "kernel"})

CELLS = {
    frozenset({"ir", "iz", "in", "hr", "hz", "hn"}): GRU,
    frozenset({"ii", "if", "ig", "io", "hi", "hf", "hg", "ho"}): LSTM,
}
"""The layers inside a cell of Flax, by which it is known."""
