"""Connections between hosts that carry lines of JSON. The peer is not trusted."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from xladder.distributed.secret import Seal

LONGEST_LINE = 2**20


class JsonConnection:
    """A socket that carries one JSON object per line."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._file = connection.makefile("rb")
        self._sending = threading.Lock()
        self.seal: Seal | None = None
        """Signs and checks messages, once both sides have proved that they know the secret."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. A closed connection is not an error here; the reader notices it."""
        with suppress(OSError), self._sending:
            whole = self.seal.wrap(message) if self.seal else message
            self.connection.sendall(json.dumps(whole).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Wait for the next message; returns None if the connection has ended, the timeout passed or it is forged."""
        try:
            self.connection.settimeout(timeout)
            found = json.loads(self._file.readline(LONGEST_LINE))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        return self.seal.unwrap(found) if self.seal else found

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()
