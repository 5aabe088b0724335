"""Plans: a workload with its config, the rung that executes it, seeds and device. Checked before JAX is imported."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from xladder import user_code
from xladder.core.array_sizes import too_large
from xladder.core.metric_rows import default_ticks_per_row
from xladder.devices import DeviceName
from xladder.errors import UsageError, printable
from xladder.protocols import Config
from xladder.registry import (
    RUNGS,
    RungOptions,
    Workload,
    check_name,
    check_options,
    check_rung,
    find_rung,
    find_workload,
)
from xladder.settings import MOST_COUNT, chosen, updated
from xladder.worlds import names

MOST_SEEDS = 100_000


@dataclass(frozen=True)
class Plan:
    """Everything that defines a run: workload, config, rung, seeds, device and rung options."""

    workload: Workload
    """The workload, an entry of `xladder.WORKLOADS`."""
    config: Config
    """All its settings."""
    rung: str
    """The name of the rung."""
    seeds: tuple[int, ...]
    """The seeds, each of which is trained by itself."""
    device: str | None = None
    """`"cpu"`, `"gpu"` or `"tpu"`; None for the best that JAX finds."""
    options: RungOptions = field(default_factory=RungOptions)
    """Options that only some rungs have."""
    ticks_per_row: int = 1
    """Ticks per row of metrics."""

    @property
    def is_range(self) -> bool:
        """Whether the seeds are consecutive, as `--seed` and `--seeds` produce them."""
        return self.seeds == tuple(range(self.seeds[0], self.seeds[0] + len(self.seeds)))


def plan(
    workload: str | object,
    rung: str | None = None,
    *,
    seed: int = 0,
    seeds: int | Sequence[int] = 1,
    device: str | None = None,
    preset: str = "default",
    protocol: str | None = None,
    config: Config | None = None,
    options: RungOptions | None = None,
    ticks_per_row: int | None = None,
    changes: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    **fields: Any,
) -> Plan:
    """Plan a run without starting it; invalid names and values raise an error now.

    Modules of yours that the arguments name as `module:Name` may be imported.

    Args:
        workload: The name of a workload or world, such as `"treasurehunt"` or `"atari/pong"`, or a world of your own:
            an object or class with the API of gymnax, Gymnasium, JaxMARL, PettingZoo, sorrel or `xladder.worlds.flow`.
        rung: How to execute it: a key of `xladder.RUNGS`; the workload's default if not given.
        seed: The first seed.
        seeds: Number of consecutive seeds, or a list of distinct seeds.
        device: `"cpu"`, `"gpu"` or `"tpu"`; the best that JAX finds if not given.
        preset: The named settings to start from.
        protocol: The published protocol to start from, where the workload has any.
        config: Settings to start from instead: a config object of the workload.
        options: Options that only some rungs have.
        ticks_per_row: Ticks per row of metrics; 1 if not given, more in runs that would have more than 20,000 rows.
        changes: Config fields to change, as a mapping.
        imports: Modules of your own to import first.
        **fields: Config fields to change, as keywords; nested ones as dicts: `learner={"lr": 3e-4}`.

    Returns:
        The plan, to be executed by `xladder.execution.execute`.
    """
    check_types(rung=rung, preset=preset, protocol=protocol, device=device, options=options, changes=changes)
    if options is not None:
        check_types(**asdict(options))
        # NumPy's integers are as good, but a config.json cannot hold them.
        counts: dict[str, Any] = {name: operator.index(n) for name, n in asdict(options).items() if is_whole(n)}
        options = replace(options, **counts)
    allow_imports(imports)
    name = names.name_of(workload)
    changed = user_code.as_names({**(changes or {}), **fields})
    user_code.allow_named([name, changed])
    return make_plan(
        name,
        rung,
        seed=seed,
        seeds=seeds,
        device=device,
        preset=preset,
        protocol=protocol,
        config=config,
        options=options,
        ticks_per_row=ticks_per_row,
        changes=changed,
    )


def make_plan(
    workload: str,
    rung: str | None = None,
    *,
    seed: int = 0,
    seeds: int | Sequence[int] = 1,
    device: str | None = None,
    preset: str = "default",
    protocol: str | None = None,
    config: Config | None = None,
    options: RungOptions | None = None,
    ticks_per_row: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a run from untrusted names, such as those in a file; only modules that the user has named are imported."""
    found, options = find_workload(workload), options or RungOptions()
    rung = rung or ("mesh" if options.mesh else found.rung)
    find_rung(rung, found)
    family = found.family
    start = chosen(family.presets(found.name, protocol), preset, protocol)
    if config is not None and getattr(config, "family", None) is not family:
        raise UsageError(
            f"`config` is of type {type(config).__name__}, but it has to be a config of `{found.name}`, such as "
            f"`xladder.plan({found.name!r}).config`; single fields are keywords, such as `learner={{'lr': 3e-4}}`."
        )
    config = updated(start if config is None else config, changes or {})
    check_name(found, config)  # before the world that it names is made
    config, note = fit_length(config)
    if note:
        warn(note)
    check_rung(rung, found, config)
    check_options(rung, options)
    every = check_seeds(seed, seeds)
    if "mesh" in RUNGS[rung].options:
        if not options.mesh:
            raise UsageError(f"The rung `{rung}` needs `--mesh`: `seeds=4`, `data=4` or both, with a comma.")
        from xladder.rungs import layout

        config = layout.fit(family, config, layout.parse(options.mesh), len(every))
    if ticks_per_row is None:
        ticks_per_row = default_ticks_per_row(config.ticks, len(every))
    check_ticks_per_row(ticks_per_row)
    return Plan(found, config, rung, every, device, options, ticks_per_row)


