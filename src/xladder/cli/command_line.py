"""Parses command lines with tyro; what tyro would say in a box becomes one sentence of ours."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, get_type_hints

import tyro

from xladder.errors import UsageError, nearest

WIDE = "10000"  # columns: no line of a box is broken
RULE = re.compile("[─-]{3}")
POWER = re.compile(r"\d+(\.\d+)?[eE]\+?\d\d?")
KINDS = {
    "int()": "a whole number",
    "string to float": "a number",
    "[INT [INT": "whole numbers",
    "[FLOAT [FLOAT": "numbers",
}


def parse_words(options: Any, words: Sequence[str], program: str, about: str) -> Any:
    """Parse a command line into a dataclass.

    Args:
        options: The dataclass.
        words: The command line.
        program: The name of the program in the help text.
        about: The description in the help text.

    Returns:
        An instance of the dataclass; a `UsageError` for a flag or a value that it does not have.
    """
    words = _whole_numbers(options, words)
    if {"-h", "--help"} & {*words}:
        return tyro.cli(options, args=list(words), prog=program, description=about)
    _check_given_once(options, words)
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written), _wide_terminal():
            return tyro.cli(options, args=list(words), prog=program, description=about)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(explain(written.getvalue(), words, program)) from None


def explain(box: str, words: Sequence[str], program: str) -> str:
    """Say in a sentence what a box of tyro's says."""
    # A title, sections with rules of dashes between them, and a margin of two characters.
    lines = [line[2:].rstrip("│ ") for line in box.splitlines()[1:]]
    if lines and RULE.match(lines[0]):  # where a terminal has only ASCII, the title is underlined
        del lines[0]
    first = list(itertools.takewhile(lambda line: not RULE.match(line), lines))
    text = " ".join(line.strip() for line in first)
    if found := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)", text):
        choices = [choice.strip("' ") for choice in found[3].split(",")]
        named = [choice for choice in choices if choice not in ("", "None")]
        if "None" in choices:  # tyro has no order for those of an optional flag
            named.sort()
        return f"`{found[2]}` is {found[1]}, but it has to be one of {', '.join(named)}."
    if found := re.match(r"Error parsing (?:\S+[,/|]\s*)?(\S+?): (.*)", text):
        told = " ".join([found[2], *lines])  # the reason, or else the flag's help
        kind = next((kind for sign, kind in KINDS.items() if sign in told), "as `--help` says")
        return f"`{found[1]}` is {_values(found[1], words)}, but it has to be {kind}."
    if found := re.match(r"Missing value for argument '(-.*)'", text):
        return f"`{found[1]}` needs a value after it."
    if text.startswith("Missing"):
        missing = [line.strip() for line in first if re.match(r" {4}\S", line)]
        missing = missing or re.findall(r"argument '(.*?)'", text.upper().replace("ARGUMENT", "argument"))
        return f"`{program}` needs {' and '.join(f'`{one}`' for one in missing)}."
    if found := re.match(r"Unrecognized options: ([^,]*)", text):
        return _explain_unknown(found[1], lines[len(first) :], words, program)
    return f"{text} (`{program} --help`)"


def _explain_unknown(word: str, similar: Sequence[str], words: Sequence[str], program: str) -> str:
    """Say which word of a command line is not known, and what it may stand for."""
    switch = next((one.partition("=")[0] for one in words if one.endswith(f"={word}")), None)
    if switch:
        return f"`{switch}` takes no value: leave out `={word}`."
    if not word.startswith("-"):
        return f"`{word}` is one word too many: `{program} --help` says what it takes."
    flags = {*re.findall(r"--[\w.-]+", " ".join(similar))} - {word}
    near = nearest(word, flags, 0.7)
    hint = f"did you mean `{near}`?" if near else f"`{program} --help` lists all flags."
    return f"There is no `{word}` here: {hint}"


def _check_given_once(options: Any, words: Sequence[str]) -> None:
    """Raise a `UsageError` for a flag that is given again, where only its last value would count."""
    flags = Counter(word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--"))
    for flag, count in flags.items():
        if count > 1 and flag not in _appended(options):
            raise UsageError(f"`{flag}` is given {count} times: give it once.")


def _appended(options: Any) -> Iterator[str]:
    """The flags that may be given several times, each adding a value."""
    for name, kind in get_type_hints(options, include_extras=True).items():
        marks = getattr(kind, "__metadata__", ())
        if dataclasses.is_dataclass(inner := getattr(kind, "__origin__", kind)):
            yield from _appended(inner)
        elif tyro.conf.UseAppendAction in marks:
            yield f"--{name.replace('_', '-')}"


def _whole_numbers(options: Any, words: Sequence[str]) -> list[str]:
    """A command line with `1e7` as 10000000 after flags that take whole numbers."""
    flags, found, flag = dict(_integer_flags(options)), [], ""
    for word in words:
        is_flag = (word.startswith("-") and word[1:2].isalpha()) or word.startswith("--")
        name, equals, value = word.partition("=") if is_flag else (flag, "", word)
        name = f"--{name.lstrip('-').replace('_', '-')}"  # `-n` is `--n`
        if name in flags and POWER.fullmatch(value) and (number := Decimal(value)) == int(number):
            word = f"{word.partition('=')[0]}={int(number)}" if equals else str(int(number))
        flag = name if flags.get(name) or (is_flag and not equals) else ""
        found.append(word)
    return found


def _integer_flags(options: Any, prefix: str = "--") -> Iterator[tuple[str, bool]]:
    """The flags that take whole numbers, and whether they take several."""
    for name, kind in get_type_hints(options, include_extras=True).items():
        given = [mark.name for mark in getattr(kind, "__metadata__", ()) if getattr(mark, "name", None) is not None]
        inner = kind.__origin__ if hasattr(kind, "__metadata__") else kind
        own = (given or [name.replace("_", "-")])[0]
        if dataclasses.is_dataclass(inner):
            yield from _integer_flags(inner, f"{prefix}{own}." if own else prefix)
        elif inner in (int, int | None, tuple[int, ...]):
            yield prefix + own, inner == tuple[int, ...]


def _values(flag: str, words: Sequence[str]) -> str:
    """What a command line says after a flag."""
    names = [word.partition("=")[0].replace("_", "-").lstrip("-") for word in words]
    place = names.index(flag.lstrip("-")) if flag.lstrip("-") in names else len(words)
    after = itertools.takewhile(lambda word: not word.startswith("--"), words[place + 1 :])
    return " ".join([*"".join(words[place : place + 1]).split("=", 1)[1:], *after])


@contextlib.contextmanager
def _wide_terminal() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDE
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
