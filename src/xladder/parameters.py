"""Map the names and layouts of PyTorch parameters to the JAX pytree of the same network, and back.

Modules have the same names on both sides, and the names are checked; `iqn` and `dqn` mean sorrel's names for its two
kinds of value networks. Kernels are transposed (PyTorch stores [out, in] and [out, in, row, column], Flax [in, out] and
[row, column, in, out]). Nothing is rounded, so a round trip returns the same bits. Everything is NumPy, so files can
be written without PyTorch installed; `bridge.py` does the same with tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from xladder.errors import UsageError, unknown

# sorrel's names for the parts of its networks, in the order of its layers, and ours.
_SORREL = {
    "iqn": {
        "head1": "torso",
        "cos_embedding": "head.embedding",
        "ff_1": "head.hidden",
        "advantage": "head.advantage",
        "value": "head.value",
    },
    "dqn": {"network.0": "torso.hidden_0", "network.2": "head.hidden", "network.4": "head.advantage"},
}
_OURS = {learner: {ours: theirs for theirs, ours in names.items()} for learner, names in _SORREL.items()}
_NOISY = ("ff_1", "advantage", "value")
SORREL_NAMES = {
    learner: tuple(
        f"{module}.{name}"
        for module in names
        for name in ("weight", "bias", *(("sigma_weight", "sigma_bias") if module in _NOISY else ()))
    )
    for learner, names in _SORREL.items()
}
"""The parameters of sorrel's networks, in the order in which its optimiser numbers them."""
# Heads and layers depend on the config, so a pattern describes the possible names.
_FLOW_NAMES = re.compile(
    r"log_z|logit_scale|((forward_|backward_|flow_)?trunk\.(rows|bias|first|condition|hidden_\d+\.(weight|bias)"
    r"|layer_\d+\.(qkv|out|hidden|output|norm_[12])\.(weight|bias)))"
    r"|((forward|backward|flow|stop)_head\.(weight|bias))"
)
_VALUE_NAMES = re.compile(
    r"torso\.((hidden|conv|norm)_\d+\.)?(weight|bias)"
    r"|memory\.(input|state)\.(weight|bias)|normaliser\.(mean|variance|count)"
    r"|head\.(embedding|hidden|advantage|value|value_hidden)\.(sigma_)?(weight|bias)"
)
LEARNERS = ("iqn", "dqn", "value", "gflownet")
# PyTorch's parameter names → ours; a layer norm's weight is not a kernel.
_KERNELS = {"weight": "kernel", "sigma_weight": "sigma_kernel"}
_WEIGHTS = {ours: theirs for theirs, ours in _KERNELS.items()} | {"scale": "weight"}
# Entries of sorrel's state_dicts that are not parameters: the noise of the last forward call → its sigma.
_NOISE = {"epsilon_weight": "sigma_weight", "epsilon_bias": "sigma_bias"}
_TORSO = "torso."
MOST_NAMED = 3  # names listed in an error: a file may contain any number of wrong ones


