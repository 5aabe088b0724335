"""Models for sorrel (https://pypi.org/project/sorrel) that learn in JAX, and what else goes between the two packages.

Use `JaxIQN` or `JaxDQN` where an experiment uses sorrel's `PyTorchIQN` or `PyTorchDQN`. Names are imported when they
are first used, because they need sorrel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xladder.sorrel.examples import example_env as example_env
    from xladder.sorrel.models import JaxDQN as JaxDQN
    from xladder.sorrel.models import JaxIQN as JaxIQN
    from xladder.sorrel.models import ThreadsafeJaxIQN as ThreadsafeJaxIQN
    from xladder.sorrel.together import Together as Together
    from xladder.sorrel.together import act_together as act_together
    from xladder.sorrel.wrapping import wrap as wrap

_MODULES = {
    "JaxDQN": "models",
    "JaxIQN": "models",
    "ThreadsafeJaxIQN": "models",
    "Together": "together",
    "act_together": "together",
    "example_env": "examples",
    "wrap": "wrapping",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module `xladder.sorrel` has no attribute `{name}`")
    from xladder.sorrel.installation import require_sorrel

    require_sorrel()
    return getattr(import_module(f"xladder.sorrel.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
