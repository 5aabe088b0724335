"""Tables that settings name: checked before they are read, because a stranger may have named them."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from xladder import user_code
from xladder.errors import UsageError

MOST_BYTES = 2**28  # of a table, also once it is unpacked
MOST_ENTRIES = 2**22  # rows of a table
MOST_LINE = 2**16  # characters of a row

_recorded: ContextVar[Mapping[str, str] | None] = ContextVar("recorded", default=None)


@contextmanager
def only_recorded(digests: Mapping[str, str]) -> Iterator[None]:
    """Within this context, a table is read only if it has the recorded digest: SHA-256 by name, from a run's config.

    Whoever knows that digest knows the table, so a page about a stranger's run shows nothing of other files.
    """
    before = _recorded.set(digests)
    try:
        yield
    finally:
        _recorded.reset(before)


def check_recorded(path: str, flag: str) -> None:
    """Raise a `UsageError` within `only_recorded` if this is not the table that the run was made with."""
    recorded = _recorded.get()
    if path and recorded is not None and (not (now := user_code.digest(path)) or now != recorded.get(path)):
        raise UsageError(
            f"`--{flag}` is {path}, which is not, or not any more, the table that the run was made with: `xladder "
            "eval` reads it, a page does not."
        )


def find_table(path: str, flag: str) -> Path:
    """The path of a table; a `UsageError` unless it is a file of a size that can be read. A pipe would block."""
    file = Path(path).expanduser()
    if not user_code.is_table(path):  # its digest would not be recorded, and it could be any file
        raise UsageError(f"`--{flag}` is {path}, but a table is a file called *.csv or *.npz: rename it.")
    try:
        found = os.stat(file)
    except OSError as error:
        raise UsageError(f"`--{flag} {path}` cannot be read: {error.strerror or error}.") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"`--{flag}` is {path}, which is not a file.")
    size = found.st_size
    if file.suffix.lower() == ".npz" and zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            size = max(size, sum(member.file_size for member in archive.infolist()))
    if size > MOST_BYTES:
        raise UsageError(
            f"`--{flag}` is {path}, whose {size / 2**20:,.0f} MiB are more than the {MOST_BYTES >> 20} MiB of a table."
        )
    return file


def lines_of(stream: IO[str], path: str, flag: str) -> Iterator[str]:
    """The lines of a table in a text file; a `UsageError` if one is too long, or if there are too many."""
    for number in range(MOST_ENTRIES + 2):
        line = stream.readline(MOST_LINE + 1)
        if not line:
            return
        if len(line) > MOST_LINE:
            raise UsageError(f"`--{flag}` is {path}, whose row {number + 1} has more than {MOST_LINE:,} characters.")
        yield line
    raise UsageError(f"`--{flag}` is {path}, which has more than the {MOST_ENTRIES:,} rows of a table.")
