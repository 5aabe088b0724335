"""Import a library without what it only draws with.

gymnax imports pyplot and seaborn, and so pandas and SciPy's statistics, for functions that render an env: that takes
longer than compiling a small world. Here such modules are loaded when something is first read from them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

DRAWING = ("matplotlib.pyplot", "seaborn")


class LateModule(ModuleType):
    """Stands for a module that is imported when one of its attributes is read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def without_drawing() -> Iterator[None]:
    """While this is open, libraries to draw with are imported late; afterwards an import means the library again."""
    late = {name: LateModule(name) for name in DRAWING if name not in sys.modules}
    sys.modules.update(late)
    try:
        yield
    finally:
        for name, module in late.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
