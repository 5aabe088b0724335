"""What SIGINT and SIGTERM do to a command. While a run goes on, its screen answers them instead."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from xladder import temporary_folders

BOTH = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = b"\x1b[?25h"


class Debounce:
    """Tells a signal that comes twice from one that is meant twice: `timeout` and batch systems send to all of a group.

    They tell the process, and then its group, within milliseconds.
    """

    SECONDS = 0.3

    def __init__(self) -> None:
        self.last = float("-inf")

    def is_repeat(self) -> bool:
        """Whether one has come just before."""
        before, self.last = self.last, time.monotonic()
        return self.last - before < self.SECONDS


def end_at_once_on_signals() -> None:
    """For a program of its own, before anything else: an exception would be lost or worse inside JAX's callbacks."""
    for number in BOTH:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as it is in the background of a script
            signal.signal(number, end_at_once)


def end_at_once(number: int, _: FrameType | None = None) -> NoReturn:
    """End the process, where there is nothing to save; XLA cannot be interrupted, but this can."""
    for stream in (1, 2):
        if os.isatty(stream):  # where a spinner may have hidden it
            os.write(stream, SHOW_CURSOR)
    temporary_folders.remove_all()
    os._exit(128 + number)


@contextmanager
def cleaned_up() -> Iterator[None]:
    """A signal ends what is inside by an exception, so that it leaves neither half a file nor a process behind."""
    before = {number: signal.signal(number, _exit) for number in BOTH}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
