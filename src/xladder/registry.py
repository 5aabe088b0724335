"""The registry of workloads and rungs, by name. Importing it loads neither JAX nor PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from xladder import user_code
from xladder.core.packages import is_installed, missing_extra
from xladder.errors import UsageError, unknown
from xladder.families.gflownet import FAMILY as GFLOWNET
from xladder.families.multi_agent import FAMILY as MULTI_AGENT
from xladder.families.value import FAMILY as VALUE
from xladder.protocols import Config, Family, Missing
from xladder.worlds import names

Start = Callable[..., Any]
"""Starts a run on a rung and returns something that can be advanced (`rungs.running.Running`)."""
MOST_THREADS = 1024  # with many more, PyTorch crashes without an error message
MOST_PROCESSES = 4096  # actors or shards, over all machines of a cluster


@dataclass(frozen=True)
class Rung:
    """An execution strategy: which parts of training are compiled together."""

    name: str
    summary: str
    load: Callable[[], Start]
    """Imports the rung and returns its `start`."""
    starting: str = "compiling"
    """What it does before training, as shown to the user."""
    population: bool = False
    """Whether it trains all seeds at once."""
    on_device: bool = False
    """Whether the replay memory is on the device."""
    extra: str | None = None
    """The optional package it needs, which is also the name of the extra that installs it."""
    options: tuple[str, ...] = ()
    """The fields of `RungOptions` that its `start` takes."""
    in_pytorch: bool = False
    """Whether all of it is PyTorch, so that JAX has no program to inspect, debug or trace."""
    one_device: bool = True
    """Whether it runs on one device without further options; if so, `compare` includes it by default."""

    @property
    def start(self) -> Start:
        """The function that starts a run: `start(config, seeds, device, …)`."""
        return self.load()


@dataclass(frozen=True)
class RungOptions:
    """Options that only some rungs have.

    They do not change what is learned, up to rounding: threads and devices change the order of summation.
    """

    threads: int | None = None
    """PyTorch threads; the best number is measured if not given."""
    mesh: str | None = None
    """The device mesh, such as `seeds=4`, `data=2` or `seeds=2,data=2`."""
    hosts: int | None = None
    """Number of processes that the mesh spans."""
    actors: int | None = None
    """Number of actor processes."""
    shards: int | None = None
    """Number of replay shards, each its own process."""
    ray: str | None = None
    """The address of a Ray cluster; a local one is started if not given."""
    lock_step: bool | None = None
    """Whether actors and learner wait for each other, which gives the synchronous algorithm."""


@dataclass(frozen=True)
class Workload:
    """What is learned: a world, or all worlds from one source, and the family of learners for it."""

    name: str
    summary: str
    family: Family
    length: str
    """The flag and field for the length of training."""
    missing: Missing = field(default_factory=dict)
    """Rungs it does not have → why not, and the closest one it has."""
    package: str | None = None
    """The package that its world comes from, if it is optional."""
    extra: str | None = None
    """The extra that installs that package."""
    rung: str = "fused"
    """The default rung."""
    population: bool = True
    """Whether a rung can train all its seeds at once: worlds on the host are stepped for one seed at a time."""

    @property
    def tick(self) -> str:
        """The name of one tick."""
        return self.family.tick


def _torch() -> Start:
    from xladder.rungs import torch

    return torch.start


def _compiled() -> Start:
    from xladder.rungs import compiled

    return compiled.start


def _hybrid() -> Start:
    from xladder.rungs import hybrid

    return hybrid.start


def _sequential() -> Start:
    from xladder.rungs import sequential

    return sequential.start


def _parallel() -> Start:
    from xladder.rungs import parallel

    return parallel.start


def _fused() -> Start:
    from xladder.rungs import fused

    return fused.start


def _mesh() -> Start:
    from xladder.rungs import mesh

    return mesh.start


def _hosts() -> Start:
    from xladder.rungs import hosts

    return hosts.start


def _actors() -> Start:
    from xladder.rungs import actors

    return actors.start


RUNGS = {
    rung.name: rung
    for rung in [
        Rung(
            "torch",
            "everything in PyTorch, at its best thread count: the reference",
            _torch,
            starting="choosing threads",
            extra="torch",
            options=("threads",),
            in_pytorch=True,
        ),
        Rung(
            "compiled",
            "PyTorch at its best: torch.compile, and CUDA graphs on a GPU",
            _compiled,
            extra="torch",
            options=("threads",),
            in_pytorch=True,
        ),
        Rung(
            "hybrid",
            "PyTorch acts, JAX computes the gradient step",
            _hybrid,
            extra="torch",
            options=("threads",),
        ),
        Rung("sequential", "JAX one call at a time, world on the host", _sequential),
        Rung("parallel", "one jitted call per tick, all agents at once", _parallel, on_device=True),
        Rung("fused", "many ticks in one XLA program, all seeds at once", _fused, population=True, on_device=True),
        Rung(
            "mesh",
            "as fused, sharded over several devices",
            _mesh,
            population=True,
            on_device=True,
            options=("mesh",),
            one_device=False,
        ),
        Rung(
            "hosts",
            "as mesh, across processes",
            _hosts,
            population=True,
            on_device=True,
            options=("mesh", "hosts"),
            one_device=False,
        ),
        Rung(
            "actors",
            "asynchronous actors and replay shards around one learner, on Ray",
            _actors,
            starting="starting",
            extra="ray",
            options=("actors", "shards", "ray", "lock_step"),
            one_device=False,
        ),
    ]
}

_CHEAP = "trajectories are too cheap to be worth sending between processes"
WORKLOADS = {
    workload.name: workload
    for workload in [
        *(
            Workload(
                name,
                summary,
                MULTI_AGENT,
                length="epochs",
                missing={"actors": ("agents act in one shared world, step by step", "fused")},
            )
            for name, summary in {
                "treasurehunt": "several IQN agents share a gridworld, each with its own network and replay memory",
                "cleanup": "IQN agents share an orchard that bears apples only while somebody cleans the river",
                "tag": "IQN agents on one board, one of which is it until it stands next to another",
                "iowa": "IQN agents gather cards from four kinds of deck, two of which lose in the long run",
            }.items()
        ),
        *(
            Workload(name, summary, GFLOWNET, length="iterations", missing={"actors": (_CHEAP, "fused")})
            for name, summary in names.FLOW_WORLDS.items()
        ),
    ]
}

_ON_HOST_ZOO = "the world has to be inside the compiled program, and PettingZoo's run on the host"
_ON_HOST = "the world has to be inside the compiled program, and Gymnasium's run on the host"
SOURCES = {
    "gymnax": Workload(
        "cartpole",
        "a value learner in several envs of a gymnax world",
        VALUE,
        length="steps",
        package="gymnax",
        extra="gymnax",
    ),
    "atari": Workload(
        "atari/breakout",
        "a value learner in several envs of an Atari game",
        VALUE,
        length="frames",
        package="ale_py",
        extra="atari",
        rung="parallel",
        population=False,
    ),
    "gym": Workload(
        "gym/CartPole-v1",
        "a value learner in several envs of a Gymnasium environment",
        VALUE,
        length="steps",
        missing={"fused": (_ON_HOST, "parallel")},
        package="gymnasium",
        extra="gym",
        rung="parallel",
        population=False,
    ),
    "jax": Workload(
        "jax/module:Name",
        "a value learner in several envs of your own world, with gymnax's API",
        VALUE,
        length="steps",
    ),
    "marl": Workload(
        "jaxmarl/NAME",
        "independent value learners in a shared world, with JaxMARL's API",
        VALUE,
        length="steps",
        missing={"actors": ("agents act in one shared world, step by step", "fused")},
        package="jaxmarl",
        extra="jaxmarl",
    ),
    "zoo": Workload(
        "zoo/module:parallel_env",
        "independent value learners in a shared world, with PettingZoo's parallel API",
        VALUE,
        length="steps",
        missing={
            "fused": (_ON_HOST_ZOO, "parallel"),
            "actors": ("agents act in one shared world, step by step", "parallel"),
        },
        package="pettingzoo",
        extra="zoo",
        rung="parallel",
        population=False,
    ),
    "flow": Workload(
        "flow/bits",
        "a GFlowNet learns to sample your own objects in proportion to their reward",
        GFLOWNET,
        length="iterations",
        missing={"actors": (_CHEAP, "fused")},
    ),
}
"""Sources of worlds: each entry stands for all worlds of a package, under the name of one of them."""


def find_workload(name: str) -> Workload:
    """Find a workload by its name or by the name of a world."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    if "/" not in name and name in user_code.entry_points("workload"):
        installed = user_code.load_entry_point("workload", name)
        if not isinstance(installed, Workload):
            raise UsageError(f"The installed workload `{name}` is not a `Workload` of `xladder.registry`.")
        return installed
    place = names.locate(name)
    found = SOURCES[place.source]
    # A user's own world may have JaxMARL's API without needing the package.
    needed = not place.name.startswith("marl/")
    if needed and found.package and found.extra and not is_installed(found.package):
        raise missing_extra(found.package, found.extra)
    return replace(found, name=place.name)


