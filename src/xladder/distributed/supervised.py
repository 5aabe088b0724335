"""What a supervised command tells the process that watches over it (`cli/supervisor.py`).

If one of Ray's own processes is lost, Ray ends the process that uses it without a word. So a command on `actors` runs
in a child process, and its parent, which has nothing to do with Ray, says what was lost and removes what is left.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from xladder import temporary_folders
from xladder.distributed import processes

VARIABLE = "XLADDER_SUPERVISOR"
"""Environment variable: the file descriptor of the connection to the parent, and the name of the command."""
KILLED = 137

_channel: socket.socket | None = None


def take_up() -> bool:
    """Connect to the parent if this process is supervised; it then ends when its parent does."""
    global _channel
    number, _, name = os.environ.pop(VARIABLE, "").partition(" ")
    if not number:
        return False
    os.set_inheritable(int(number), False)  # Ray's processes must not hold it open
    _channel, sys.argv[0] = socket.socket(fileno=int(number)), name
    threading.Thread(target=_end_with_parent, args=(_channel,), daemon=True, name="supervisor").start()
    return True


def is_supervised() -> bool:
    """Whether a parent watches over this process and will say what was lost."""
    return _channel is not None


def tell(**facts: Any) -> None:
    """Send facts to the parent, if there is one."""
    if _channel is not None:
        with suppress(OSError):
            _channel.sendall(json.dumps(facts).encode() + b"\n")


def _end_with_parent(channel: socket.socket) -> None:
    """Wait until the parent is gone, and end all processes that this one has started, and itself."""
    with suppress(OSError):
        while channel.recv(1):
            pass
    processes.kill(processes.descendants(os.getpid()))
    temporary_folders.remove_all()
    os._exit(KILLED)
