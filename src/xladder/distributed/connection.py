"""Connections between hosts, on which lines of JSON go. What comes over them may come from anybody."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

LONGEST_LINE = 2**20


class JsonConnection:
    """A connection on which lines of JSON go."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._file = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """One line. A peer that is gone is noticed by whoever reads."""
        with suppress(OSError), self._sending:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next line; None if there will be none."""
        try:
            self.connection.settimeout(timeout)
            found = json.loads(self._file.readline(LONGEST_LINE))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()
