"""Errors a user can act on. Each carries the command line's exit code, and its message says what to do."""

import difflib
import re
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

_LIBRARIES = (sysconfig.get_path("stdlib"), str(Path(__file__).parent))
"""Folders of Python's own files, and of ours."""
_NOT_OWN = re.compile(r"[\\/](site|dist)-packages[\\/]|^<")
_LEAKED_AT = re.compile(r"was created on line (.+):(\d+):\d+")
SHORT, SHORT_LIKENESS = 5, 0.7  # letters of a short name, and how much it has to be like the one that is suggested

CONTINUOUS = (
    "Continuous actions are learned by other libraries: Stable-Baselines3 or CleanRL (SAC, TD3, PPO), in JAX Brax or "
    "PureJaxRL."
)
"""What to say where a world's actions are not discrete."""


class XladderError(Exception):
    """An error that the user can fix. `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(XladderError):
    """An invalid name, value, path or combination; nothing has been started or written."""

    exit_code = 2


class Mismatch(XladderError):
    """An exported file does not match the trained network; nothing has been left behind."""

    exit_code = 1


class UserCodeFailed(XladderError):
    """A function of the user's own failed during a run, although it passed the checks before it."""

    exit_code = 1


class DamagedRun(XladderError):
    """A run directory whose saved agents cannot be read."""

    exit_code = 3


class FaultFound(XladderError):
    """A `--debug` check found a fault in the code; the traceback is in log.txt."""


class Diverged(XladderError):
    """A loss or parameter became nan or infinite. `report` says which and when."""

    exit_code = 4
    report: Mapping[str, Any] = {}


class ResourceError(XladderError):
    """Disk or memory ran out or failed during a run."""

    exit_code = 5


class PeerLost(XladderError):
    """Another process of the run has died, is stuck or never connected."""

    exit_code = 75


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run in Python. `result` holds what was trained so far, saved if the run has a directory."""

    def __init__(self, text: str, result: Any):
        super().__init__(text)
        self.result = result


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown name; it lists the known ones and suggests the closest."""
    known = sorted(known)
    near = nearest(name, known)
    hint = f" Did you mean `{near}`?" if near else ""
    return UsageError(f"There is no {kind} `{name}`.{hint} There are: {', '.join(known)}.")


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name that a mistyped or shortened one most likely stands for; None where it would be a guess.

    Among many names one is alike by chance sooner, so a caller with many asks for more `likeness` (1 is the same).
    Short names are alike by chance sooner, too: `doom` has three letters in common with `doctor`. So they have to be
    more alike, or have the same letters, or begin with all letters but one (in names of three letters: as `iqm` does,
    and of the same length).
    """
    known, likely = sorted(known, key=len), max(likeness, SHORT_LIKENESS if len(name) <= SHORT else 0.0)
    begun = (one for one in known if len(name) >= 3 and one.startswith(name))
    close = (one for one in difflib.get_close_matches(name, known, cutoff=likeness) if _ends_alike(name, one))
    alike = (one for one in close if _likeness(name, one) >= likely or _mistyped(name, one))
    return next(begun, None) or next(alike, None)


def _likeness(name: str, other: str) -> float:
    """From 0 to 1, for two names that are the same."""
    return difflib.SequenceMatcher(None, other, name).ratio()


def _mistyped(name: str, other: str) -> bool:
    """Whether letters of a name are swapped, or its last letter is wrong."""
    long = len(name) > 3 or len(name) == len(other) == 3
    return sorted(name) == sorted(other) or (long and other.startswith(name[:-1]))


def _ends_alike(name: str, other: str, likeness: float = 0.6) -> bool:
    """Whether two names are alike in more than their group, such as `learner.`."""
    (group, _, last), (others, _, end) = (one.rpartition(".") for one in (name, other))
    return group != others or _likeness(end, last) >= likeness


def need(ok: bool, flag: str, value: object, allowed: str) -> None:
    """Raise a `UsageError` that names a flag, its value and what is allowed, unless it is."""
    if not ok:
        raise UsageError(f"`--{flag}` is {value}, but {allowed}.")


def uneven(flag: str, value: int, devices: int) -> UsageError:
    """The error for a number that the devices cannot share evenly; it suggests the nearest that they can."""
    near = dict.fromkeys([value // devices * devices or devices, -(-value // devices) * devices])
    return UsageError(
        f"`--{flag}` is {value}, which {devices} devices cannot share evenly: use {' or '.join(map(str, near))}."
    )


def text_of(error: BaseException) -> str:
    """An error's message; none if the error is a user's own and cannot say it."""
    try:
        return str(error)
    except Exception:
        return ""


def brief(error: BaseException) -> str:
    """An error's type and the first line of its message; for an error in a callback of JAX, those of its cause."""
    lines = [" ".join(line.split()) for line in text_of(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if first.endswith(":"):  # it announces the next line
        first = f"{first} {lines[1]}" if len(lines) > 1 else first[:-1]
    kind = type(error).__name__
    text = raised_in_callback(error) or (f"{kind}: {first}" if first else kind)
    return printable(text.removesuffix("."))


def located(error: BaseException) -> str:
    """`brief`, with file and line of the innermost code of the user's own, if the error comes from there."""
    place = _own_place(error)
    return f"{brief(error)} ({place})" if place else brief(error)


def untraceable(error: BaseException) -> str:
    """What a function of the user's own does that JAX cannot trace, for a sentence; empty for any other error.

    Some faults show only in a second trace, so the checks before a run do not find them all.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not kinds & {"JAXTypeError", "JAXIndexError"}:
        return ""
    leaked = "UnexpectedTracerError" in kinds
    # A value that the user has leaked may be read first by code of ours, to which it was returned.
    place = _own_place(error) or (_leaked_at(error) if leaked else "")
    if not place:
        return ""
    if leaked:
        return (
            f"keeps a traced value from one call to another, such as in `self` ({type(error).__name__}; {place}): "
            "return it as part of the state"
        )
    return f"cannot be traced by `jit`: {brief(error)} ({place})"


def _own_place(error: BaseException) -> str:
    """File and line of the innermost code of the user's own that an error comes from; empty if it does not."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((found for one in reversed(frames) if (found := _shown_if_own(one.filename, one.lineno))), "")


def _leaked_at(error: BaseException) -> str:
    """File and line of the user's own where JAX says that a leaked value was made; empty if it does not."""
    found = _LEAKED_AT.search(text_of(error))
    return _shown_if_own(found[1], found[2]) if found else ""


def _shown_if_own(file: str, line: object) -> str:
    own = not _NOT_OWN.search(file) and not file.startswith(_LIBRARIES)
    return f"{PurePath(file).name}, line {line}" if own else ""


def raised_in_callback(error: BaseException) -> str:
    """Type and message of what a Python function raised that an XLA program called; empty for any other error.

    JAX reports it as an error of its runtime, whose message contains the traceback.
    """
    _, begins, traceback = text_of(error).rpartition("Traceback (most recent call last):")
    if not begins or type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError"):
        return ""
    return next((line.strip() for line in traceback.splitlines() if line.strip() and not line.startswith(" ")), "")


def out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the device or the machine did not suffice."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text_of(error)


def printable(value: object, most: int = 200) -> str:
    """Untrusted text with terminal control characters replaced, cut to `most` characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:most])
