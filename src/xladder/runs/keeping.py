"""Schedule checkpoints, and handle failures to save them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from xladder.core.state import Arrays
from xladder.errors import ResourceError
from xladder.runs.checkpoints import Checkpoint
from xladder.runs.directory import RunDirectory
from xladder.trainer import Checkpointer

SECONDS_BETWEEN = 60.0
SHARE_OF_TIME = 0.03  # the most time that saving may take: large states are saved less often
MOST_FAILURES = 3  # in a row


class DiskCheckpointer(Checkpointer):
    """Saves checkpoints in a run directory, at fixed ticks or about once a minute."""

    def __init__(self, directory: RunDirectory, notify: Callable[[str], None]):
        self.directory, self.notify = directory, notify
        every = directory.keeping.checkpoint_every
        self.keeps, self.every = every != 0, every or 0
        self.failures, self._saved_at, self._wait = 0, time.monotonic(), SECONDS_BETWEEN

    def due(self, tick: int) -> bool:
        """Whether to save now: at fixed ticks if they were requested, otherwise by time."""
        if self.every:
            return tick % self.every == 0
        return time.monotonic() - self._saved_at > self._wait

    def save(self, step: int, arrays: Arrays, facts: Mapping[str, Any], score: float) -> None:
        """Save a checkpoint. The run survives a failure, but raises `ResourceError` after several in a row."""
        begun = time.monotonic()
        try:
            self.directory.write_pending()
            metadata = {**facts, **self.directory.writer.sync()}
            path = self.directory.checkpoints.save(Checkpoint(step, arrays, metadata), score)
        except (OSError, ValueError) as error:
            self.failures += 1
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            self.notify(f"The checkpoint at {step} could not be saved ({reason}); the last is {self.last or 'none'}.")
            if self.failures >= MOST_FAILURES:
                raise ResourceError(
                    f"Saving failed {self.failures} times in a row in `{self.directory.path}`. "
                    f"Free some disk space, then: {self.directory.resume_command}"
                ) from None
        else:
            self.failures, self.last = 0, path.name
        self._saved_at = time.monotonic()
        self._wait = max(SECONDS_BETWEEN, (self._saved_at - begun) / SHARE_OF_TIME)
