"""Errors a user can act on. Each carries the exit code of the command line; its text is a sentence with a way out."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class XladderError(Exception):
    """Something the user can put right. `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(XladderError):
    """A wrong name, value, path or combination; nothing has been started or written."""

    exit_code = 2


class Mismatch(XladderError):
    """What was written says something else than what was trained; nothing has been left behind."""

    exit_code = 1


class DamagedRun(XladderError):
    """A run directory whose saved agents cannot be read."""

    exit_code = 3


class FaultFound(XladderError):
    """A check that the user asked for has found a fault in the code; the traceback is in log.txt."""


class Diverged(XladderError):
    """A loss or parameter stopped being a finite number. `report` says which and when."""

    exit_code = 4
    report: Mapping[str, Any] = {}


class ResourceError(XladderError):
    """Disk or memory failed while a run was under way."""

    exit_code = 5


class PeerLost(XladderError):
    """Another process of the run is gone, stuck or has never come."""

    exit_code = 75


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has ended a run in Python; `result` is what was trained by then, and it is saved if it had a directory."""

    def __init__(self, text: str, result: Any):
        super().__init__(text)
        self.result = result


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist: says which do, and which is nearest."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return UsageError(f"There is no {kind} `{name}`.{hint} There are: {', '.join(known)}.")


def missing_extra(package: str, extra: str) -> UsageError:
    """The error for a package that an optional extra would have brought."""
    return UsageError(f"`{package}` is not installed. Install it with: pip install 'xladder[{extra}]'")


def uneven(flag: str, value: int, devices: int) -> UsageError:
    """What to say of a number that devices cannot share; it names the nearest that they can."""
    near = dict.fromkeys([value // devices * devices or devices, -(-value // devices) * devices])
    return UsageError(
        f"`--{flag}` is {value}, which {devices} devices cannot share evenly: use {' or '.join(map(str, near))}."
    )


def brief(error: BaseException) -> str:
    """The kind of an error and the first line of its text."""
    text = printable(" ".join((str(error).splitlines() or [""])[0].split()).removesuffix("."))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def printable(value: object, most: int = 200) -> str:
    """What somebody else has said, without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:most])
