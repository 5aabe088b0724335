"""A rung's run with some of JAX's checks on: what `xladder train --debug` starts in place of the rung's own.

JAX's settings hold for a thread, and only while they are open: they are opened round each call, in the thread of the
rung, and the rest of the process and later runs never see them. What is compiled under them is kept apart, too.
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
from xladder.rungs.running import Compiler, Metrics, Running

PACKAGE = Path(__file__).parents[1]
Function = Callable[..., Any]


class Fault(Exception):
    """What a check inside a program has found, and where in our code the operation was written."""

    def __init__(self, found: Any):
        super().__init__(str(found))
        self.place = found.traceback_info


def debugged(start: Function, checks: Sequence[str], tick: str, log: Callable[[str], None]) -> Function:
    """A `start` for the same rung whose run is checked. `tick` is what a tick is called; `log` takes lines."""

    def start_checked(config: Any, seeds: Sequence[int], device: Any = None) -> DebuggedRun:
        with during(checks, tick, 0, log):
            running = start(config, seeds, device, CheckingCompiler(checks))
        return DebuggedRun(running, checks, tick, log)

    return start_checked


class DebuggedRun:
    """A run that is advanced under checks; in everything else it is the run itself."""

    def __init__(self, running: Running, checks: Sequence[str], tick: str, log: Callable[[str], None]):
        self.running, self.checks, self.tick, self.log, self.done = running, checks, tick, log, 0

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks, one by one where a fault is to be told by its tick."""
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
    """JAX with these checks on; what they find comes out as a sentence."""
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
            stack.enter_context(heard(log))
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
    """What a check has found, as a sentence with the place in our code; None if it was no check that spoke."""
    text = str(error).splitlines()[0] if str(error) else ""
    if is_of_nans(error) and not isinstance(error, FloatingPointError):
        text = f"nan came out of {error.args[0]}"  # a program and `nan`, which is all that is known
    if is_of_nans(error) or isinstance(error, Fault):
        place = format_place(error.place if isinstance(error, Fault) else error.__traceback__)
        sentence = f"In {when}: {text.rstrip('. ')}{place}."
        return FaultFound(sentence) if "out-of-bounds" in text else Diverged(sentence)
    if isinstance(error, jax.errors.KeyReuseError):
        return FaultFound(f"A random key is used twice{format_place(error.__traceback__)}: {text}")
    if "Disallowed" in text and "transfer" in text:
        place = format_place(error.__traceback__)
        return FaultFound(f"In {when}: something passes between host and device unasked{place} ({text}).")
    return None


def is_of_nans(error: Exception) -> bool:
    """Whether it comes from JAX's check for nans; what programs compiled ahead raise has no public name."""
    return isinstance(error, FloatingPointError) or type(error).__name__ == "InternalFloatingPointError"


def format_place(trace: Any) -> str:
    """The innermost line of our own code in a traceback, Python's or XLA's; rungs only pass on."""
    if hasattr(trace, "as_python_traceback"):
        trace = trace.as_python_traceback()
    frames = [frame for frame in traceback.extract_tb(trace) if Path(frame.filename).is_relative_to(PACKAGE)]
    ours = [frame for frame in frames if Path(frame.filename).parent.name not in ("rungs", "cli")]
    if not ours:
        return ""
    last = ours[-1]
    return f", in `{last.name}` ({Path(last.filename).relative_to(PACKAGE)}, line {last.lineno})"


@contextmanager
def heard(log: Callable[[str], None]) -> Iterator[None]:
    """Passes on what JAX says of tracing and compiling."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                log(record.getMessage())

    ear, logger = Ear(), logging.getLogger("jax")
    logger.addHandler(ear)
    try:
        yield
    finally:
        logger.removeHandler(ear)


class CheckingCompiler(Compiler):
    """Compiles with checks in the program, and keeps what it compiled to itself."""

    def __init__(self, checks: Sequence[str]):
        self.checks = set(checks)
        self._backend: dict[Any, Any] = {}

    def program(self, function: Function, donate: tuple[int, ...], *arguments: Any) -> Function:
        """A tick or a chunk of them: takes a state, gives a state and, last, what the ticks report."""
        if "nojit" in self.checks:
            return function
        nans, checked, plain = "nans" in self.checks, "checkify" in self.checks, function
        if nans:
            # Nothing is donated, so that the state from before a fault is there to look for it.
            function, donate = _reporting_no_nans(function), ()
        if checked:
            function = checkify.checkify(function, errors=checkify.float_checks | checkify.index_checks)
        program = super().program(function, donate, *arguments)

        def call(*given: Any) -> Any:
            try:
                said = program(*given)
            except Exception as error:
                if not is_of_nans(error):
                    raise
                raise _origin(plain, *given) or error from None
            if checked:
                checks, said = said
                if fault := checks.get_exception():
                    raise Fault(fault)
            return _with_nans(*said) if nans else said

        return call

    def function(self, function: Function, donate: tuple[int, ...] = ()) -> Any:
        """One function of a loop on the host; the same one for the same function, as everywhere."""
        donate = () if "nans" in self.checks else donate
        if (function, donate) not in self._backend:
            self._backend[function, donate] = jax.jit(function, static_argnums=0, donate_argnums=donate)
        return self._backend[function, donate]


def _reporting_no_nans(function: Function) -> Function:
    """The same program, with the nans of its report apart: there they are no fault, but say "nothing happened"."""

    def program(*given: Any) -> Any:
        *state, report = function(*given)
        empty = jax.tree.map(jnp.isnan, report)
        return (*state, jax.tree.map(lambda x, nan: jnp.where(nan, jnp.zeros_like(x), x), report, empty)), empty

    return program


def _with_nans(said: Any, empty: Any) -> Any:
    *state, report = said
    report, empty = jax.device_get((report, empty))
    return *state, jax.tree.map(lambda x, nan: np.where(nan, np.nan, x).astype(x.dtype), report, empty)


def _origin(function: Function, *given: Any) -> Fault | None:
    """Where the first nan comes from: the program once more, with every operation checked."""
    with jax.debug_nans(False):
        error, _ = jax.jit(checkify.checkify(function, errors=checkify.nan_checks))(*given)
        fault = error.get_exception()
    return Fault(fault) if fault else None
