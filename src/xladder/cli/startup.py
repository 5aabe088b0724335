"""Set up JAX for the command line: the visible devices and a cache of compiled programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from xladder.progress import SHORTEST_COMPILE as SHORTEST_COMPILE


def prepare(device: str | None, cached: bool = True) -> None:
    """Configure JAX; call before JAX is imported. `cached`: whether to use the cache of compiled programs."""
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # the user's own torso may have imported JAX already
    jax.config.update("jax_enable_x64", False)  # the programs are written for 32 bits, whatever JAX_ENABLE_X64 says
    folder = cache_folder()
    if cached and folder and not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        # Compiled programs are trusted code, so the folder belongs to the user and is closed to others.
        jax.config.update("jax_compilation_cache_dir", str(folder / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder() -> Path | None:
    """The folder for compiled programs; None if there is no suitable one."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if home.startswith("~"):
        return None
    folder = Path(home) / "xladder"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            return None
        folder.chmod(0o700)
    except OSError:
        return None
    return folder


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
        data = json.loads((folder / "compile-seconds.json").read_text()) if folder else {}
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in data.items() if isinstance(v, float)} if isinstance(data, dict) else {}
