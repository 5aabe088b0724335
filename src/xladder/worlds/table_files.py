"""Tables that settings name: checked before they are read, because a stranger may have named them."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

from xladder.errors import UsageError

MOST_BYTES = 2**30  # of a table, also once it is unpacked


def find_table(path: str, flag: str) -> Path:
    """The path of a table; a `UsageError` unless it is a file of a size that can be read. A pipe would block."""
    file = Path(path).expanduser()
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
        raise UsageError(f"`--{flag}` is {path}, whose {size / 2**30:,.1f} GiB are more than the 1 GiB of a table.")
    return file
