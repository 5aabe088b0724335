"""Temporary folders that are removed when this process ends, however it ends."""

from __future__ import annotations

import shutil

_folders: set[str] = set()


def add(folder: str) -> None:
    """Register a folder for removal when the process ends."""
    _folders.add(folder)


def remove(folder: str) -> None:
    """Remove a folder now and unregister it."""
    shutil.rmtree(folder, ignore_errors=True)
    _folders.discard(folder)


def remove_all() -> None:
    """Remove all registered folders, because the process is about to end."""
    for folder in list(_folders):
        remove(folder)
