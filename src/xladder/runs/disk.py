"""Durable writes: sync files and folders to disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_synced(draft: Path, path: Path) -> None:
    """Sync a draft to disk, rename it to `path`, and sync the rename."""
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)
