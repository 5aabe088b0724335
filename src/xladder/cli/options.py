"""Flags: a command's own options and every field of a workload's config, parsed by tyro from the same dataclasses."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import tyro
from rich.console import Console

from xladder.cli import help_page
from xladder.cli.command_line import parse_words
from xladder.errors import UsageError, printable
from xladder.foreign_names import field_names, flag_elsewhere, likely_name, other_unit, own_name
from xladder.plans import fit_length, format_seeds
from xladder.registry import RUNGS, RungOptions, Workload, check_name, options_for
from xladder.settings import MOST_EPISODES, chosen

if TYPE_CHECKING:
    from xladder.protocols import Config

Options = TypeVar("Options")


def parse(
    options: type[Options], words: Sequence[str], program: str, about: str, command: tuple[str, str] | None = None
) -> Options:
    """Parse a command that has only its own options; its help names the `command` that follows them, and what it is."""
    if help_page.ASKED & {*words}:
        sys.stdout.write(help_page.short_page(program, about, options, command))
        raise SystemExit(0)
    known = set(_flags_of(options))
    for flag in (word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")):
        if (name := flag.replace("-", "_")) not in known and (right := flag_elsewhere(name, known)):
            raise UsageError(f"There is no `--{flag}`: it is called `--{right.replace('_', '-')}` here.")
    parsed: Options = parse_words(options, words, program, about)
    return parsed


def with_workload(words: Sequence[str], command: str) -> Sequence[str]:
    """A command line that begins with a workload, if it has a `--config` to say which."""
    file = _value(words, "--config")
    if not file or not words[0].startswith("-") or {"-h", "--help", "--help-all"} & {*words}:
        return words
    from xladder.runs.plan_files import read_workload

    check_exists(file)
    name = read_workload(Path(file))
    if ":" in name:  # only a command line may name code to import
        line = f"{command} {shlex.join([name, *words])}"
        raise UsageError(f"`{file}` is of code that is imported only if you name it: `{printable(line)}`.")
    return [name, *words]


def parse_with_config(
    options: type[Options],
    workload: Workload,
    words: Sequence[str],
    program: str,
    about: str,
    compared: bool = False,
) -> tuple[Options, Any]:
    """Parse a command's options together with the fields of the workload's config.

    `--preset` and `--config` determine the defaults of the fields, so they are read first.

    Args:
        options: The dataclass of the command's own options.
        workload: The workload.
        words: The command line.
        program: The name of the program in the help text.
        about: The description in the help text.
        compared: Whether the defaults are those of a short comparison, not of a whole run.

    Returns:
        The options and the config.
    """
    family = workload.family
    preset, file, protocol = (_value(words, flag) for flag in ("--preset", "--config", "--protocol"))
    if file:
        check_exists(file)
    if preset and file:
        raise UsageError("`--preset` and `--config` both set the defaults: give only one of them.")
    if protocol and file:
        raise UsageError("`--config` already has its protocol's settings: leave out `--protocol`, or `--config`.")
    presets = family.presets(workload.name, protocol)
    defaults: dict[str, Any] = {}
    start = chosen(presets, preset or "default", protocol)
    if file:
        from xladder.runs.directory import read_keeping
        from xladder.runs.plan_files import read_plan

        plan = read_plan(Path(file))
        if plan.workload.name != workload.name:
            raise UsageError(f"`{file}` is a config of `{plan.workload.name}`, not of `{workload.name}`.")
        known: dict[str, Any] = {"rung": plan.rung, "device": plan.device}
        if plan.is_range:
            known |= {"seed": plan.seeds[0], "seeds": len(plan.seeds)}
        elif not any(_value(words, flag) for flag in ("--seed", "--seeds")):
            raise UsageError(
                f"`{file}` has {format_seeds(plan)}, which `--seed` and `--seeds` cannot express: give others, or "
                "use `xladder.train(seeds=[…])` in Python."
            )
        known |= dataclasses.asdict(_understood(_value(words, "--rung") or plan.rung, plan.options))
        known |= dataclasses.asdict(read_keeping(Path(file)))
        names = {field.name for field in dataclasses.fields(options)}  # type: ignore[arg-type]
        start, defaults = plan.config, {k: v for k, v in known.items() if k in names and v is not None}
    if compared:
        start = family.compared(start)
    both = dataclasses.make_dataclass(
        "both",
        [
            ("options", Annotated[options, tyro.conf.arg(name="")], dataclasses.field(default=options(**defaults))),
            ("config", Annotated[type(start), tyro.conf.arg(name="")], dataclasses.field(default=start)),
        ],
    )
    if protocol and not hasattr(
        start, "protocol"
    ):  # its settings are in the preset, and nothing else is named after it
        words = _without(words, "--protocol")
    if help_page.ASKED & {*words}:
        from xladder.cli.published import protocols_for

        protocols = () if hasattr(start, "protocol") else protocols_for(workload.name)
        program = f"{program} {workload.name}"
        own = options(**defaults)
        sys.stdout.write(help_page.page(program, about, workload, presets, own, start, words, protocols, protocol))
        raise SystemExit(0)
    check_flags(words, set(_flags_of(options)), start)
    parsed = parse_words(both, words, f"{program} {workload.name}", about)
    config, note = fit_length(parsed.config)
    check_name(workload, config)
    if note and (_value(words, "--host-id") or "0") == "0":  # once, not once per host
        print(note, file=sys.stderr)
    return parsed.options, config


def _flags_of(options: Any) -> Iterator[str]:
    """The names of a command's own options and their flags, nested ones by their last name."""
    for name, kind in get_type_hints(options, include_extras=True).items():
        inner, marks = getattr(kind, "__origin__", kind), getattr(kind, "__metadata__", ())
        if dataclasses.is_dataclass(inner):
            yield from _flags_of(inner)
        yield name
        yield from (mark.name.replace("-", "_") for mark in marks if getattr(mark, "name", None))


