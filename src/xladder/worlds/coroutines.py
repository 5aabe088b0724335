"""A function that can be paused from deep within code of others, which was not written to be paused.

It runs in a thread of its own, but never at the same time as its caller: each waits while the other runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Stopped(BaseException):
    """Unwinds a paused function that is not resumed any more."""


class Coroutine:
    """Runs `body`, which may call `pause`, whenever `resume` is called."""

    def __init__(self, body: Callable[[], None]):
        self._body = body
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self.ended = False

    def resume(self) -> bool:
        """Run until the body pauses or ends; returns whether it has ended. Its exceptions are raised here."""
        if self.ended:
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self.ended

    def pause(self) -> None:
        """Let the caller of `resume` go on. Called by the body."""
        self._back.release()
        self._go.acquire()
        if self._stopping:
            raise _Stopped

    def stop(self) -> None:
        """End a body that is paused."""
        self._stopping = True
        if self._thread is not None:
            self.resume()
            self._thread.join()
        self.ended = True

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._stopping:
                self._body()
        except _Stopped:
            pass
        except BaseException as error:
            self._error = error
        self.ended = True
        self._back.release()
