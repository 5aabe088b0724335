"""Read files of a run directory that may be damaged or hostile: regular files only, no links, and not too much."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 1 << 20  # of a JSON file: more was not written by a run
MOST_TABLE_BYTES = 1 << 32  # of a table of metrics
MOST_ARRAY_BYTES = 1 << 36  # of a file of arrays, which is mapped and not read at once
DEEPEST = 64  # levels of JSON: a run's files have a few


class Unreadable(Exception):
    """A file of a run directory that cannot be used; the message is a clause that says why."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a regular file of moderate size."""
    try:
        found = parse_json(read_bytes(path, 0, MOST_BYTES + 1)[: MOST_BYTES + 1])
    except OSError as error:
        raise Unreadable(f"{path.name} {why(error)}") from None
    except ValueError:
        raise Unreadable(f"{path.name} is not valid JSON") from None
    if not isinstance(found, dict):
        raise Unreadable(f"{path.name} is not a JSON object")
    return found


def parse_json(text: bytes) -> Any:
    """Parse JSON; a `ValueError` if it is not valid, or so deep that a function which descends into it could fail."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return found
    raise ValueError("it is nested too deeply")


def inside(folder: Path, name: str, most: int) -> Path:
    """The path of a run's file, which is regular, not behind a link, and no larger than `most` bytes."""
    path = folder
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            raise Unreadable(f"{path.relative_to(folder)} is a link")
    try:
        status = os.lstat(path)
    except OSError as error:
        raise Unreadable(f"{name} {why(error)}") from None
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"{name} is not a file")
    if status.st_size > most:
        raise Unreadable(f"{name} has {status.st_size / 2**30:,.1f} GiB, which is more than a run writes")
    return path


def links_below(folder: Path) -> Iterator[Path]:
    """All links in a folder and below it."""
    for place, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(place) / name).is_symlink())


def special_below(folder: Path) -> Iterator[Path]:
    """Whatever in a folder and below it is neither a file nor a folder nor a link, such as a pipe."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place) / name
            if not is_regular(path) and not path.is_symlink():
                yield path


def is_regular(path: Path) -> bool:
    """Whether a path is a file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read_bytes(path: Path, start: int, most: int) -> bytes:
    """Read from a regular file; a negative start counts from its end."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), most, max(0, start + size) if start < 0 else start)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; an `OSError` if it is a link, or a pipe, for whose writer one would wait."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is not a file", str(path))
    return os.fdopen(file, "rb")


def why(error: OSError) -> str:
    """Why a file cannot be read, after its name."""
    if error.errno == errno.ENOENT:
        return "is missing"
    if error.errno == errno.ELOOP:
        return "is a link"
    if error.errno == errno.EINVAL:
        return "is not a file"
    return f"cannot be read ({error.strerror or error})"
