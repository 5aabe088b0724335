"""What has to be equal on all hosts whose envs are one run's: the world, its spaces and the versions behind it."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from xladder.worlds import names
from xladder.worlds.envs import EnvSpec

PACKAGES = {"atari": ("ale-py", "gymnasium"), "gym": ("gymnasium",), "zoo": ("pettingzoo", "sorrel")}


def identity(world: Any) -> dict[str, str]:
    """Describe a configured world on the host by what an equal one would share."""
    spec: EnvSpec = world.spec()
    versions = {f"version of {name}": _version(name) for name in PACKAGES.get(names.locate(world.name).source, ())}
    return {
        "world": world.name,
        "frames": f"{spec.dtype} {list(spec.shape)}",
        "actions": str(spec.actions),
        "agents": ", ".join(spec.agents),
        "parts": str([[name, list(shape), dtype] for name, shape, dtype in spec.fields]),
        **versions,
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # such as one on the path that was never installed
        return "unknown"
