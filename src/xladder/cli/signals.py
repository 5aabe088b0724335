"""How commands handle SIGINT and SIGTERM. During a run, its screen handles them instead."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from xladder import temporary_folders

BOTH = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h"


class Debounce:
    """Ignores duplicates of a signal: `timeout` and batch systems send it to the process and then to its group.

    Both arrive within milliseconds, and must not count as the user's second Ctrl-C.
    """

    SECONDS = 0.3

    def __init__(self) -> None:
        self.last = float("-inf")

    def is_repeat(self) -> bool:
        """Whether another signal was received just before."""
        before, self.last = self.last, time.monotonic()
        return self.last - before < self.SECONDS


def end_at_once_on_signals() -> None:
    """Make signals end the process at once; an exception could get lost inside JAX's callbacks."""
    for number in BOTH:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored, as in a script's background job
            signal.signal(number, end_at_once)


def end_at_once(number: int, _: FrameType | None = None) -> NoReturn:
    """End the process at once, when there is nothing to save; XLA itself cannot be interrupted."""
    for stream in (1, 2):
        if os.isatty(stream):  # a spinner may have hidden it
            os.write(stream, SHOW_CURSOR)
    temporary_folders.remove_all()
    os._exit(128 + number)


def note_signals() -> Callable[[], int]:
    """Note signals as they arrive, also while the main thread is inside XLA, where Python runs no handler.

    Returns:
        A function, for any thread, that returns the signal that has arrived since the last call, or 0.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def arrived() -> int:
        try:
            return next((number for number in os.read(reader, 64) if number in BOTH), 0)
        except BlockingIOError:
            return 0

    return arrived


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Turn signals into exceptions within a context, so that no partial file and no process is left behind."""
    before = {number: signal.signal(number, _exit) for number in BOTH}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
