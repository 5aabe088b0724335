"""The page live: an HTTP server for this machine only, which pushes changes of some runs to the browser.

It binds to 127.0.0.1, reads and never writes, serves the page and the data it is made of and no files. Every address
contains a random token, and the `Host` header has to name this machine, so that other users and web sites (also by DNS
rebinding) learn nothing. While nobody looks, it reads nothing; otherwise it rests a hundred times as long as it worked.

As a module it is the child process of `xladder train --watch`: it gets an open socket and, on standard input, what to
watch; it ends when its standard input does, that is, however its parent ends.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from xladder.errors import UsageError, XladderError, brief
from xladder.report.build import make_page, page_data, to_json
from xladder.report.source import Source, names_of, runs_in, text
from xladder.runs.directory import AGENTS

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
NUMBERS = 40_000  # in the curves of all runs: about 250 kB per update
SHORTEST, LONGEST = 2.0, 60.0  # seconds between looks at the files
REST = 100.0  # how many times as long as a look to rest after it
ALIVE = 10.0  # seconds between signs of life
MOST_CONNECTIONS = 32
MOST_RUNS = 64
LAST_WORDS = 1.5  # seconds to send the last state before the server ends
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the rest of the policy is in the page
}


class Watcher:
    """Looks at run directories while somebody listens, and keeps what there is to show.

    Args:
        paths: Run directories, and folders in which new ones may appear.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)
        self.ended = False
        self.version = 0
        """Counts the changes."""
        self.data = b""
        """The page's data as JSON."""
        self._sources: dict[Path, tuple[int, Source]] = {}
        self._shown: dict[int, dict[str, Any]] = {}
        self._missing: dict[int, dict[str, str]] = {}
        self._listeners = 0
        self._changed = threading.Condition()
        self._looking, self._acting = threading.Lock(), threading.Lock()
        self._scenes: dict[int, bytes] = {}
        threading.Thread(target=self._look_again_and_again, daemon=True).start()

    def look(self) -> bool:
        """Read what has changed. Returns whether anything has."""
        with self._looking:
            found = self._find()
            changed = not self.version
            for number, source in found:
                if not source.changed():
                    continue
                changed = True
                try:
                    self._shown[number] = self._describe(number, source, len(found))
                    self._missing.pop(number, None)
                except XladderError as error:
                    self._lose(number, source, text(error))
                except Exception as error:  # one damaged run must not hide the others
                    self._lose(number, source, f"It cannot be read ({text(brief(error))}).")
            if not changed:
                return False
            runs = [self._shown[number] for number, _ in found if number in self._shown]
            missing = [self._missing[number] for number, _ in found if number in self._missing]
            data = to_json(page_data(runs, missing, live=True)).encode()
        with self._changed:
            self.data = data
            self.version += 1
            self._changed.notify_all()
        return True

    def listen(self, seen: int) -> tuple[int, bytes]:
        """Wait for something newer than version `seen`. Returns version and data; no data after a while."""
        with self._changed:
            if self.version == seen and not self.ended:
                self._changed.wait(ALIVE)
            return (self.version, self.data) if self.version != seen else (seen, b"")

    def join(self, coming: int) -> None:
        """Count a listener who comes (1) or goes (−1)."""
        with self._changed:
            self._listeners += coming
            self._changed.notify_all()

    def scenes(self, number: int) -> bytes | None:
        """The scenes of a run that is not training, as JSON; None if there is no such run."""
        source = next((source for known, source in self._sources.values() if known == number), None)
        if source is None or not self._shown.get(number, {}).get("scenes_url"):
            return None
        with self._acting:
            if number not in self._scenes:
                found, why = source.scenes()
                self._scenes[number] = to_json({"scenes": found, "scenes_note": why}).encode()
            return self._scenes[number]

    def end(self) -> None:
        """Show the last state to whoever listens, and stop."""
        if self._listeners:
            self.look()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _look_again_and_again(self) -> None:
        while not self.ended:
            with self._changed:
                while not self._listeners and not self.ended:
                    self._changed.wait()
            begun, first = time.thread_time(), not self.version
            with suppress(OSError):  # a folder may vanish while it is read
                self.look()
            # The first look imports what it needs, which says nothing about the next.
            took = 0.0 if first else time.thread_time() - begun
            time.sleep(min(max(SHORTEST, REST * took), LONGEST))

    def _find(self) -> list[tuple[int, Source]]:
        folders = []
        for path in self.paths:
            folders += [path] if (path / "config.json").exists() else runs_in(path, MOST_RUNS)
        folders = list(dict.fromkeys(folders))[:MOST_RUNS]
        for folder, name in zip(folders, names_of(folders), strict=True):
            if folder not in self._sources:
                self._sources[folder] = len(self._sources), Source(folder, name)
        return [self._sources[folder] for folder in folders]

    def _describe(self, number: int, source: Source, among: int) -> dict[str, Any]:
        run = source.describe(NUMBERS // among)
        rests = run["state"] != "training" and source.plan and os.path.exists(source.folder / AGENTS)
        self._scenes.pop(number, None)
        return run | {"id": number, "scenes_url": f"scenes/{number}" if rests else ""}

    def _lose(self, number: int, source: Source, why: str) -> None:
        self._shown.pop(number, None)
        self._missing[number] = {"name": source.name, "why": why}


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is refused."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "xladder", ""
    timeout = 30
    server: Server

    def do_GET(self) -> None:
        """Serve the page, its events or scenes."""
        where = self._allowed()
        if where == "":
            self._send("text/html; charset=utf-8", self.server.page)
        elif where == "events":
            self._stream()
        elif where and where.startswith("scenes/") and where[7:].isdecimal() and len(where) < 12:
            found = self.server.watcher.scenes(int(where[7:]))
            if found is None:
                self.send_error(404)
            else:
                self._send("application/json", found)
        elif where is not None:
            self.send_error(404)

    do_HEAD = do_GET

    def _allowed(self) -> str | None:
        """What is asked for, without the token; None if it was refused."""
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in NAMES and host not in NAMES:
            self.send_error(403)
            return None
        token, slash, where = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token.encode()) or not slash:
            self.send_error(404)
            return None
        return where

    def _send(self, kind: str, body: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self) -> None:
        """Send the data at once and whenever it changes, as server-sent events."""
        watcher, seen = self.server.watcher, 0
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        if self.command == "HEAD":
            return
        watcher.join(1)
        try:
            self.wfile.write(b"retry: 2000\n\n")
            while True:
                version, data = watcher.listen(seen)
                if data:
                    seen = version
                    self.wfile.write(b"event: page\ndata: " + data + b"\n\n")
                elif watcher.ended:
                    self.wfile.write(b"event: end\ndata: \n\n")
                    return
                else:
                    self.wfile.write(b"event: alive\ndata: \n\n")
                self.wfile.flush()
        except OSError:  # the browser has left
            return
        finally:
            watcher.join(-1)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in plain text, without repeating anything of the request."""
        self.close_connection = True
        with suppress(OSError):
            self._send("text/plain; charset=utf-8", f"{code}\n".encode(), code)

    def log_message(self, format: str, *values: Any) -> None:
        """Log nothing: the address holds the token."""


class Server(ThreadingHTTPServer):
    """The server of one page."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, listening: socket.socket, token: str, watcher: Watcher):
        super().__init__(listening.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.token, self.watcher = listening, token, watcher
        self.page = make_page(None, "'self'").encode()
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that break."""


def bind(port: int = 0) -> socket.socket:
    """A listening socket on this machine only; a `UsageError` if the port is taken."""
    if not 0 <= port < 2**16:
        raise UsageError(f"`--port` is {port}, but ports lie in 0 … 65535.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"Port {port} cannot be used ({error.strerror or error}): choose another `--port`, or leave it out."
        ) from None
    return listening


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def address(listening: socket.socket, token: str) -> str:
    """The page's address."""
    return f"http://{HOST}:{listening.getsockname()[1]}/{token}/"


def main(number: str) -> None:
    """Serve as a child process on the socket with this file descriptor, until standard input ends."""
    os.nice(19)
    told = json.loads(sys.stdin.buffer.readline())
    from xladder.plans import allow_imports

    with suppress(XladderError):  # then the page shows what the files alone say
        allow_imports(told["imports"])
    watcher = Watcher([Path(path) for path in told["paths"]])
    server = Server(socket.socket(fileno=int(number)), told["token"], watcher)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()  # until the parent ends
    watcher.end()
    time.sleep(LAST_WORDS)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
