"""Folders that have to go when this process does, however it ends."""

from __future__ import annotations

import shutil

_folders: set[str] = set()


def add(folder: str) -> None:
    """This one will have to go."""
    _folders.add(folder)


def remove(folder: str) -> None:
    """Remove a folder now, and forget it."""
    shutil.rmtree(folder, ignore_errors=True)
    _folders.discard(folder)


def remove_all() -> None:
    """All of them go: the process ends at once."""
    for folder in list(_folders):
        remove(folder)
