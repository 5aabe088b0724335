"""Connections between hosts that carry lines of JSON. The peer is not trusted."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from xladder.distributed.secret import Seal

LONGEST_LINE = 2**20


class JsonConnection:
    """A socket that carries one JSON object per line."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._unread = b""
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
            found = json.loads(self._line(None if timeout is None else time.monotonic() + timeout))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        return self.seal.unwrap(found) if self.seal else found

    def _line(self, until: float | None) -> bytes:
        """The next line; a peer that sends a byte now and then has no longer than one that sends nothing."""
        parts = [self._unread]
        length = len(self._unread)
        while b"\n" not in parts[-1]:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            parts.append(self.connection.recv(2**16))
            length += len(parts[-1])
            if not parts[-1] or length > LONGEST_LINE:
                raise ConnectionError
        line, _, self._unread = b"".join(parts).partition(b"\n")
        return line

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):  # it may have ended already
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