def find_rung(name: str, workload: Workload) -> Rung:
    """Find a rung by name; a `UsageError` if the workload does not have it."""
    if name not in RUNGS:
        raise unknown("rung", name, RUNGS)
    if name in workload.missing:
        why, nearest = workload.missing[name]
        raise UsageError(f"`{workload.name}` has no `{name}` rung: {why}. Use `{nearest}`.")
    extra = RUNGS[name].extra
    if extra and not is_installed(extra):
        raise missing_extra(extra, extra)
    return RUNGS[name]


def check_name(workload: Workload, config: Config) -> None:
    """Raise a `UsageError` if a config belongs to another world than the workload's name."""
    if config.name != workload.name:
        find_workload(config.name)  # if there is none, its error says which there are
        raise UsageError(
            f"`--world.name` is {config.name}, but the workload is `{workload.name}`: use `{config.name}` in its place."
        )


def check_rung(name: str, workload: Workload, config: Config) -> None:
    """Raise a `UsageError` if a rung cannot run this config, although it can run others of the workload."""
    missing = workload.family.missing(config)
    if name in missing:
        why, nearest = missing[name]
        raise UsageError(f"`{name}` cannot run this: {why}. Use `{nearest}`.")


def options_of(rung: str, mesh: str | None) -> RungOptions:
    """The options of one rung in a comparison of several."""
    return RungOptions(mesh=mesh if "mesh" in RUNGS[rung].options else None)


def options_for(rung: str, options: RungOptions) -> RungOptions:
    """Keep only the options that a rung has."""
    return RungOptions(**{name: getattr(options, name) for name in RUNGS[rung].options})


def check_options(name: str, options: RungOptions) -> None:
    """Raise a `UsageError` if an option is invalid or is not one of the rung's."""
    for option in fields(options):
        value = getattr(options, option.name)
        if value is not None and option.name not in RUNGS[name].options:
            flag = f"`--{option.name.replace('_', '-')}`"
            takers = [f"`{rung.name}`" for rung in RUNGS.values() if option.name in rung.options]
            listed = " and ".join(filter(None, [", ".join(takers[:-1]), takers[-1]]))
            raise UsageError(f"{flag} is for {listed}, not for `{name}`.")
    if options.threads is not None and not 1 <= options.threads <= MOST_THREADS:
        raise UsageError(f"`--threads` is {options.threads}, but it has to lie in 1 … {MOST_THREADS:,}.")
    for count in ("actors", "shards"):
        value = getattr(options, count)
        if value is not None and not 1 <= value <= MOST_PROCESSES:
            raise UsageError(f"`--{count}` is {value}, but it has to lie in 1 … {MOST_PROCESSES:,}.")
