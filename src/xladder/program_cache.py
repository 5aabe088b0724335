"""The cache of compiled programs on disk, so that a second start does not compile again.

It is JAX's own cache: `JAX_COMPILATION_CACHE_DIR` names another folder, `JAX_ENABLE_COMPILATION_CACHE=0` switches it
off. Compiled programs are trusted code, so the folder belongs to the user and is closed to others.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_BYTES = 2 * 2**30
DAMAGED = re.compile("Error reading persistent compilation cache entry for '([^']+)'")
UNWRITTEN = re.compile("Error writing persistent compilation cache entry")
ENDINGS = ("-cache", "-atime")  # of JAX's files of a program
SHORTEST_SECONDS = 0.5  # programs that compile faster are not kept


def cache_folder() -> Path | None:
    """The user's folder for what xladder keeps; None if there is no suitable one."""
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
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def enable() -> None:
    """Let JAX keep compiled programs in the user's folder, unless it is told to keep them elsewhere, or none."""
    import jax

    if not _setting("jax_enable_compilation_cache"):
        return
    if place := _setting("jax_compilation_cache_dir"):
        forget_damaged(Path(place))
        return
    folder = cache_folder()
    if folder:
        prune(folder / "programs")
        forget_damaged(folder / "programs")
        jax.config.update("jax_compilation_cache_dir", str(folder / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_SECONDS)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def forget_damaged(folder: Path) -> None:
    """Remove a program when JAX finds that it cannot be read; the next start compiles, and keeps, it anew.

    JAX would warn of the same program at every start, because it never overwrites one.
    """
    show = warnings.showwarning
    if getattr(show, "watches", None) == folder:
        return

    def notice(message: Warning | str, *given: Any, **named: Any) -> None:
        if found := DAMAGED.match(str(message)):
            _remove_program(folder, found[1])
        elif not UNWRITTEN.match(str(message)):
            show(message, *given, **named)

    notice.watches = folder  # type: ignore[attr-defined]
    warnings.showwarning = notice


def _remove_program(folder: Path, name: str) -> None:
    """Remove what JAX has kept of a program, and nothing else: the folder may be the user's own."""
    for entry in _files(folder):
        if entry.name.startswith(name) and entry.name.endswith(ENDINGS):
            with suppress(OSError):  # another process may have removed it
                os.unlink(entry.path)


def prune(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove the programs that were not used for longest, until the rest takes at most so many bytes."""
    found = sorted(_files(folder), key=lambda entry: entry.stat().st_atime)
    excess = sum(entry.stat().st_size for entry in found) - most
    for entry in found:
        if excess <= 0:
            return
        excess -= entry.stat().st_size
        with suppress(OSError):  # another process may have removed it
            os.unlink(entry.path)


def describe() -> str:
    """Where compiled programs are kept, and how much there is of them."""
    place = _setting("jax_compilation_cache_dir")
    if not _setting("jax_enable_compilation_cache"):
        return "none: JAX_ENABLE_COMPILATION_CACHE is off"
    if not place:
        return "none: the user's cache folder is not writable"
    size = sum(entry.stat().st_size for entry in _files(Path(place)))
    return f"{place} ({size / 2**20:,.0f} MiB)"


def _setting(name: str) -> Any:
    import jax

    return getattr(jax.config, name, None)


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False) and entry.stat().st_size >= 0:
                    yield entry
