"""The help of commands. Where one takes a workload: its own settings first, then how and where it runs, in groups."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import shutil
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro

from xladder.registry import RUNGS, Workload
from xladder.settings import as_text, flat

if TYPE_CHECKING:
    from xladder.protocols import Config

ASKED = {"-h", "--help", "--help-all"}
RUN = "this run"
RARE = {
    "evaluation, checkpoints and records": (
        [
            "eval_episodes",
            "record_every",
            "ticks_per_row",
            "track",
            "checkpoint_every",
            "keep",
            "on_nan",
            "watch",
            "imports",
            "json",
        ]
    ),
    "devices and processes": (
        [
            "mesh",
            "threads",
            "actors",
            "shards",
            "ray",
            "lock_step",
            "coordinator",
            "num_hosts",
            "host_id",
            "init_timeout",
            "stall_timeout",
        ]
    ),
    "debugging and profiling": ["debug", "profile", "timings"],
}
RARE_OPTIONS = [group for group in RARE if group != "evaluation, checkpoints and records"]
OWN_CODE = "code of your own"
CODE_FLAGS = {
    "--import MODULE": "Import this module first: a run never imports anything by itself. May be given several times.",
    "--changed-code": "Use code of yours that has changed since the run started.",
}
"""Taken by the main program, before a command sees its words."""
WITHOUT_CODE = ("diff", "doctor", "plot", "presets", "rm", "rungs", "runs")
"""Commands that import no code of the user's."""
WORDS: dict[Any, str] = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
MARGIN, COLUMN, PRESET_COLUMN = 2, 30, 16
ALL_RUNGS = "torch, compiled, "
"""How the text of a flag begins that lists all rungs."""
PROTOCOL = "Start from the settings published under this protocol; `xladder presets` has their sources."


class Flag(NamedTuple):
    """One line of the help."""

    name: str  # of the field
    group: str  # that it is listed in
    usage: str
    about: str
    default: str


def page(
    program: str,
    about: str,
    workload: Workload,
    presets: Mapping[str, Any],
    options: Any,
    config: Config,
    words: Sequence[str],
    protocols: Sequence[str] = (),
    protocol: str | None = None,
) -> str:
    """The help text.

    Args:
        program: The command, such as `xladder train cartpole`.
        about: What it does.
        workload: The workload.
        presets: Its presets.
        options: The command's own options, with their defaults.
        config: The settings of the workload, with their defaults.
        words: The command line; with `--help-all` rare flags are listed as well.
        protocols: Those under which something is published for the workload, unless a setting says which.
        protocol: The one whose settings are shown, if one is given.
    """
    settings = list(_flags(config, "settings"))
    first = [flag for flag in settings if flag.name == workload.length]
    own = list(_with_protocol((_for(workload, flag) for flag in _flags(options, RUN)), protocols, protocol))
    groups = {"settings": first, RUN: []}
    for flag in [*(flag for flag in settings if flag not in first), *own]:
        rare = next((group for group, names in RARE.items() if flag.name in names and flag.group == RUN), None)
        groups.setdefault(rare or flag.group, []).append(flag)
    if getattr(config, "algorithm", "pqn") != "pqn":
        groups.pop("pqn", None)
    groups[OWN_CODE] = list(_code_flags(program))
    late = [group for group in (*RARE, OWN_CODE) if group in groups]
    shown = [group for group in groups if group != RUN and group not in late] + [RUN]
    everything = "--help-all" in words
    told = workload.family.about_presets(presets) if "default" in presets else {}
    lines = [f"usage: {program} [OPTIONS]", "", *_sentence(about), "", "presets:"]
    lines += [line for name, text in preset_lines(presets, told).items() for line in _preset(name, text)] + [""]
    for group in shown + (late if everything else []):
        lines += [f"{group}:", *(line for flag in groups[group] for line in _lines(flag)), ""]
    if late and not everything:
        lines += textwrap.wrap(f"`{program} --help-all` also has: {'; '.join(late)}.", _width())
    return "\n".join(lines).rstrip() + "\n"


