"""Import this before sorrel where IPython is missing: sorrel imports it for its notebooks, which nothing here uses."""

import sys
from importlib.util import find_spec
from types import ModuleType

if find_spec("IPython") is None:
    for name in ("IPython", "IPython.display"):
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["IPython.display"].clear_output = sys.modules["IPython.display"].display = print
