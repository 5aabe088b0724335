"""Set up JAX for the command line: the visible devices and a cache of compiled programs."""

from __future__ import annotations

import json
import math
import os

from xladder import program_cache
from xladder.program_cache import cache_folder as cache_folder
from xladder.progress import SHORTEST_COMPILE as SHORTEST_COMPILE
from xladder.runs.reading import Unreadable, read_json


def prepare(device: str | None, cached: bool = True) -> None:
    """Configure JAX; call before JAX is imported. `cached`: whether to use the cache of compiled programs."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # the user's own torso may have imported JAX already
    jax.config.update("jax_enable_x64", False)  # the programs are written for 32 bits, whatever JAX_ENABLE_X64 says
    if cached:
        program_cache.enable()


def last_compile(name: str) -> float | None:
    """Seconds that compiling took last time; None if unknown."""
    return _compile_times().get(name)


def remember_compile(name: str, seconds: float) -> None:
    """Store how long compiling took, to show it next time."""
    folder = cache_folder()
    if folder:
        try:
            (folder / "compile-seconds.json").write_text(json.dumps(_compile_times() | {name: round(seconds, 1)}))
        except OSError:
            return


def _compile_times() -> dict[str, float]:
    folder = cache_folder()
    try:
        data = read_json(folder / "compile-seconds.json") if folder else {}
    except Unreadable:  # damaged: it is written anew
        return {}
    return {k: v for k, v in data.items() if isinstance(v, float) and math.isfinite(v)}
