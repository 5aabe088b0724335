"""xladder: train the same learner on a ladder of rungs, from PyTorch to one XLA program.

Public names are resolved on first use, so that `import xladder` loads neither JAX nor PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xladder.registry import RUNGS, WORKLOADS
    from xladder.results import Plan, Result
    from xladder.runs.compare import compare
    from xladder.runs.directory import evaluate, load
    from xladder.training import plan, train

__version__ = "0.1.0"
__all__ = ["RUNGS", "WORKLOADS", "Plan", "Result", "compare", "evaluate", "load", "plan", "train"]

_HOMES = {
    "RUNGS": "xladder.registry",
    "WORKLOADS": "xladder.registry",
    "Plan": "xladder.results",
    "Result": "xladder.results",
    "compare": "xladder.runs.compare",
    "evaluate": "xladder.runs.directory",
    "load": "xladder.runs.directory",
    "plan": "xladder.training",
    "train": "xladder.training",
}
_MODULES = ("bridge", "hybrid", "parity")  # for networks of one's own


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"xladder.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'xladder' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
