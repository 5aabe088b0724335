"""PyTorch's side of `optimisers.py`."""

from __future__ import annotations

from typing import Any

import torch

from xladder.errors import UsageError
from xladder.twins.calls import first_line
from xladder.twins.optimisers import HOW, named

_TORCH: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


def in_torch(optimiser: Any, module: torch.nn.Module) -> torch.optim.Optimizer:
    """PyTorch's optimiser for the parameters of a module: by name, or made by the first of a pair."""
    params = [param for param in module.parameters() if param.requires_grad]
    found = named(optimiser)
    if found:
        return _TORCH[found[0]](params, lr=found[1])
    pair = isinstance(optimiser, tuple | list) and len(optimiser) == 2 and not hasattr(optimiser, "update")
    if not (pair and callable(optimiser[0])):
        raise UsageError(f"`optimiser` is a {type(optimiser).__name__}, which is not an optimiser of both sides. {HOW}")
    try:
        made = optimiser[0](params)
    except Exception as error:
        raise UsageError(
            f"PyTorch's optimiser cannot be made from a list of parameters: {first_line(error)} "
            "Give a function of them, such as `lambda params: torch.optim.SGD(params, 0.1, momentum=0.9)`."
        ) from error
    if not isinstance(made, torch.optim.Optimizer):
        raise UsageError(f"The first of the pair makes a {type(made).__name__}, not a PyTorch optimiser. {HOW}")
    return made
