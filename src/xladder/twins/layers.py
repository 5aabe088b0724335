"""Kinds of layers: how PyTorch and Flax lay out their parameters, and the conversion between the two.

The conversion to Flax is plain array code without functions of NumPy or JAX, so that it takes NumPy arrays and JAX
tracers alike: it is differentiable.

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
    """Flax's names of arrays in the collection `batch_stats`, which are not parameters."""
    channels: bool = False
    """Whether inputs and outputs have channels on axis 1 in PyTorch and on the last axis in Flax."""
    recurrent: bool = False
    summed: tuple[bool, ...] = ()
    """For each gate of a recurrent cell, whether Flax has one bias where PyTorch adds two."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of one side: its name, its kind and its arrays."""

    name: str  # in the side's own notation: `encoder.0` or `encoder/Dense_0`
    type: str  # name of the class
    kind: Kind
    places: Mapping[str, str]  # short name of an array → its full name there
    shapes: Mapping[str, tuple[int, ...]]
    torch: bool

    @cached_property
    def torch_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of this layer in PyTorch's layout."""
        return dict(self.shapes) if self.torch else _shapes(self.kind.to_torch, self.shapes)

    @property
    def title(self) -> str:
        """The name, or a description if it is empty: a module may consist of a single layer."""
        return self.name or "(the module itself)"

    @property
    def key(self) -> tuple[Any, ...]:
        """Layers of two sides are compatible if this is equal."""
        family = PARAMETER if self.kind is KERNEL else self.kind
        return (family.name, tuple(sorted(self.torch_shapes.items())))

    def __str__(self) -> str:
        ordered = sorted(self.shapes.items(), key=lambda item: -len(item[1]))  # the matrix before its bias
        arrays = ", ".join(f"{name} {list(shape)}" for name, shape in ordered)
        return f"`{self.title}` ({self.type}: {arrays})"


def _shapes(convert: Callable[[Arrays], dict[str, Any]], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Apply a conversion to shapes, with arrays that take no memory."""
    empty = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    return {name: tuple(array.shape) for name, array in convert(empty).items()}


def _kernel(weight: Any) -> Any:
    """[spatial …, I, O] from [O, I, spatial …]: of a dense layer or a convolution."""
    return weight.transpose((*range(2, weight.ndim), 1, 0))


def _weight(kernel: Any) -> Any:
    """[O, I, spatial …] from [spatial …, I, O]."""
    return kernel.transpose((kernel.ndim - 1, kernel.ndim - 2, *range(kernel.ndim - 2)))


def _renamed(name: str, leaves: Mapping[str, str], **more: Any) -> Kind:
    """A kind whose arrays have other names in Flax, and whose kernels are transposed."""
    back = {leaf: role for role, leaf in leaves.items()}

    def to_flax(arrays: Arrays) -> dict[str, Any]:
        return {leaves[role]: _kernel(x) if "kernel" in leaves[role] else x for role, x in arrays.items()}

    def to_torch(arrays: Arrays) -> dict[str, Any]:
        return {back[leaf]: _weight(x) if "kernel" in leaf else x for leaf, x in arrays.items()}

    return Kind(name, to_flax, to_torch, **more)


def _gated(name: str, gates: str, holder: str, apart: str) -> Kind:
    """A recurrent cell. PyTorch stacks the gates: [G·H, I] and [G·H, H]; Flax has a dense layer per gate.

    PyTorch has two biases per gate where Flax has only their sum (in the layer of the input or of the hidden state:
    `holder`), except for the gates in `apart`. Converted back, the sum becomes the first bias and the second is 0.
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

    return Kind(name, to_flax, to_torch, recurrent=True, summed=tuple(gate not in apart for gate in gates))


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
# r·(W h + b) has its own bias inside, so the biases of n cannot be summed.
GRU = _gated("GRU", "rzn", holder="i", apart="n")
LSTM = _gated("LSTM", "ifgo", holder="h", apart="")
# A custom parameter: copied as it is, or transposed where Flax calls it a kernel.
PARAMETER = _renamed("parameter", {"value": "value"})
KERNEL = _renamed("parameter, transposed", {"value": "kernel"})

CELLS = {
    frozenset({"ir", "iz", "in", "hr", "hz", "hn"}): GRU,
    frozenset({"ii", "if", "ig", "io", "hi", "hf", "hg", "ho"}): LSTM,
}
"""The layers inside a cell of Flax, by which it is recognised."""
