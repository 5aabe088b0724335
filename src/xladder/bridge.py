"""Parameters across the border: a PyTorch state_dict ↔ the JAX pytree of the same network, by name, exactly.

A table per learner pairs the names. Kernels are transposed on the way (PyTorch keeps [out, in], Flax [in, out]);
nothing is rounded, so a round trip returns the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xladder.errors import UsageError, missing_extra

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

_PLAIN = {"weight": "kernel", "bias": "bias"}
_NOISY = {**_PLAIN, "sigma_weight": "sigma_kernel", "sigma_bias": "sigma_bias"}

# learner → PyTorch module → its parameters' names on both sides
NAMES: dict[str, dict[str, dict[str, str]]] = {
    "iqn": {
        "head1": _PLAIN,
        "cos_embedding": _PLAIN,
        "ff_1": _NOISY,
        "advantage": _NOISY,
        "value": _NOISY,
    },
}
# Entries of foreign state_dicts that are not parameters: the noise of the last forward call.
_IGNORED = ("epsilon_weight", "epsilon_bias")


def to_jax(learner: str, state_dict: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """A PyTorch state_dict as the parameters that `net.apply` takes (NumPy arrays, float32)."""
    table = NAMES[learner]
    expected = {f"{module}.{name}" for module, names in table.items() for name in names}
    given = {name for name in state_dict if name.rpartition(".")[2] not in _IGNORED}
    if given != expected:
        missing, extra = sorted(expected - given), sorted(given - expected)
        raise UsageError(
            f"This state_dict is not one of `{learner}`'s: it lacks {missing or 'nothing'} "
            f"and has {extra or 'nothing'} besides."
        )
    return {
        module: {ours: _turn(theirs, state_dict[f"{module}.{theirs}"]) for theirs, ours in names.items()}
        for module, names in table.items()
    }


def to_torch(learner: str, params: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """JAX parameters of one agent as a PyTorch state_dict."""
    return {
        f"{module}.{theirs}": torch.from_numpy(_turn(theirs, params[module][ours]))
        for module, names in NAMES[learner].items()
        for theirs, ours in names.items()
    }


def load_file(learner: str, path: str | Path) -> dict[str, dict[str, dict[str, np.ndarray]]]:
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


def _turn(name: str, values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    values = np.asarray(values, np.float32)
    return np.array(values.T if name.endswith("weight") else values, order="C")
