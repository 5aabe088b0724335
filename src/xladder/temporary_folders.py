"""Temporary folders that are removed when this process ends, however it ends.

A process that is killed cannot remove its folder; the next one does. Each folder has a file that its process holds a
lock on, so that whoever gets the lock knows that nobody needs the folder any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

OWNER = "owner"
_folders: dict[str, int] = {}
"""Folder → file descriptor of the lock."""


def make(prefix: str) -> str:
    """Make a folder that only this user can read, and remove those of the same prefix whose processes were killed."""
    remove_abandoned(prefix)
    folder = tempfile.mkdtemp(prefix=prefix)
    # Under another name until it is locked, so that no other process takes it for abandoned.
    file = os.open(f"{folder}/{OWNER}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # a file system without locks: the folder will never count as abandoned
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(f"{folder}/{OWNER}.new", f"{folder}/{OWNER}")
    _folders[folder] = file
    return folder


def remove_abandoned(prefix: str) -> None:
    """Remove this user's folders whose processes have ended without doing so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            file = os.open(folder / OWNER, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)


def remove(folder: str) -> None:
    """Remove a folder now."""
    shutil.rmtree(folder, ignore_errors=True)
    file = _folders.pop(folder, None)
    if file is not None:
        os.close(file)


def remove_all() -> None:
    """Remove all folders that were made here, because the process is about to end."""
    for folder in list(_folders):
        remove(folder)
