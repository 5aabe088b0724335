"""What there is: workloads and rungs, by name. Holds strings only, so that listing them imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from xladder.errors import UsageError, missing_extra, unknown

MOST_THREADS = 1024  # with many more PyTorch crashes instead of saying so


@dataclass(frozen=True)
class Rung:
    """One way to execute a workload."""

    name: str
    module: str
    summary: str
    extra: str | None = None
    """The package that it needs beyond the core, which is also the name of the extra that brings it."""
    options: tuple[str, ...] = ()
    """Which of `RungOptions` its `start` takes."""
    one_device: bool = True
    """Whether it runs on one device, without being told more: then `compare` takes it in unasked."""


@dataclass(frozen=True)
class RungOptions:
    """What only some rungs can be told.

    None of it changes what is learned, but for rounding: threads and devices add up in another order.
    """

    threads: int | None = None
    """Threads of PyTorch; measured if not given."""
    mesh: str | None = None
    """What lies over how many devices: `seeds=4`, `data=2` or `seeds=2,data=2`."""
    hosts: int | None = None
    """Processes that the devices of the mesh belong to."""
    actors: int | None = None
    """Processes that play."""
    shards: int | None = None
    """Processes that remember."""
    ray: str | None = None
    """The address of a Ray cluster; a local one is started if not given."""
    lock_step: bool | None = None
    """Whether actors and learner wait for each other, which makes it the synchronous algorithm."""


@dataclass(frozen=True)
class Workload:
    """What is learned. Modules are named, and imported when they are used."""

    name: str
    summary: str
    tick: str
    """What one tick is called."""
    length: str
    """The flag and field that say how long to train."""
    settings: str
    """Module with `presets`, `check`, `columns` and how they are shown."""
    evaluation: str
    """Module with `score`, `policy` and, for workloads that are measured while they train, `measure`."""
    parity: str
    """Module with `levels`, and `forward` for one network."""
    picture: str
    """Module with `panels`, `references` and `draw`."""
    names: str = "value"
    """Which of `parameters.LEARNERS` its networks are named after in PyTorch."""
    agents: bool = False
    """Whether a seed has several agents, each with a network of its own: its parameters are [seed, agent, …]."""
    samples: bool = False
    """Whether it builds objects that `xladder sample` can draw; `evaluation` then has `draw_objects`."""
    missing: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Rungs it has not: why, and the nearest one it has."""
    package: str | None = None
    """The package that its world comes from, where that is an extra."""
    extra: str | None = None
    """The name of that extra."""
    rung: str = "fused"
    """The one to take where none is named."""
    population: bool = True
    """Whether `fused` can run its seeds at once."""

    def load_settings(self) -> Any:
        """The settings module."""
        return import_module(self.settings)


RUNGS = {
    rung.name: rung
    for rung in [
        Rung(
            "torch",
            "xladder.rungs.torch",
            "everything in PyTorch, at its best thread count: the reference",
            extra="torch",
            options=("threads",),
        ),
        Rung(
            "hybrid",
            "xladder.rungs.hybrid",
            "PyTorch acts, JAX computes the gradient step",
            extra="torch",
            options=("threads",),
        ),
        Rung("sequential", "xladder.rungs.sequential", "JAX one call at a time, world on the host"),
        Rung("parallel", "xladder.rungs.parallel", "one jitted call per tick, all agents at once"),
        Rung("fused", "xladder.rungs.fused", "many ticks in one XLA program, all seeds at once"),
        Rung("mesh", "xladder.rungs.mesh", "as fused, laid over several devices", options=("mesh",), one_device=False),
        Rung("hosts", "xladder.rungs.hosts", "as mesh, across processes", options=("mesh", "hosts"), one_device=False),
        Rung(
            "actors",
            "xladder.rungs.actors",
            "asynchronous actors and memories round one learner, on Ray",
            extra="ray",
            options=("actors", "shards", "ray", "lock_step"),
            one_device=False,
        ),
    ]
}

WORKLOADS = {
    workload.name: workload
    for workload in [
        Workload(
            name="treasurehunt",
            summary="several IQN agents share a gridworld, each with its own network and memory",
            tick="epoch",
            length="epochs",
            settings="xladder.workloads.treasurehunt",
            evaluation="xladder.programs.treasurehunt_evaluation",
            parity="xladder.parity.treasurehunt",
            picture="xladder.runs.episode",
            names="iqn",
            agents=True,
            missing={
                "actors": ("its agents act in one shared world, step by step", "fused"),
            },
        ),
        Workload(
            name="hypergrid",
            summary="a GFlowNet learns to sample the cells of a grid in proportion to their reward",
            tick="iteration",
            length="iterations",
            settings="xladder.workloads.hypergrid",
            evaluation="xladder.programs.hypergrid_evaluation",
            parity="xladder.parity.hypergrid",
            picture="xladder.runs.sampler",
            names="gflownet",
            samples=True,
            missing={
                "actors": ("its trajectories cost too little to be worth sending", "fused"),
            },
        ),
    ]
}


