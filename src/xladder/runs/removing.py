"""Remove run directories, and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xladder.errors import ResourceError, UsageError
from xladder.runs.listing import SWEEP, RunInfo, read_config, read_info
from xladder.runs.locks import Lock
from xladder.runs.reading import Unreadable, is_regular

LAST = ("config.json", "lock")  # what is left of an interrupted removal is still a run directory
REMAINS = frozenset(LAST)


@dataclass(frozen=True)
class Removal:
    """A run that can be removed."""

    run: RunInfo
    size: int
    """Bytes that are freed."""


def find_removals(paths: Sequence[Path]) -> list[Removal]:
    """Check that all these are run directories that can be removed; nothing is touched.

    Raises:
        UsageError: One of them is not a run, is a link or has links in it, is being written, or holds other runs.
    """
    return [_check(path) for path in dict.fromkeys(paths)]


def remove(removal: Removal) -> None:
    """Remove a run directory; its lock is held meanwhile, so that nobody resumes it."""
    folder = removal.run.path
    try:
        lock = Lock(folder / "lock")
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: (entry.name in LAST, entry.name))
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
        finally:
            lock.release()
        folder.rmdir()
    except OSError as error:
        raise ResourceError(f"`{folder}` cannot be removed completely: {error.strerror or error}.") from None


def _check(folder: Path) -> Removal:
    try:
        if folder.is_symlink():
            raise UsageError(f"`{folder}` is a link: name the run directory itself.")
        if not folder.is_dir():
            what = f"`{folder}` is a file, not a run directory" if folder.exists() else f"There is no folder `{folder}`"
            raise UsageError(f"{what}.")
        entries = {entry.name for entry in os.scandir(folder)}
        if not _is_run(folder, entries):
            raise UsageError(f"`{folder}` is not a run directory, and only these are removed.")
        run = read_info(folder, str(folder))
        if run.state == "running":
            raise UsageError(f"`{folder}` is being written by a run: stop it first.")
        return Removal(run, _size(folder, folder.lstat().st_dev, is_regular(folder / SWEEP)))
    except OSError as error:
        raise UsageError(f"`{folder}` cannot be read: {error.strerror or error}.") from None


def _is_run(folder: Path, entries: set[str]) -> bool:
    """Whether a folder is a run directory: it has a config, or is one whose config is damaged or gone."""
    try:
        if is_regular(folder / SWEEP):
            return True
        read_config(folder)
        return True
    except Unreadable:
        # The lock is made first and, of an interrupted removal, is left last.
        return is_regular(folder / "lock") and (entries <= REMAINS or {"checkpoints", "media"} <= entries)


def _size(folder: Path, device: int, sweep: bool) -> int:
    """Size of all files in a folder, which must not lead elsewhere; that of a sweep holds runs."""
    total = 0
    for entry in list(os.scandir(folder)):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise UsageError(f"`{entry.path}` is a link, and a run writes none: remove it first.")
        if stat.S_ISDIR(status.st_mode):
            if status.st_dev != device:
                raise UsageError(f"`{entry.path}` is on another file system: unmount it first.")
            if is_regular(Path(entry.path, "config.json")) and not sweep:
                raise UsageError(f"`{folder}` has another run in it, `{entry.path}`: remove that one first.")
            total += _size(Path(entry.path), device, sweep)
        else:
            total += status.st_size
    return total
