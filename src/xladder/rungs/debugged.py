"""A run with some of JAX's checks on, for `xladder train --debug`.

JAX's debug settings are thread-local context managers: they are entered around each call, in the thread of the run, so
the rest of the process and later runs are not affected. Programs compiled with them are cached separately, too.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from xladder.errors import Diverged, FaultFound, XladderError
from xladder.protocols import Config
from xladder.rungs.running import Compiler, Metrics, Running

PACKAGE = Path(__file__).parents[1]
Function = Callable[..., Any]


class Fault(Exception):
    """What a check inside a program has found, and where in our code the operation is."""

    def __init__(self, found: Any):
        super().__init__(str(found))
        self.place = found.traceback_info


def debugged(start: Function, checks: Sequence[str], tick: str, log: Callable[[str], None]) -> Function:
    """Wrap a rung's `start` so that its run is checked.

    Args:
        start: the rung's `start`.
        checks: names of the checks.
        tick: what this workload calls a tick.
        log: takes lines about compilations.
    """

    def start_checked(config: Config, seeds: Sequence[int], device: Any = None) -> DebuggedRun:
        with during(checks, tick, 0, log):
            running = start(config, seeds, device, CheckingCompiler(checks))
        return DebuggedRun(running, checks, tick, log)

    return start_checked


class DebuggedRun:
    """A run that is advanced with checks on, and otherwise behaves like the run itself."""

    def __init__(self, running: Running, checks: Sequence[str], tick: str, log: Callable[[str], None]):
        self.running, self.checks, self.tick, self.log, self.done = running, checks, tick, log, 0

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks; one at a time where a fault is to be located by its tick."""
        parts = [1] * ticks if {"nans", "checkify"} & set(self.checks) else [ticks]
        rows = []
        for count in parts:
            with during(self.checks, self.tick, self.done, self.log):
                if "transfers" in self.checks:
                    with jax.transfer_guard("disallow"):
                        rows.append(self.running.advance(count))
                else:
                    rows.append(self.running.advance(count))
            self.done += count
        return {name: np.concatenate([row[name] for row in rows], axis=1) for name in rows[0]}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.running, name)


@contextmanager
def during(checks: Sequence[str], tick: str, done: int, log: Callable[[str], None]) -> Iterator[None]:
    """Turn on the checks in this context; a fault is raised as an error that says where it is."""
    with ExitStack() as stack:
        if "nans" in checks:
            stack.enter_context(jax.debug_nans(True))
        if "nojit" in checks:
            stack.enter_context(jax.disable_jit())
        if "keys" in checks:
            stack.enter_context(jax.debug_key_reuse(True))
        if "compiles" in checks:
            stack.enter_context(jax.log_compiles(True))
            stack.enter_context(jax.explain_cache_misses(True))
            stack.enter_context(forward_log(log))
        try:
            yield
        except XladderError:
            raise
        except Exception as error:
            found = format_fault(error, f"{tick} {done}")
            if found is None:
                raise
            raise found from error


def format_fault(error: Exception, when: str) -> XladderError | None:
    """Turn an exception of a check into an error that names the place in our code; None for other exceptions."""
    text = str(error).splitlines()[0] if str(error) else ""
    if is_of_nans(error) and not isinstance(error, FloatingPointError):
        text = f"nan came out of {error.args[0]}"  # the name of a program and `nan` are all there is
    if is_of_nans(error) or isinstance(error, Fault):
        place = format_place(error.place if isinstance(error, Fault) else error.__traceback__)
        sentence = f"In {when}: {text.rstrip('. ')}{place}."
        return FaultFound(sentence) if "out-of-bounds" in text else Diverged(sentence)
    if isinstance(error, jax.errors.KeyReuseError):
        return FaultFound(f"A random key is used twice{format_place(error.__traceback__)}: {text}")
    if "Disallowed" in text and "transfer" in text:
        place = format_place(error.__traceback__)
        return FaultFound(f"In {when}: an implicit transfer between host and device{place} ({text}).")
    return None


def is_of_nans(error: Exception) -> bool:
    """Whether an exception comes from JAX's NaN check; that of programs compiled ahead of time has no public name."""
    return isinstance(error, FloatingPointError) or type(error).__name__ == "InternalFloatingPointError"


def format_place(trace: Any) -> str:
    """The innermost line of our own code in a traceback of Python or XLA, without rungs and command line."""
    if hasattr(trace, "as_python_traceback"):
        trace = trace.as_python_traceback()
    frames = [frame for frame in traceback.extract_tb(trace) if Path(frame.filename).is_relative_to(PACKAGE)]
    ours = [frame for frame in frames if Path(frame.filename).parent.name not in ("rungs", "cli")]
    if not ours:
        return ""
    last = ours[-1]
    return f", in `{last.name}` ({Path(last.filename).relative_to(PACKAGE)}, line {last.lineno})"


@contextmanager
def forward_log(log: Callable[[str], None]) -> Iterator[None]:
    """Pass JAX's log messages about tracing and compiling to `log`."""

    class LogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                log(record.getMessage())

    handler, logger = LogHandler(), logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class CheckingCompiler(Compiler):
    """Compiles programs with checks in them, and has its own cache."""

    def __init__(self, checks: Sequence[str]):
        self.checks = set(checks)
        self._backend: dict[Any, Any] = {}

    def program(self, function: Function, donate: tuple[int, ...], *arguments: Any) -> Function:
        """Compile a tick or a chunk of ticks: it takes a state, and returns a state and, last, metrics."""
        if "nojit" in self.checks:
            return function
        nans, checked, plain = "nans" in self.checks, "checkify" in self.checks, function
        if nans:
            # Nothing is donated: after a fault, the state before it is needed to locate it.
            function, donate = _reporting_no_nans(function), ()
        if checked:
            function = checkify.checkify(function, errors=checkify.float_checks | checkify.index_checks)
        program = super().program(function, donate, *arguments)

        def call(*given: Any) -> Any:
            try:
                outputs = program(*given)
            except Exception as error:
                if not is_of_nans(error):
                    raise
                raise _origin(plain, *given) or error from None
            if checked:
                checks, outputs = outputs
                if fault := checks.get_exception():
                    raise Fault(fault)
            return _with_nans(*outputs) if nans else outputs

        return call

    def function(self, function: Function, donate: tuple[int, ...] = ()) -> Any:
        """Compile one function of a host loop; cached, so that the same function is compiled once."""
        donate = () if "nans" in self.checks else donate
        if (function, donate) not in self._backend:
            self._backend[function, donate] = jax.jit(function, static_argnums=0, donate_argnums=donate)
        return self._backend[function, donate]


def _reporting_no_nans(function: Function) -> Function:
    """Split the NaNs off a program's metrics, where they mean "no value" and are not a fault."""

    def program(*given: Any) -> Any:
        *state, report = function(*given)
        empty = jax.tree.map(jnp.isnan, report)
        return (*state, jax.tree.map(lambda x, nan: jnp.where(nan, jnp.zeros_like(x), x), report, empty)), empty

    return program


def _with_nans(outputs: Any, empty: Any) -> Any:
    *state, report = outputs
    report, empty = jax.device_get((report, empty))
    return *state, jax.tree.map(lambda x, nan: np.where(nan, np.nan, x).astype(x.dtype), report, empty)


def _origin(function: Function, *given: Any) -> Fault | None:
    """Locate the first NaN: run the program once more with every operation checked."""
    with jax.debug_nans(False):
        error, _ = jax.jit(checkify.checkify(function, errors=checkify.nan_checks))(*given)
        fault = error.get_exception()
    return Fault(fault) if fault else None
