"""Configs as plain data: convert to a dict, and replace fields with checked values."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from xladder.errors import UsageError, need, unknown
from xladder.foreign_names import field_names, likely_name, own_name

T = TypeVar("T")
MOST_COUNT = 2**31 - 1  # arrays are indexed with 32 bits
MOST_LENGTH = 2**40  # of a run: some count frames, of which there may be several in a step
MOST_EPISODES = 10_000_000  # of one evaluation, also objects: more would take days, and their numbers too much memory
MOST_STEPS_SUMMED = 100  # rewards before bootstrapping: each is compiled by itself
MOST_LAYERS = 100  # of a network: each is compiled by itself
LARGEST_FLOAT = 2**53  # a float beyond it is not one whole number
# Old names of fields; a config with one of them is rejected, and the error gives the new name.
RENAMED = {
    "learner.sync_every": "learner.target_update_period",
    "learner.sync_freq": "learner.target_update_period",
    "learner.soft": "learner.tau",
    "pqn.trace": "pqn.lambda_",
}


class RenamedFields(UsageError):
    """Fields of a config by old names; the message gives the new ones."""


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a dataclass, nested or not, to JSON-ready dicts."""
    return dataclasses.asdict(config)


def flat(config: Any) -> dict[str, Any]:
    """Settings by their names, as on the command line."""

    def walk(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in tree.items():
            found |= walk(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
        return found

    return walk(to_dict(config), "")


def as_text(value: Any) -> str:
    """A setting as text: whole numbers with separators, fractions with as many digits as they need."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.10g}"
    return " ".join(map(as_text, value)) if isinstance(value, list | tuple) else str(value)


def as_whole(value: Any) -> Any:
    """A whole number that was written as 1e7, as an int; anything else as it is."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_FLOAT
    return int(value) if whole else value


def updated(config: T, changes: Mapping[str, Any], where: str = "", outside: Collection[str] = ()) -> T:
    """Replace fields of a config and check the types of their new values.

    Args:
        config: The config; it is not modified.
        changes: Field name → value; a nested mapping for a nested config.
        where: The prefix of field names in error messages, such as `learner.`.
        outside: The fields of the config that this one is nested in, for a name that belongs there.

    Returns:
        The new config.
    """
    if not where and (old := _renamed(config, changes)):
        raise RenamedFields(
            f"{', '.join(f'`{flag}` is called `{RENAMED[flag]}`' for flag in old)} now: rename "
            f"{'it' if len(old) == 1 else 'them'} in the config."
        )
    hints = get_type_hints(type(config))
    fields = {f.name for f in dataclasses.fields(config)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in changes.items():
        flag = f"{where}{name}"
        if name not in fields:
            if right := own_name(name, {where + field for field in field_names(config)}) or own_name(flag, outside):
                raise UsageError(f"There is no field `{flag}`: it is called `{right}` here.")
            if "." not in flag and (right := likely_name(name, set(field_names(config)))):
                raise UsageError(f"There is no field `{flag}`. Did you mean `{right}`?")
            raise unknown("field", flag, [where + f for f in fields])
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, Mapping):
                raise UsageError(f"`{flag}` is {value!r}, but it has to be a mapping of its fields.")
            values[name] = updated(getattr(config, name), value, f"{flag}.", outside or fields)
        else:
            values[name] = _checked(hints[name], value, flag)
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def _renamed(config: Any, changes: Mapping[str, Any], where: str = "") -> list[str]:
    """All fields in changes, also in nested ones, that a config has under another name now."""
    found: list[str] = []
    for name, value in changes.items():
        inner = getattr(config, name, None)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(inner):
            found += _renamed(inner, value, f"{where}{name}.")
        elif f"{where}{name}" in RENAMED and not hasattr(config, name):
            found.append(f"{where}{name}")
    return found


def check_counts(config: Any, where: str = "", most: int = MOST_LENGTH) -> None:
    """Raise a `UsageError` for a whole number in a config that is larger than anything could count."""
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), f"{where}{field.name}".replace("_", "-")
        if dataclasses.is_dataclass(value):
            check_counts(value, f"{flag}.", MOST_COUNT)
        for one in value if isinstance(value, tuple) else (value,):
            need(not isinstance(one, int) or one <= most, flag, one, f"it has to be {most:,} or less")


def need_no_protocol(world: str, protocol: str | None) -> None:
    """Raise a `UsageError` for a protocol that is given for a world without any."""
    if protocol is not None:
        raise UsageError(
            f"`{world}` has no protocols: leave out `--protocol`. `xladder presets` lists those there are."
        )


def chosen(presets: Mapping[str, T], preset: str, protocol: str | None = None) -> T:
    """Look up a preset; a `UsageError` if it contradicts `protocol`, or the protocol does not have it."""
    if preset in (absent := getattr(presets, "absent", {})):
        raise UsageError(absent[preset])
    if preset not in presets:
        raise unknown("preset", preset, presets)
    found = presets[preset]
    if protocol not in (None, getattr(found, "protocol", protocol)):
        raise UsageError(
            f"`--preset {preset}` and `--protocol {protocol}` are two different protocols: give only one of them."
        )
    return found


def _checked(hint: Any, value: Any, flag: str) -> Any:
    if get_origin(hint) is tuple:
        if isinstance(value, Mapping) and get_args(hint)[0] is str:  # arguments by name
            value = [f"{name}={item!r}" for name, item in value.items()]
        if not isinstance(value, list | tuple):
            raise UsageError(f"`{flag}` is {value!r}, but it has to be a list.")
        return tuple(_checked(get_args(hint)[0], item, flag) for item in value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UsageError(f"`{flag}` is {value!r}, but it has to be one of {', '.join(get_args(hint))}.")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise UsageError(f"`{flag}` is too large a number.") from None
    if hint is int:
        value = as_whole(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise UsageError(f"`{flag}` is {value!r}, but it has to be of type {hint.__name__}.")
    return value