def plan_to_show(
    workload: str,
    rung: str,
    *,
    seed: int,
    seeds: int | Sequence[int],
    options: RungOptions,
    ticks_per_row: int,
    changes: Mapping[str, Any],
) -> Plan:
    """A plan of a run that is only shown: arguments as for `make_plan`, but worlds of other packages are not made.

    So what depends on them is not checked, and the plan cannot be executed.
    """
    found = find_workload(workload)
    family = found.family
    config = updated(family.bare(found.name), changes)
    check_name(found, config)
    family.check_settings(config)
    return Plan(found, config, rung, check_seeds(seed, seeds), None, options, ticks_per_row)


def check_ticks_per_row(number: int) -> None:
    """Raise a `UsageError` if a row cannot have so many ticks."""
    if type(number) is not int or not 1 <= number <= MOST_COUNT:
        raise UsageError(f"`--ticks-per-row` is {number!r}, but it has to be a whole number from 1 to {MOST_COUNT:,}.")


def fit_length(config: Any) -> tuple[Any, str]:
    """Check a config and round its length up to whole ticks. Returns it with a sentence that says so, or none."""
    config.family.check(config)
    rounded = config.family.rounded_up(config)
    if rounded == config:
        return config, ""
    config.family.check(rounded)
    unit, tick = config.length, config.units_per_tick
    asked, whole = getattr(config, unit), getattr(rounded, unit)
    return rounded, f"{asked:,} {unit} are rounded up to {whole:,}: {config.tick_description}, {tick:,} {unit}."


def warn(sentence: str) -> None:
    """Warn whoever called xladder, with their file and line."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "xladder":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(sentence, UserWarning, stacklevel=depth)


def check_seeds(seed: int, seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Check the seeds of a run and return them all; arguments as for `plan`."""
    if not is_whole(seed):
        raise UsageError(f"`seed` is {seed!r}, but it has to be a whole number.")
    seed = operator.index(seed)
    if not is_whole(seeds):
        if isinstance(seeds, str | int | float | Mapping) or not hasattr(seeds, "__iter__"):
            raise UsageError(f"`seeds` is {seeds!r}, but it has to be a whole number, or a list of them.")
        return _check_listed(seed, list(seeds))
    count = operator.index(seeds)  # type: ignore[arg-type]
    if count < 1:
        raise UsageError(f"`--seeds` is {count}, but it has to be 1 or more.")
    if count > MOST_SEEDS:
        raise UsageError(f"`--seeds` is {count}, but a run has {MOST_SEEDS:,} at most: split them over several runs.")
    if not 0 <= seed < 2**31:
        raise UsageError(f"`--seed` is {seed}, but seeds lie in [0, 2³¹).")
    if seed + count > 2**31:
        raise UsageError(f"`--seeds` is {count}, but from `--seed {seed}` on there are {2**31 - seed} below 2³¹.")
    return tuple(range(seed, seed + count))


def _check_listed(seed: int, seeds: Sequence[Any]) -> tuple[int, ...]:
    if seed:
        raise UsageError(f"`seed` is {seed}, but `seeds` lists all seeds already: give one of them.")
    for one in seeds:
        if not is_whole(one) or not 0 <= operator.index(one) < 2**31:
            raise UsageError(f"`seeds` has {one!r} in it, but seeds are whole numbers in [0, 2³¹).")
    found = tuple(operator.index(one) for one in seeds)
    if not found or len(set(found)) < len(found):
        raise UsageError(f"`seeds` is {list(found)}, but it has to list one seed or more, each of them once.")
    if len(found) > MOST_SEEDS:
        raise UsageError(f"`seeds` lists {len(found)}, but a run has {MOST_SEEDS:,} at most.")
    return found


