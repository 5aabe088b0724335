"""Plans as files: config.json, and how it is read back with the checks of a command line."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from xladder import user_code
from xladder.devices import DeviceName
from xladder.errors import UsageError, printable
from xladder.plans import Plan, make_plan, plan_to_show
from xladder.registry import RungOptions
from xladder.runs.reading import Unreadable, read_json
from xladder.runs.upgrades import CAN, is_old_run
from xladder.settings import RenamedFields, to_dict
from xladder.worlds.table_files import only_recorded

NOT_OF_THE_RUN = ("rung", "device", "options", "code")  # a resumed run may change these and is still the same run

PARTS = (
    "workload",
    "rung",
    "seed",
    "seeds",
    "device",
    "options",
    "ticks_per_row",
    "config",
    "code",
)  # of a described plan


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Convert a plan to JSON-ready data."""
    return {
        "workload": plan.workload.name,
        "rung": plan.rung,
        "seed": plan.seeds[0],
        "seeds": len(plan.seeds) if plan.is_range else list(plan.seeds),
        "device": plan.device,
        "options": {name: value for name, value in asdict(plan.options).items() if value is not None},
        **({"ticks_per_row": plan.ticks_per_row} if plan.ticks_per_row > 1 else {}),
        "config": _spelled(to_dict(plan.config)),
        **({"code": code} if (code := user_code.digests(to_dict(plan.config))) else {}),
    }


def run_metadata(plan: Plan) -> dict[str, Any]:
    """The metadata that identify the run of a checkpoint, on whatever rung and device it is resumed."""
    return {name: value for name, value in describe_plan(plan).items() if name not in NOT_OF_THE_RUN}


def read_run_plan(folder: Path) -> Plan:
    """Read the plan of a run directory."""
    path = _config_of(folder)
    try:
        return parse_plan(_read_file(path), f"`{path}`")
    except RenamedFields as error:
        if not is_old_run(folder):
            raise
        names = str(error).removesuffix(" in the config.")
        raise UsageError(
            f"`{path}` was written by xladder 0.1. {names} in a copy of the run. Then this version can {CAN} it, and "
            "train its agents on in a new run (`train --from`). Only xladder 0.1 can resume it."
        ) from None


def read_run_settings(folder: Path) -> dict[str, Any]:
    """Read the plan of a run directory as plain data: settings can be compared without the code that they name."""
    path = _config_of(folder)
    data = _read_file(path)
    _check_shape(data, f"`{path}`")
    return {name: data[name] for name in PARTS if name in data}


def read_plan(path: Path) -> Plan:
    """Read the plan in a config.json that the user names, with the same checks as for a command line."""
    return parse_plan(read_config(path), f"`{path}`")


def read_workload(path: Path) -> str:
    """Read the name of the workload in a config.json that the user names."""
    data = read_config(path)
    _check_shape(data, f"`{path}`")
    return str(data["workload"])


def read_config(path: Path) -> dict[str, Any]:
    """Read everything in a config.json; a link is not followed, because it may be in a stranger's directory."""
    return _read_file(path)


def parse_plan(data: Any, where: str) -> Plan:
    """The inverse of `describe_plan`; `where` names the source in error messages."""
    given = _checked(data, where)
    found = make_plan(**given, device=data.get("device"))
    user_code.check_unchanged(data.get("code") or {}, where.strip("`"), given["changes"])
    return found


def parse_plan_to_show(data: Any, where: str) -> Plan:
    """The plan of a run that is only shown: as `parse_plan`, but worlds of other packages are not made."""
    given = _checked(data, where)
    with only_recorded(data.get("code") or {}):
        return plan_to_show(**given)


def parse_plan_to_replay(data: Any, where: str) -> Plan:
    """The plan of a run whose agents act for a page that others may see: tables are read only if it knows them."""
    with only_recorded(data.get("code") or {}):
        return parse_plan(data, where)


def _checked(data: Any, where: str) -> dict[str, Any]:
    """The arguments of `make_plan` in a described plan, after checks of their types and of the code that they name."""
    _check_shape(data, where)
    rung_options = dict(data.get("options") or {})
    rung_options.pop("ray", None)  # whoever answers there sends objects that are unpickled: only a user may name it
    changes = _read(data["config"])
    user_code.check_named([data["workload"], changes])
    return {
        "workload": data["workload"],
        "rung": data["rung"],
        "seed": 0 if type(data["seeds"]) is list else data["seed"],
        "seeds": data["seeds"],
        "options": RungOptions(**rung_options),
        "ticks_per_row": data.get("ticks_per_row", 1),
        "changes": changes,
    }


def _config_of(folder: Path) -> Path:
    if not str(folder).isprintable():
        raise UsageError(f"`{printable(folder)}` has control characters in its name: rename it.")
    if not (folder / "config.json").is_file():
        raise UsageError(f"`{folder}` is not a run directory: it has no config.json.")
    return folder / "config.json"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except Unreadable as error:
        raise UsageError(f"`{path}` is not a config that xladder wrote: {error}.") from None


def _check_shape(data: Any, where: str) -> None:
    """Raise a `UsageError` unless data has the parts of a plan, each of its type."""
    kinds: dict[str, Any] = {"workload": str, "rung": str, "seed": int, "seeds": int, "config": dict}
    if isinstance(data, dict) and type(data.get("seeds")) is list and all(type(s) is int for s in data["seeds"]):
        kinds["seeds"] = list
    if not isinstance(data, dict) or any(type(data.get(k)) is not kind for k, kind in kinds.items()):
        raise UsageError(f"{where} is not a config that xladder wrote: it needs {', '.join(kinds)}.")
    device = data.get("device")
    if device is not None and device not in (known := typing.get_args(DeviceName)):
        raise UsageError(f"`device` in {where} is {device!r}, but it has to be {', '.join(known)} or null.")
    rung_options = data.get("options") or {}
    kinds = typing.get_type_hints(RungOptions)
    if not isinstance(rung_options, dict) or any(
        k not in kinds or not _is_kind(v, kinds[k]) for k, v in rung_options.items()
    ):
        raise UsageError(f"`options` in {where} is {rung_options!r}, which was not written by xladder.")
    rows = data.get("ticks_per_row", 1)
    if type(rows) is not int or rows < 1:
        raise UsageError(f"`ticks_per_row` in {where} is {rows!r}, but it has to be a whole number of 1 or more.")
    recorded = data.get("code") or {}
    if not isinstance(recorded, dict) or any(type(text) is not str for text in recorded.values()):
        raise UsageError(f"`code` in {where} is {recorded!r}, which was not written by xladder.")


def _is_kind(value: Any, kind: Any) -> bool:
    """Whether a value from a file has one of the types that a field allows."""
    return type(value) in typing.get_args(kind)


def _spelled(config: object) -> Any:
    """Spell infinity in a config as a string, because JSON has no number for it."""
    if isinstance(config, Mapping):
        return {name: _spelled(value) for name, value in config.items()}
    return str(config) if isinstance(config, float) and np.isinf(config) else config


def _read(config: Any) -> Any:
    """The inverse of `_spelled`."""
    if isinstance(config, Mapping):
        return {name: _read(value) for name, value in config.items()}
    return float(config) if config in ("inf", "-inf") else config