_VALUE: dict[str, Any] = {
    "tick": "tick",
    "settings": "xladder.workloads.value",
    "evaluation": "xladder.programs.value_evaluation",
    "parity": "xladder.parity.value",
    "picture": "xladder.runs.game",
}
_EMULATED = "its emulators are processes' own, and a mesh needs worlds inside the program"
_ON_HOST = "it needs a world inside the program, and Gymnasium's live on the host"
FAMILIES = {
    "gymnax": Workload(
        name="cartpole",
        summary="a value learner in copies of a world of gymnax",
        length="steps",
        package="gymnax",
        extra="gymnax",
        **_VALUE,
    ),
    "atari": Workload(
        name="atari/breakout",
        summary="a value learner in copies of an Atari game",
        length="frames",
        missing={rung: (_EMULATED, "parallel") for rung in ("mesh", "hosts")},
        package="ale_py",
        extra="atari",
        rung="parallel",
        population=False,
        **_VALUE,
    ),
    "gym": Workload(
        name="gym/CartPole-v1",
        summary="a value learner in copies of an environment of Gymnasium",
        length="steps",
        missing={rung: (_ON_HOST, "parallel") for rung in ("fused", "mesh", "hosts")},
        package="gymnasium",
        extra="gym",
        rung="parallel",
        **_VALUE,
    ),
}
"""Workloads that are many: each stands for all worlds of a package, under the name of one of them."""


def part(config: Any, side: str = "") -> Any:
    """A module of the program that a config belongs to.

    Without a side it has `Program`, the workload as pure functions. `host` has `HostExperiment`, the same as a loop in
    Python; `jax` and `torch` have `Verbs`, what that loop calls.
    """
    return import_module(f"{config.program}_{side}" if side else config.program)


def find_workload(name: str) -> Workload:
    """A workload by name; a world's name is the name of a workload."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    from xladder.workloads import names

    place = names.locate(name)
    found = FAMILIES[place.family]
    if found.package and found.extra and not is_installed(found.package):
        raise missing_extra(found.package, found.extra)
    return replace(found, name=place.name)


def find_rung(name: str, workload: Workload) -> Rung:
    """A rung by name, if the workload has it."""
    if name not in RUNGS:
        raise unknown("rung", name, RUNGS)
    if name in workload.missing:
        why, nearest = workload.missing[name]
        raise UsageError(f"`{workload.name}` has no `{name}` rung: {why}. The nearest is `{nearest}`.")
    extra = RUNGS[name].extra
    if extra and not is_installed(extra):
        raise missing_extra(extra, extra)
    return RUNGS[name]


def check_name(workload: Workload, config: Any) -> None:
    """Raise a `UsageError` if the settings are of another world than the workload's name says."""
    name = getattr(config, "name", workload.name)
    if name != workload.name:
        raise UsageError(f"`--world.name` is {name}, but this is `{workload.name}`: say `{name}` in its place.")


def check_rung(name: str, workload: Workload, config: Any) -> None:
    """Raise a `UsageError` if a rung cannot run these settings, though it has others of the workload."""
    lacking = getattr(workload.load_settings(), "lacking", None)
    if lacking and name in lacking(config):
        why, nearest = lacking(config)[name]
        raise UsageError(f"`{name}` cannot run this: {why}. Use `{nearest}`.")


def options_of(rung: str, mesh: str | None) -> RungOptions:
    """What a rung of several that are run alike is told."""
    return RungOptions(mesh=mesh if "mesh" in RUNGS[rung].options else None)


def options_for(rung: str, options: RungOptions) -> RungOptions:
    """What a rung understands of the options of another."""
    return RungOptions(**{name: getattr(options, name) for name in RUNGS[rung].options})


def check_options(name: str, options: RungOptions) -> None:
    """Raise a `UsageError` if a rung is told what it does not understand."""
    for option in fields(options):
        value = getattr(options, option.name)
        if value is not None and option.name not in RUNGS[name].options:
            flag = f"`--{option.name.replace('_', '-')}`"
            takers = [f"`{rung.name}`" for rung in RUNGS.values() if option.name in rung.options]
            raise UsageError(f"{flag} is for {' and '.join(takers)}, not for `{name}`.")
    if options.threads is not None and not 1 <= options.threads <= MOST_THREADS:
        raise UsageError(f"`--threads` is {options.threads}, but it has to lie in 1 … {MOST_THREADS:,}.")
    for count in ("actors", "shards"):
        value = getattr(options, count)
        if value is not None and value < 1:
            raise UsageError(f"`--{count}` is {value}, but it has to be 1 or more.")


def is_installed(package: str) -> bool:
    """Whether a package could be imported, without doing so."""
    try:
        return find_spec(package) is not None
    except ValueError:  # what Python says of a name that is blocked in `sys.modules`
        return False
