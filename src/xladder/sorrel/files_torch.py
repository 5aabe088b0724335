"""The file of one agent as sorrel's value models save and load it: `local`, `target` and `optim`, Adam's state.

Files are read as data only (`bridge.read_content`), and everything in them is checked before it is used.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from xladder import bridge, parameters
from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.parameters import SORREL_NAMES, some

PARTS = ("local", "target", "optim")
# What sorrel leaves at PyTorch's defaults; an agent that learned otherwise cannot be continued here.
ADAM = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "maximize": False}
MOMENTS = ("exp_avg", "exp_avg_sq")

Shapes = Mapping[str, tuple[int, ...]]


class SavedAgent(NamedTuple):
    """What a file holds, as NumPy arrays in the layout of JAX."""

    params: Params
    target: Params
    mu: Params
    """Adam's first moments."""
    nu: Params
    """Adam's second moments."""
    steps: int
    """Adam's steps so far."""
    lr: float
    """Adam's learning rate."""


def is_agent_file(path: Path) -> bool:
    """Whether a file of PyTorch's holds a whole agent, as sorrel saves it."""
    return set(PARTS) <= set(bridge.read_content(path, device="meta"))


def read(kind: str, path: str | Path, shapes: Shapes) -> SavedAgent:
    """Read an agent.

    Args:
        kind: `iqn` or `dqn`.
        path: The file.
        shapes: The parameters' shapes by sorrel's names. Other ones raise a `UsageError`.
    """
    path = Path(path)
    content = bridge.read_content(path)
    if missing := [part for part in PARTS if part not in content]:
        raise UsageError(f"`{path}` is not an agent saved by sorrel: it has no {' and no '.join(map(repr, missing))}.")
    local, target = (_network(content[part], part, path, shapes) for part in PARTS[:2])
    lr, steps, moments = _adam(content["optim"], path, shapes)
    params, target_params, mu, nu = (parameters.to_tree(kind, state) for state in (local, target, *moments))
    return SavedAgent(params, target_params, mu, nu, steps, lr)


def write(kind: str, path: str | Path, agent: SavedAgent) -> None:
    """Write an agent to a file that sorrel's `load` takes; folders are made, and an older file is replaced."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_bytes(kind, agent))


def to_bytes(kind: str, agent: SavedAgent) -> bytes:
    """The content of a file."""
    states = [parameters.to_state(kind, tree) for tree in agent[:4]]
    names = SORREL_NAMES[kind]
    local, target, *moments = ({name: torch.from_numpy(state[name]) for name in names} for state in states)
    weights = [torch.nn.Parameter(local[name]) for name in names]
    adam = torch.optim.Adam(weights, lr=agent.lr)
    if agent.steps:  # before its first step PyTorch's Adam has no state
        for name, weight in zip(names, weights, strict=True):
            held = {key: moment[name] for key, moment in zip(MOMENTS, moments, strict=True)}
            adam.state[weight] = {"step": torch.tensor(float(agent.steps)), **held}
    file = io.BytesIO()
    networks = {"local": _with_noise(kind, local), "target": _with_noise(kind, target)}
    torch.save({**networks, "optim": adam.state_dict()}, file)
    return file.getvalue()


def _with_noise(kind: str, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Add the noise that sorrel's class expects in a state_dict, and never uses: zeros."""
    whole = parameters.with_noise(kind, {name: tensor.numpy() for name, tensor in state.items()})
    return {name: state[name] if name in state else torch.from_numpy(array) for name, array in whole.items()}


def _network(content: Any, part: str, path: Path, shapes: Shapes) -> dict[str, np.ndarray]:
    """The parameters of one network, checked."""
    state = bridge.state_of(content, path)
    given = {name: tensor for name, tensor in state.items() if not parameters.is_noise(name)}
    missing, extra = shapes.keys() - given.keys(), given.keys() - shapes.keys()
    if missing or extra:
        raise UsageError(
            f"`{path}` is a file of another model: its `{part}` lacks {some(missing)} and has {some(extra)} on top."
        )
    return {name: _array(given[name], f"{part}: {name}", path, shapes[name]) for name in shapes}


def _adam(content: Any, path: Path, shapes: Shapes) -> tuple[float, int, list[dict[str, np.ndarray]]]:
    """Adam's learning rate, steps, and first and second moments by name."""
    try:
        (group,) = content["param_groups"]
        rows, lr = content["state"], float(group["lr"])
        settings = {name: group.get(name, usual) for name, usual in ADAM.items()}
        places = list(group["params"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"`{path}` holds something else than Adam's state in `optim`.") from None
    if not (math.isfinite(lr) and lr > 0) or places != list(range(len(shapes))):
        raise UsageError(
            f"`{path}` holds the optimiser of another model: {len(places)} parameters, learning rate {lr}."
        )
    for name, usual in ADAM.items():
        found = tuple(settings[name]) if isinstance(settings[name], list) else settings[name]
        if found != usual:
            raise UsageError(f"`{path}` was trained with Adam's `{name}` {found}, but only {usual} can be continued.")
    if not rows:
        return lr, 0, [{name: np.zeros(shape, np.float32) for name, shape in shapes.items()} for _ in MOMENTS]
    try:
        steps = {float(rows[i]["step"]) for i in places}
        held = [[rows[i][moment] for i in places] for moment in MOMENTS]
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise UsageError(f"`{path}` holds something else than Adam's state in `optim`.") from None
    count = steps.pop()
    if steps or count != int(count) or not 0 < count < 2**31:
        raise UsageError(f"`{path}` holds parameters that were updated different numbers of times.")
    moments = [
        {
            name: _array(tensor, f"optim: {name}", path, shape)
            for tensor, (name, shape) in zip(row, shapes.items(), strict=True)
        }
        for row in held
    ]
    return lr, int(count), moments


def _array(tensor: Any, where: str, path: Path, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
        raise UsageError(f"`{path}` holds no float32 numbers in {where!r}.")
    if tuple(tensor.shape) != shape:
        raise UsageError(
            f"`{path}` has {where!r} with shape {list(tensor.shape)}, but this model needs {list(shape)}: "
            "it is a file of another model."
        )
    array: np.ndarray = tensor.numpy()
    if not np.isfinite(array).all():
        raise UsageError(f"`{path}` holds nan or infinity in {where!r}.")
    return array
