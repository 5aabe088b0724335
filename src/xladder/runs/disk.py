"""Durable writes: sync files and folders to disk; JSON files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(to_json(data), encoding="utf-8", errors="backslashreplace")
    replace_synced(draft, path)


def to_json(data: Any) -> str:
    """Format indented JSON; nan and infinity become null."""
    return json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
