"""xladder beside sorrel. Names are imported on first use."""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from xladder.sorrel.wrapping import wrap

__all__ = ["wrap"]

_HOMES = {
    "wrap": "xladder.sorrel.wrapping",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'xladder.sorrel' has no attribute {name!r}")
    return getattr(_importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