def _for(workload: Workload, flag: Flag) -> Flag:
    """A flag as it is for a workload: `--rung` takes only the rungs that it has."""
    if flag.name != "rung" or not flag.about.startswith(ALL_RUNGS):
        return flag
    named = [name for name in RUNGS if name in flag.about and name not in workload.missing]
    has = [name + " (the default)" * (name == workload.rung) for name in named]
    return flag._replace(about=f"{', '.join(has[:-1])} or {has[-1]}.")


def _with_protocol(flags: Iterable[Flag], protocols: Sequence[str], protocol: str | None) -> Iterator[Flag]:
    """Flags, and after `--preset` the one for the protocols, if there are any."""
    for flag in flags:
        yield flag
        if flag.name == "preset" and protocols:
            yield Flag("protocol", RUN, f"--protocol {'|'.join(protocols)}", PROTOCOL, protocol or "")


def short_page(program: str, about: str, options: type, command: tuple[str, str] | None = None) -> str:
    """The help text of a command that has only its own options.

    Args:
        program: The command, such as `xladder eval`.
        about: What it does.
        options: The dataclass of the options.
        command: The command that follows them, as it stands in the usage, and what it is.
    """
    groups: dict[str, list[Flag]] = {"arguments": [], "options": []}
    for flag in _flags(options, "options"):
        rare = next((group for group in RARE_OPTIONS if flag.name in RARE[group]), flag.group)
        groups.setdefault(rare if flag.usage.startswith("-") else "arguments", []).append(flag)
    usage = ["usage:", program, *(flag.usage for flag in groups["arguments"])]
    usage += ["[OPTIONS]"] if groups["options"] else []
    if command:
        usage.append(command[0])
        groups["arguments"].append(Flag("", "arguments", *command, ""))
    lines = [" ".join(usage), "", *_sentence(about), ""]
    for group, flags in {**groups, OWN_CODE: list(_code_flags(program))}.items():
        if flags:
            lines += [f"{group}:", *(line for flag in flags for line in _lines(flag)), ""]
    return "\n".join(lines).rstrip() + "\n"


def without_workload(command: str, about: str, summaries: Mapping[str, str]) -> str:
    """The help text of a command that needs a workload and was given none: which there are."""
    lines = [f"usage: xladder {command} NAME [OPTIONS]", "", *_sentence(about), "", "workloads:"]
    for name, summary in summaries.items():
        lines += _lines(Flag(name, "", name, summary, ""))
    lines += ["", *textwrap.wrap(
        f"`xladder {command} NAME --help` shows the settings of a workload, `xladder worlds` lists every world. "
        "`module:Name` is one of your own.", _width())]  # fmt: skip
    return "\n".join(lines) + "\n"


def _code_flags(program: str) -> Iterator[Flag]:
    """The flags for the user's own code, if the command takes them."""
    if program.split()[1] not in WITHOUT_CODE:
        for usage, text in CODE_FLAGS.items():
            yield Flag(usage, OWN_CODE, usage, text, "")


def preset_lines(presets: Mapping[str, Any], about: Mapping[str, str]) -> dict[str, str]:
    """What each preset is. One that nothing is said of is described by what it changes first."""
    lines = {}
    for name, preset in presets.items():
        is_default = preset == presets["default"]
        if name == "default":
            lines[name] = "; ".join(filter(None, ["used if none is named", about.get(name)]))
        elif is_default:
            lines[name] = "; ".join(filter(None, [about.get(name), "same as default"]))
        else:
            lines[name] = about.get(name) or ", ".join(as_words(changes(presets, name)))
    return lines


