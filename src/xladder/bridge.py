"""Parameters across the border: a PyTorch state_dict ↔ the JAX pytree of the same network, by name, exactly.

Modules bear the same names on both sides, and the names are checked; `iqn` stands for sorrel's own names of the
treasure hunt's network. Kernels are transposed on the way (PyTorch keeps [out, in] and [out, in, row, column], Flax
[in, out] and [row, column, in, out]); nothing is rounded, so a round trip returns the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xladder.errors import UsageError, missing_extra, unknown

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

# sorrel's names for the parts of the treasure hunt's network, and ours.
_SORREL = {
    "head1": "torso",
    "cos_embedding": "head.embedding",
    "ff_1": "head.hidden",
    "advantage": "head.advantage",
    "value": "head.value",
}
_IQN_NAMES = {
    f"{module}.{name}"
    for module in _SORREL
    for name in ("weight", "bias", "sigma_weight", "sigma_bias")
    if not (name.startswith("sigma") and module in ("head1", "cos_embedding"))
}
# Heads and layers are a matter of settings, so a pattern stands for the names that there may be.
_FLOW_NAMES = re.compile(
    r"log_z|((forward_|backward_|flow_)?trunk\.(rows|bias|hidden_\d+\.(weight|bias)))"
    r"|((forward|backward|flow)_head\.(weight|bias))"
)
_VALUE_NAMES = re.compile(
    r"torso\.((hidden|conv|norm)_\d+\.)?(weight|bias)"
    r"|head\.(embedding|hidden|advantage|value|value_hidden)\.(sigma_)?(weight|bias)"
)
LEARNERS = ("iqn", "value", "gflownet")
# PyTorch's names of parameters, and ours; a layer norm's weight is no kernel.
_KERNELS = {"weight": "kernel", "sigma_weight": "sigma_kernel"}
_WEIGHTS = {ours: theirs for theirs, ours in _KERNELS.items()} | {"scale": "weight"}
# Entries of foreign state_dicts that are not parameters: the noise of the last forward call.
_IGNORED = ("epsilon_weight", "epsilon_bias")


def to_jax(learner: str, state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """A PyTorch state_dict as the parameters that `net.apply` takes (NumPy arrays, float32)."""
    given = [name for name in state_dict if name.rpartition(".")[2] not in _IGNORED]
    _check_names(learner, given)
    tree: dict[str, Any] = {}
    for name in given:
        *path, leaf = (_renamed(name, _SORREL) if learner == "iqn" else name).split(".")
        node = tree
        for module in path:
            node = node.setdefault(module, {})
        ours = "scale" if leaf == "weight" and path[-1].startswith("norm_") else _KERNELS.get(leaf, leaf)
        node[ours] = _turn(ours in _WEIGHTS and ours != "scale", state_dict[name], to_torch=False)
    return tree


def to_torch(learner: str, params: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """JAX parameters of one agent as a PyTorch state_dict."""
    leaves = dict(_named_leaves(params))
    if learner == "iqn":
        leaves = {_renamed(name, {ours: theirs for theirs, ours in _SORREL.items()}): x for name, x in leaves.items()}
    _check_names(learner, leaves)
    return leaves


def load_file(learner: str, path: str | Path) -> dict[str, Any]:
    """Read a `.pt` file: a state_dict, or sorrel's dict of `local`, `target` and `optim`.

    Returns `{"params": …}`, with `"target"` beside it where the file has one. Only tensors and plain containers
    are accepted, so a file cannot run code.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged or hostile file can make the reader raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"`{path}` is not a PyTorch file of plain tensors: {reason}") from None
    if not isinstance(content, dict):
        raise UsageError(f"`{path}` holds a {type(content).__name__}, not a state_dict.")
    if "local" in content:
        found = {"params": to_jax(learner, content["local"])}
        if "target" in content:
            found["target"] = to_jax(learner, content["target"])
        return found
    return {"params": to_jax(learner, content)}


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """A parameter's name with its module's name replaced."""
    module, _, leaf = name.rpartition(".")
    return f"{names.get(module, module)}.{leaf}"


def _named_leaves(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from _named_leaves(value, f"{prefix}{name}.")
        else:
            turned = _turn(name in _WEIGHTS and name != "scale", value, to_torch=True)
            yield prefix + _WEIGHTS.get(name, name), torch.from_numpy(turned)


def _check_names(learner: str, given: Iterable[str]) -> None:
    if learner not in LEARNERS:
        raise unknown("learner", learner, LEARNERS)
    names = set(given)
    if learner == "iqn":
        missing, extra = _IQN_NAMES - names, names - _IQN_NAMES
    elif learner == "value":
        needed = {f"head.{layer}.{leaf}" for layer in ("hidden", "advantage") for leaf in ("weight", "bias")}
        missing, extra = needed - names, {name for name in names if not _VALUE_NAMES.fullmatch(name)}
    else:
        missing = _flow_needs(names) - names
        extra = {name for name in names if not _FLOW_NAMES.fullmatch(name)}
    if missing or extra:
        raise UsageError(
            f"This state_dict is not one of `{learner}`'s: it lacks {sorted(missing) or 'nothing'} "
            f"and has {sorted(extra) or 'nothing'} besides."
        )


def _flow_needs(names: set[str]) -> set[str]:
    """The names that a flow network has at least, given the heads and the kind of trunk that are there."""
    heads = {"forward"} | {head for head in ("backward", "flow") if f"{head}_head.weight" in names}
    separate = any(name.startswith("forward_trunk.") for name in names)
    trunks = {f"{head}_trunk" for head in heads} if separate else {"trunk"}
    layers = {f"{trunk}.{name}" for trunk in trunks for name in ("rows", "bias")}
    return layers | {f"{head}_head.{name}" for head in heads for name in ("weight", "bias")}


def _turn(kernel: bool, values: Any, to_torch: bool) -> np.ndarray:
    """Values as float32; those of a kernel in the other side's order."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    values = np.asarray(values, np.float32)
    if kernel:
        convolution = (3, 2, 0, 1) if to_torch else (2, 3, 1, 0)
        values = values.transpose(convolution if values.ndim == 4 else None)
    return np.array(values, order="C")
