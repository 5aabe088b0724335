"""Parity: networks, learners and worlds compared with their PyTorch and NumPy twins, level by level, on the same draws.

`check` compares any PyTorch module with its Flax twin. It is imported on first use, and JAX and PyTorch with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xladder.parity.modules import check
    from xladder.parity.report import ParityError, Report

__all__ = ["ParityError", "Report", "check"]

_HOMES = {
    "ParityError": "xladder.parity.report",
    "Report": "xladder.parity.report",
    "check": "xladder.parity.modules",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'xladder.parity' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
