"""An engine for `actors` without other processes: calls are answered at once, and can be lost or stopped."""

import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from xladder.distributed.remote import Lost


class RemoteFuture:
    def __init__(self, value: Any = None, error: Exception | None = None, pending: bool = False):
        self.value, self.error, self.pending = value, error, pending


class Remote:
    def __init__(self, name: str, make, given):
        self.name, self.make, self.given = name, make, given
        self.generation, self.thing = 0, None
        self.stopped = False  # alive, but hangs

    def start(self) -> RemoteFuture:
        self.generation += 1
        self.thing = self.make(*self.given)
        return RemoteFuture(self.generation)

    def lose(self) -> None:
        self.thing = None

    def call(self, method: str, *given: Any, answers: int = 1) -> Any:
        if self.stopped:
            return [RemoteFuture(pending=True) for _ in range(answers)] if answers > 1 else RemoteFuture(pending=True)
        if self.thing is None:
            futures = [RemoteFuture(error=Lost()) for _ in range(answers)]
            return futures if answers > 1 else futures[0]
        # Copies, as between processes: the object may change its state afterwards.
        given = [deepcopy(one.value if isinstance(one, RemoteFuture) else one) for one in given]
        answer = deepcopy(getattr(self.thing, method)(*given))
        return [RemoteFuture(one) for one in answer] if answers > 1 else RemoteFuture(answer)


class InProcess:
    def __init__(self) -> None:
        self.remotes: list[Remote] = []

    def spawn(self, name: str, make, *given: Any) -> Remote:
        self.remotes.append(Remote(name, make, given))
        return self.remotes[-1]

    def put(self, value: Any) -> RemoteFuture:
        return RemoteFuture(value)

    def get(self, future: RemoteFuture) -> Any:
        assert not future.pending, "this would wait for ever"
        if future.error:
            raise future.error
        return future.value

    def ready(self, futures: Sequence[RemoteFuture], seconds: float) -> list[RemoteFuture]:
        ready = [future for future in futures if not future.pending]
        if not ready:
            time.sleep(min(seconds, 0.01))
        return ready

    def close(self) -> None:
        self.remotes = []
