"""Calls of a world that runs on the host: what it raises is reported as its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from xladder.errors import UsageError, UserCodeFailed, XladderError, located
from xladder.worlds.envs import EnvSpec, HostEnvs, available

E = TypeVar("E", bound=HostEnvs)


def call(shown: str, function: str, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call a function of a world; an error names the world, the function, and the file and line.

    It may be called at any time of a run, so the error is not a `UsageError`.
    """
    try:
        return method(*given, **named)
    except (XladderError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit, asyncio's CancelledError
        raise UserCodeFailed(f"`{shown}` fails in its `{function}`: {located(error)}.") from error


def tried(make: Callable[[], E]) -> E:
    """Reset and step the envs of a world once, before a run, and close them; its faults are a `UsageError`."""
    try:
        envs = make()
        try:
            envs.send(random_actions(envs.spec, envs.reset(), np.random.default_rng(0)))
            envs.recv()
        finally:
            envs.close()
    except UserCodeFailed as error:
        raise UsageError(str(error)) from error.__cause__
    return envs


def random_actions(spec: EnvSpec, frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """int [N], or [A, N]: actions drawn from those that are available in frames [N, *shape], or [A, N, *shape]."""
    uniforms = rng.random((*frames.shape[: frames.ndim - len(spec.shape)], spec.actions))
    if spec.masked:
        uniforms = np.where(available(spec, frames), uniforms, -1.0)
    return uniforms.argmax(-1)