def is_whole(value: Any) -> bool:
    """Whether a value is a Python or NumPy integer; an array is not."""
    return not isinstance(value, bool) and hasattr(value, "__index__") and not getattr(value, "shape", ())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    """Whether a value is a list of texts, of whatever kind; one text is none."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(map(_is_text, value))


def _is_changes(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


_Check = tuple[Callable[[Any], bool], str]
_COUNT: _Check = (is_whole, "a whole number")
_FUNCTION: _Check = (callable, "a function")
_SWITCH: _Check = (lambda value: isinstance(value, bool), "True or False")
_ARGUMENTS: Mapping[str, _Check] = {
    "rung": (_is_text, f"the name of a rung: {', '.join(RUNGS)}"),
    "rungs": (lambda value: _is_text(value) or _is_list(value), "a list of rungs, such as ['torch', 'fused']"),
    "preset": (_is_text, "the name of a preset, such as 'default'"),
    "protocol": (_is_text, "the name of a protocol; `xladder presets` lists them"),
    "device": (lambda value: value in get_args(DeviceName), f"one of {', '.join(map(repr, get_args(DeviceName)))}"),
    "options": (lambda value: isinstance(value, RungOptions), "a `xladder.registry.RungOptions`"),
    "changes": (_is_changes, "a mapping of fields, such as {'learner': {'lr': 3e-4}}"),
    "imports": (_is_list_of_texts, "a list of modules, such as ['my_worlds']"),
    "tags": (_is_list_of_texts, "a list of words, such as ['baseline']"),
    "track": (_is_list_of_texts, "a list of services, such as ['wandb']"),
    "mesh": (_is_text, "a device mesh, such as 'seeds=4', 'data=2' or 'seeds=2,data=2'"),
    "ray": (_is_text, "HOST:PORT of a Ray cluster"),
    "lock_step": _SWITCH,
    "threads": _COUNT,
    "hosts": _COUNT,
    "actors": _COUNT,
    "shards": _COUNT,
    "on_row": _FUNCTION,
    "on_left_out": _FUNCTION,
}
"""Arguments of the functions for Python → whether a value is of their type, and what it has to be."""


def check_types(**given: Any) -> None:
    """Raise a `UsageError` for an argument of the wrong type, by its name; None stands for one that is not given.

    The command line parses its flags into these types itself, so a wrong one comes from Python.
    """
    for name, value in given.items():
        fits, what = _ARGUMENTS[name]
        if not fits(value) and (value is not None or name in ("preset", "imports")):
            raise UsageError(f"`{name}` is {printable(repr(value))}, but it has to be {what}.")


def allow_imports(modules: Sequence[str], objects: Sequence[Any] = ()) -> None:
    """Import modules that the user has named in a call, and allow names in them to be resolved; register objects."""
    if isinstance(modules, str):
        raise UsageError(f"`imports` is {modules!r}, but it has to be a list of modules: `imports=[{modules!r}]`.")
    check_types(imports=modules)
    for module in modules:
        user_code.allow(module)
        user_code.import_module(module)  # it may register worlds
    if not isinstance(objects, list | tuple):
        raise UsageError("`objects` has to be a list of worlds, torsos or rewards: `objects=[…]`.")
    for thing in objects:
        user_code.give(thing)


def check_fits(config: Config, seeds: int, available: int) -> None:
    """Raise a `UsageError` if the arrays of a run do not fit into so many bytes; nothing is allocated to find out."""
    found = too_large(config.family.large_arrays(config), seeds, available)
    if found:
        raise UsageError(found)


def seed_groups(plan: Plan) -> list[tuple[int, ...]]:
    """Split a plan's seeds into groups that are trained at once."""
    at_once = find_rung(plan.rung, plan.workload).population and plan.workload.population
    return [plan.seeds] if at_once else [(seed,) for seed in plan.seeds]


def format_seeds(plan: Plan) -> str:
    """`seed 3`, `seeds 0 … 7` or `seeds 1, 5, 9`."""
    if len(plan.seeds) == 1:
        return f"seed {plan.seeds[0]}"
    if plan.is_range or len(plan.seeds) > 8:
        return f"seeds {plan.seeds[0]} … {plan.seeds[-1]}"
    return f"seeds {', '.join(map(str, plan.seeds))}"