def check_flags(words: Sequence[str], options: Collection[str], config: Config) -> None:
    """Raise a `UsageError` for a flag that has another name here; the error gives it."""
    fields = set(field_names(config))
    for word in words:
        flag = word.partition("=")[0].removeprefix("--")
        name = flag.replace("-", "_")
        if not word.startswith("--") or name in fields or name in options:
            continue
        if right := own_name(name, fields):
            if unit := other_unit(name, right):
                raise UsageError(f"There is no `--{flag}` here: training length is `--{right}`, which counts {unit}.")
            raise UsageError(f"There is no `--{flag}`: it is called `--{_as_flag(right)}` here.")
        off, bare = name.startswith("no_"), name.removeprefix("no_")
        if "." in flag or bare in fields or bare in options:
            continue
        likely = (own_name(bare, fields) if off else None) or likely_name(bare, {*fields, *options})
        if likely in fields:  # tyro says it of the command's own options
            raise UsageError(f"There is no `--{flag}` here: did you mean `--{_as_flag(likely, off)}`?")


def _as_flag(field: str, off: bool = False) -> str:
    """A setting as its flag, or as the flag that turns it off."""
    group, dot, last = field.replace("_", "-").rpartition(".")
    return f"{group}{dot}{'no-' if off else ''}{last}"


def _understood(rung: str, options: RungOptions) -> RungOptions:
    """Keep the options that the rung has; an unknown rung is reported later."""
    return options_for(rung, options) if rung in RUNGS else options


def split_tags(given: Sequence[str]) -> tuple[str, ...]:
    """Tags that were given one by one or with commas between them, each once."""
    return tuple(dict.fromkeys(tag for word in given for tag in word.split(",") if tag))


def parse_condition(text: str) -> float | tuple[float, ...]:
    """The condition of a sampler: a number, or several weights with commas between them."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"`--condition` is {text}, but it has to be a number, or weights with commas between them, such as 0.3,0.7."
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def check_count(flag: str, count: int) -> None:
    """Raise a `UsageError` unless so many episodes or objects can be evaluated."""
    if not 1 <= count <= MOST_EPISODES:
        raise UsageError(f"`{flag}` is {count}, but it has to be 1 to {MOST_EPISODES:,}.")


def print_line(console: Console, line: str) -> None:
    """Print a line without markup, highlighting or wrapping."""
    console.print(line.strip(), highlight=False, markup=False, soft_wrap=True)


def check_exists(config: str) -> None:
    """Raise a `UsageError` if there is no such config file; what is wrong with one that exists is said elsewhere."""
    try:
        Path(config).stat()
    except FileNotFoundError:
        raise UsageError(f"`{printable(config)}` does not exist: give the config.json of a run.") from None
    except OSError:
        pass


def check_writable(path: Path | None) -> None:
    """Raise a `UsageError` if a file cannot be written, before a minute of measuring for it; `-` is standard output."""
    if path is None or str(path) == "-":
        return
    try:
        if path.exists() or path.parent.is_dir():
            new = not path.exists()
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666))
            if new:
                path.unlink()
            return
        nearest = next(folder for folder in path.absolute().parents if folder.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error.strerror or error}.") from None


def write_json_file(path: Path | None, data: Any) -> None:
    """Write a command's `--json` file; `-` is standard output."""
    if path is None:
        return
    from xladder.runs.disk import to_json

    # Names may come from someone else's directory: what could control a terminal stays escaped.
    text = "".join(x if x.isprintable() or x == "\n" else json.dumps(x)[1:-1] for x in to_json(data))
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error.strerror or error}.") from None


def _without(words: Sequence[str], flag: str) -> list[str]:
    """A command line without a flag and its value."""
    kept = [word for before, word in pairwise(["", *words]) if before != flag and word != flag]
    return [word for word in kept if not word.startswith(f"{flag}=")]


def _value(words: Sequence[str], flag: str) -> str | None:
    values = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    values += [after for word, after in pairwise(words) if word == flag]
    if len(values) > 1:
        raise UsageError(f"`{flag}` is given {len(values)} times: give it once.")
    return values[0] if values else None
