"""A lock that allows only one process at a time to write to a run directory."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from xladder.errors import UsageError

TRIES, PAUSE = 5, 0.01  # `is_held` holds a free lock for some microseconds, which must not turn a run away


class Lock:
    """An exclusive lock on a file. The operating system releases it however the process ends."""

    def __init__(self, path: Path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        if not any(_take(file, again) for again in range(TRIES)):
            holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
            os.close(file)
            raise UsageError(f"`{path.parent}` is in use by {holder}: wait for it, or stop it, and try again.")
        self._file: int | None = file
        with suppress(OSError):  # the holder's name is only informative, and a full disk is reported elsewhere
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {socket.gethostname()} since {time.ctime()}\n".encode())

    def release(self) -> None:
        """Release the lock before the process ends; may be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _take(file: int, again: int) -> bool:
    """Try to lock a file; waits a little if it is tried again."""
    time.sleep(PAUSE if again else 0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether a process holds the lock; neither waits for it nor writes to it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False
