"""What has to have reached the disk before it counts."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_synced(draft: Path, path: Path) -> None:
    """Give a file its name once it has reached the disk, and have that reach it, too."""
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)
