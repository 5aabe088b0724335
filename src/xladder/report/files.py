"""Read files of a run directory that may be hostile, damaged or in use.

Only regular files inside the folder are read: no links, no pipes, nothing larger than a limit. A run directory may come
from somebody else, and a report must not carry other files of this machine.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from xladder.errors import DamagedRun
from xladder.runs.reading import parse_json

LARGEST_JSON = 1 << 20
LARGEST_METRICS = 1 << 29
LARGEST_AGENTS = 1 << 31
TAIL = 1 << 16  # bytes of log.txt


def open_inside(folder: Path, name: str, largest: int) -> int | None:
    """Open a regular file of the folder for reading. Returns a file descriptor; None if there is no such file.

    Raises:
        DamagedRun: It is a link, lies behind one, is not a regular file, is too large or cannot be read.
    """
    *parents, last = Path(name).parts
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for parent in parents:
                inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
                os.close(here)
                here = inner
            # Opening a pipe would wait for a writer.
            file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
        finally:
            os.close(here)
    except FileNotFoundError:
        return None
    except OSError as error:
        if (folder / name).is_symlink() or any((folder / parent).is_symlink() for parent in parents):
            raise DamagedRun(f"`{name}` is a link or lies behind one, and only files of the run are read.") from None
        raise DamagedRun(f"`{name}` cannot be read: {error.strerror or error}.") from None
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        raise DamagedRun(f"`{name}` is not a regular file.")
    if found.st_size > largest:
        os.close(file)
        raise DamagedRun(f"`{name}` has {found.st_size:,} bytes, and at most {largest:,} are read.")
    return file


def stamp(folder: Path, name: str) -> tuple[int, int, int] | None:
    """What changes when a file does: inode, size and time; None if there is no such file. Follows no links."""
    try:
        found = os.stat(folder / name, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read_bytes(folder: Path, name: str, largest: int, start: int = 0, most: int | None = None) -> bytes | None:
    """The contents of a file from `start` on, at most `most` bytes; None if there is no such file."""
    file = open_inside(folder, name, largest)
    if file is None:
        return None
    try:
        with os.fdopen(file, "rb") as opened:
            opened.seek(start)
            return opened.read(largest if most is None else most)
    except OSError as error:
        raise DamagedRun(f"`{name}` cannot be read: {error.strerror or error}.") from None


def read_json(folder: Path, name: str) -> Any:
    """The contents of a JSON file; None if there is no such file."""
    text = read_bytes(folder, name, LARGEST_JSON)
    if text is None:
        return None
    try:
        return parse_json(text)
    except ValueError as error:
        raise DamagedRun(f"`{name}` is not valid JSON ({type(error).__name__}).") from None


def read_tail(folder: Path, name: str, lines: int) -> list[str]:
    """The last lines of a text file of any size; none if there is no such file."""
    file = open_inside(folder, name, 1 << 62)
    if file is None:
        return []
    with os.fdopen(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        opened.seek(max(0, size - TAIL))
        text = opened.read(TAIL).decode("utf-8", errors="replace")
    found = text.splitlines()
    return (found[1:] if size > TAIL else found)[-lines:]


def check_inside(folder: Path, name: str, largest: int) -> bool:
    """Whether there is such a file; a `DamagedRun` if it must not be read."""
    file = open_inside(folder, name, largest)
    if file is None:
        return False
    os.close(file)
    return True
