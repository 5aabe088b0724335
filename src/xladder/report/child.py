"""The live page beside a run that trains: a child process, so that it can neither stop nor slow the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from xladder import user_code
from xladder.errors import XladderError, brief


class WatchedRun:
    """Serves the page of a run while a context is open.

    Args:
        folder: The run directory.
        say: Told the address, or why there is none.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self.folder, self.say = folder, say
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> WatchedRun:
        from xladder.report.server import address, bind, new_token

        try:
            with bind() as listening:
                token = new_token()
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "xladder.report.server", str(listening.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[listening.fileno()],
                    # The page needs no GPU, and signals from the terminal are for the run.
                    env=os.environ | {"JAX_PLATFORMS": "cpu"},
                    start_new_session=True,
                )
                told = {"token": token, "paths": [str(self.folder.absolute())], "imports": user_code.allowed()}
                assert self._process.stdin
                self._process.stdin.write(json.dumps(told).encode() + b"\n")
                self._process.stdin.flush()
                self.say(f"watch    {address(listening, token)}")
        except (OSError, XladderError) as error:
            self.say(f"The run cannot be watched ({brief(error)}), and trains all the same.")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let the server end; it sends the last state first, and nobody waits for it."""
        if self._process and self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