def changes(presets: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings in which a preset differs from `default`."""
    before = flat(presets["default"])
    return {key: value for key, value in flat(presets[name]).items() if before.get(key) != value}


def as_words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as `learner.lr 0.001`."""
    return [f"{key} {as_text(value)}" for key, value in settings.items()]


def _preset(name: str, text: str) -> list[str]:
    """A preset and what it is."""
    first, *more = textwrap.wrap(text, _width() - PRESET_COLUMN, max_lines=3, placeholder=" …")
    return [f"  {name}".ljust(PRESET_COLUMN - 1) + f" {first}", *(" " * PRESET_COLUMN + line for line in more)]


def _flags(tree: Any, group: str, prefix: str = "") -> Iterator[Flag]:
    """All fields of a dataclass or of an instance, nested ones after the others."""
    owner: Any = tree if isinstance(tree, type) else type(tree)
    kinds, texts = get_type_hints(owner, include_extras=True), docstrings(owner)
    nested = []
    for field in dataclasses.fields(tree):
        kind, value = kinds[field.name], _value(tree, field)
        marks = {key: value for mark in getattr(kind, "__metadata__", ()) for key, value in _named(mark).items()}
        name = marks.get("name", _as_flag(field.name))
        if dataclasses.is_dataclass(value):
            nested.append((value, f"{prefix}{name}." if name else prefix))
            continue
        if tyro.conf.Positional in getattr(kind, "__metadata__", ()):
            default = "" if value in (None, "", ()) else _default(value)
            yield Flag(field.name, group, marks.get("metavar") or _metavar(kind), texts.get(field.name, ""), default)
            continue
        shown = ", ".join([*marks.get("aliases", ()), f"--{prefix}{name}"])
        if isinstance(value, bool):
            usage, default = shown, f"on; --{prefix}no-{name} turns it off" if value else ""
        else:
            usage = f"{shown} {marks.get('metavar') or _metavar(kind)}"
            default = "" if value in (None, "", ()) else _default(value)
            if isinstance(tree, type) and field.default is field.default_factory is dataclasses.MISSING:
                default = "required"
        yield Flag(field.name, group, usage, texts.get(field.name, ""), default)
    for value, inner in nested:
        yield from _flags(value, inner.rstrip(".") if inner != prefix else group, inner)


def _value(tree: Any, field: dataclasses.Field[Any]) -> Any:
    """The value of a field of an instance, or its default in a dataclass; None where a value has to be given."""
    if not isinstance(tree, type):
        return getattr(tree, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _named(mark: Any) -> dict[str, Any]:
    """What an annotation of tyro's says of a flag's names and value."""
    names = ("name", "metavar", "aliases")
    return {name: getattr(mark, name) for name in names if getattr(mark, name, None) is not None}


def _as_flag(name: str) -> str:
    """A field's name as tyro writes it: an underscore at the end stays."""
    inner = name.rstrip("_")
    return inner.replace("_", "-") + name[len(inner) :]


def _metavar(kind: Any) -> str:
    """What stands for a value of this type."""
    if hasattr(kind, "__metadata__"):
        return _metavar(get_args(kind)[0])
    inner = [part for part in get_args(kind) if part not in (type(None), ...)]
    if get_origin(kind) is Literal:
        return "|".join(map(str, inner))
    if get_origin(kind) in (Union, types.UnionType):
        return "|".join(dict.fromkeys(map(_metavar, inner)))
    if get_origin(kind) in (tuple, list):
        return f"{_metavar(inner[0])} …" if inner else "…"
    return WORDS.get(kind, "VALUE")


def _default(value: Any) -> str:
    """A default as it is written after a flag."""
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


@cache
def docstrings(kind: type) -> dict[str, str]:
    """The strings below the fields of a dataclass and of those that it inherits from."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):
            continue
        body = getattr(definition, "body", [])
        for field, after in pairwise(body):
            says = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and says:
                texts[field.target.id] = inspect.cleandoc(str(after.value.value)).replace("\n", " ")
    return texts


def _lines(flag: Flag) -> list[str]:
    """A flag, what it does, and its default."""
    text = flag.about + (f" ({flag.default})" if flag.default else "")
    head, room = " " * MARGIN + flag.usage, _width() - COLUMN
    body = textwrap.wrap(text, room) or [""]
    if len(head) <= COLUMN - 2:
        return [head.ljust(COLUMN) + body[0], *(" " * COLUMN + line for line in body[1:])]
    return [_short(head), *(" " * COLUMN + line for line in body)]


def _short(line: str) -> str:
    """A line that fits."""
    return line if len(line) <= _width() else line[: _width() - 2] + " …"


def _sentence(text: str) -> list[str]:
    """What a command does, as lines that begin with a capital letter."""
    return textwrap.wrap(text[:1].upper() + text[1:], _width())


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 120)