class TorsoNames(Protocol):
    """Converts the parameters of a user's own torso; names are given without the prefix `torso.`."""

    def to_flax(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Convert PyTorch arrays by name to the torso's Flax parameters."""

    def to_torch(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Convert the torso's Flax parameters to PyTorch arrays by name."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of PyTorch's parameters by name."""


def to_tree(learner: str, state: Mapping[str, np.ndarray], torso: TorsoNames | None = None) -> dict[str, Any]:
    """Convert a state_dict of arrays to the parameters that `net.apply` takes (float32).

    Args:
        learner: The naming scheme: one of `LEARNERS`.
        state: Arrays by PyTorch's names.
        torso: Converts the torso's parameters, if the torso is the user's own.
    """
    if torso is not None:
        rest = {name: values for name, values in state.items() if not name.startswith(_TORSO)}
        own = {name.removeprefix(_TORSO): values for name, values in state.items() if name.startswith(_TORSO)}
        seen = torso.to_flax(own)
        return ({"torso": seen} if seen else {}) | to_tree(learner, rest)
    given = [name for name in state if not is_noise(name)]
    check_names(learner, given)
    tree: dict[str, Any] = {}
    for name in given:
        *path, leaf = _renamed(name, _SORREL.get(learner, {})).split(".")
        node = tree
        for module in path:
            node = node.setdefault(module, {})
        ours = "scale" if leaf == "weight" and path[-1].startswith("norm_") else _KERNELS.get(leaf, leaf)
        values = np.asarray(state[name], np.float32)
        node[ours] = np.array(values.transpose(_axes(ours, values.ndim, to_torch=False)), order="C")
    return tree


def to_state(learner: str, params: Mapping[str, Any], torso: TorsoNames | None = None) -> dict[str, np.ndarray]:
    """Convert the parameters of one network to a state_dict of arrays; arguments as for `to_tree`."""
    if torso is not None:
        own = torso.to_torch(params.get("torso", {}))
        return {f"{_TORSO}{name}": values for name, values in own.items()} | to_state(learner, _without_torso(params))
    leaves = {
        name: np.array(np.asarray(leaf, np.float32).transpose(axes), order="C")
        for name, axes, leaf in _named_leaves(learner, params)
    }
    check_names(learner, leaves)
    return leaves


def state_shapes(
    learner: str, params: Mapping[str, Any], torso: TorsoNames | None = None
) -> dict[str, tuple[int, ...]]:
    """The shapes that `to_state` would return; leaves only need a `shape`."""
    if torso is not None:
        own = {f"{_TORSO}{name}": shape for name, shape in torso.shapes().items()}
        return own | state_shapes(learner, _without_torso(params))
    return {name: tuple(leaf.shape[axis] for axis in axes) for name, axes, leaf in _named_leaves(learner, params)}


def with_noise(learner: str, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the noise buffers that sorrel's class expects next to the parameters; they start as zeros."""
    if learner != "iqn":
        return dict(state)
    buffers = {
        name.replace(sigma, epsilon): np.zeros_like(values)
        for name, values in state.items()
        for epsilon, sigma in _NOISE.items()
        if name.endswith(f".{sigma}")
    }
    return {**state, **buffers}


def is_noise(name: str) -> bool:
    """Whether a state_dict entry is the noise of a forward call, not a parameter."""
    return name.rpartition(".")[2] in _NOISE


def check_names(learner: str, given: Iterable[str]) -> None:
    """Raise a `UsageError` if these names are not those of a `learner` state_dict."""
    if learner not in LEARNERS:
        raise unknown("learner", learner, LEARNERS)
    names = set(given)
    if learner in SORREL_NAMES:
        expected = set(SORREL_NAMES[learner])
        missing, extra = expected - names, names - expected
    elif learner == "value":
        needed = {f"head.{layer}.{leaf}" for layer in ("hidden", "advantage") for leaf in ("weight", "bias")}
        missing, extra = needed - names, {name for name in names if not _VALUE_NAMES.fullmatch(name)}
    else:
        missing = _flow_needs(names) - names
        extra = {name for name in names if not _FLOW_NAMES.fullmatch(name)}
    if missing or extra:
        raise UsageError(
            f"This state_dict is not of the kind `{learner}`: missing {some(missing)}, unexpected {some(extra)}."
        )


def some(names: Iterable[str]) -> str:
    """List a few names, quoted by `repr` so that no control character reaches the terminal."""
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"{[name[:80] for name in ordered[:MOST_NAMED]]}{more}" if ordered else "nothing"


def _without_torso(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in params.items() if name != "torso"}


def _named_leaves(
    learner: str, params: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """PyTorch's name and axis order of every leaf."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _named_leaves(learner, value, f"{prefix}{name}.")
        else:
            full = prefix + _WEIGHTS.get(name, name)
            axes = _axes(name, len(np.shape(value)), to_torch=True)
            yield _renamed(full, _OURS.get(learner, {})), axes, value


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """A parameter's name with its module's name replaced."""
    module, _, leaf = name.rpartition(".")
    return f"{names[module]}.{leaf}" if module in names else name


def _flow_needs(names: set[str]) -> set[str]:
    """The names that a flow network with these heads and this kind of trunk must have."""
    heads = {"forward"} | {head for head in ("backward", "flow") if f"{head}_head.weight" in names}
    separate = any(name.startswith("forward_trunk.") for name in names)
    trunks = {f"{head}_trunk" for head in heads} if separate else {"trunk"}
    transformer = any(name.endswith("trunk.first") for name in names)
    layers = {f"{trunk}.{name}" for trunk in trunks for name in ("rows", "first" if transformer else "bias")}
    return layers | {f"{head}_head.{name}" for head in heads for name in ("weight", "bias")}


def _axes(ours: str, rank: int, to_torch: bool) -> tuple[int, ...]:
    """The permutation of axes that converts the parameter called `ours` in JAX."""
    if ours not in _KERNELS.values():
        return tuple(range(rank))
    if rank == 4:  # a convolution's
        return (3, 2, 0, 1) if to_torch else (2, 3, 1, 0)
    return tuple(reversed(range(rank)))
