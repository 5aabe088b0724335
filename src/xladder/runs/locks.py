"""A lock that allows only one process at a time to write to a run directory."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from xladder.errors import UsageError


class Lock:
    """An exclusive lock on a file. The operating system releases it however the process ends."""

    def __init__(self, path: Path):
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 200).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise UsageError(
                f"`{path.parent}` is in use by {holder}: wait for it, or stop it, and try again."
            ) from None
        with suppress(OSError):  # the holder's name is only informative, and a full disk is reported elsewhere
            os.ftruncate(self._file, 0)
            os.write(self._file, f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}\n".encode())

    def release(self) -> None:
        """Release the lock before the process ends; may be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
