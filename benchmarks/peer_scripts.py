"""A peer's script as a module, without what it would log with."""

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import jax

SILENCED = ("wandb", "hydra", "omegaconf")


def load(file: Path) -> ModuleType:
    """The peer's file as a module; nothing of it changes but that it cannot log."""
    for name in SILENCED:
        if find_spec(name) is None:
            sys.modules[name] = ModuleType(name)
    if not hasattr(sys.modules.get("hydra"), "main"):
        sys.modules.setdefault("hydra", ModuleType("hydra")).main = lambda **_: lambda function: function
    if not hasattr(sys.modules.get("omegaconf"), "OmegaConf"):
        sys.modules.setdefault("omegaconf", ModuleType("omegaconf")).OmegaConf = None
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map
    spec = spec_from_file_location(f"peer_{file.stem}", file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
