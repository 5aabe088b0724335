"""`xladder check`: check that a world fulfils its contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from xladder import user_code
from xladder.cli.options import check_writable, parse, write_json_file
from xladder.errors import UsageError
from xladder.registry import WORKLOADS

if TYPE_CHECKING:
    from xladder.worlds.findings import Finding

REWARDED = ("hypergrid", "sets")
MARKS = {"kept": "ok    ", "noted": "note  ", "broken": "WRONG "}


ARGUMENTS = ("gymnax", "jax", "marl", "gym", "zoo")  # sources whose worlds take `--world.kwargs`


@dataclass(frozen=True)
class WorldOptions:
    """Settings of the world, as in training."""

    kwargs: tuple[str, ...] = ()
    """Arguments of the world's class or function, as name=value: size=9. A twin is made with the same."""
    reward: str | None = None
    """module:function, a reward of your own for hypergrid or sets: it is checked on the default world."""


@dataclass(frozen=True)
class CheckOptions:
    """The world to check."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """module:Name for a world of your own, or any other world: cartpole, jaxmarl/NAME, gym/ID."""
    twin: str | None = None
    """module:Name of a world to compare it with step by step, if it is in JAX; by default its own `twin`."""
    world: WorldOptions = field(default_factory=WorldOptions)
    """Settings of the world."""
    json: Path | None = None
    """Write the findings as JSON to this file (- for standard output)."""


def findings(source: str, name: str, twin: str | None = None, kwargs: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Yield the findings about a world as they are made."""
    from xladder.worlds.contract import check_world
    from xladder.worlds.findings import broken, kept, noted

    if source != "flow":
        yield from check_world(source, name, twin, kwargs)
        return
    from xladder.families.gflownet.check import faults_of, remarks_on

    faults = faults_of(name)
    for fault in faults:
        yield broken(fault)
    if not faults:
        yield kept("forward and backward steps undo each other, masks allow what can be done, and rewards are finite")
        yield from map(noted, remarks_on(name))


def reward_findings(name: str, reward: str) -> Iterator[Finding]:
    """Yield what is found about a reward of the user's own on the workload `name`."""
    from xladder.plans import plan
    from xladder.worlds.findings import broken, kept

    try:
        plan(name, world={"reward": reward})
    except UsageError as error:
        yield broken(str(error))
    else:
        yield kept("the reward is pure JAX, and a finite number for every object tried")


def run(words: Sequence[str]) -> int:
    """Check a world and print the findings; raise a `UsageError` if it breaks its contract."""
    options = parse(
        CheckOptions, words, "xladder check", "Check that a world fulfils its contract, and say what is wrong if not."
    )
    from xladder.cli import startup
    from xladder.worlds import names
    from xladder.worlds.arguments import arguments

    reward, kwargs = options.world.reward, options.world.kwargs
    if reward is not None:
        user_code.allow_named(reward)  # as in `--world.reward=module:function`, which is one word
        if options.name not in REWARDED:
            raise UsageError(f"`--world.reward` is for {' and '.join(REWARDED)}, and `{options.name}` has its own.")
        refuse = {"--twin": options.twin, "--world.kwargs": kwargs}
        if given := [flag for flag, value in refuse.items() if value]:
            raise UsageError(
                f"`{given[0]}` is for a world of your own, and `{options.name}` is built in: leave it out."
            )
        if ":" not in reward:
            raise UsageError(f"`--world.reward` is {reward}: `check` is for your own, `module:function`.")
        check_writable(options.json)
        startup.prepare("cpu")
        user_code.find(reward, "reward")
        return report(options, reward_findings(options.name, reward))
    if options.name in WORKLOADS:
        raise UsageError(
            f"`{options.name}` is built into xladder, whose tests check it; `xladder parity {options.name}` "
            "compares it with its twin."
        )
    place = names.locate(options.name)
    if options.twin is not None and place.source not in ("gymnax", "jax", "marl"):
        raise UsageError(f"`--twin` is for worlds in JAX, and `{options.name}` is none: check the JAX world.")
    if place.source == "atari":
        raise UsageError(f"`{place.name}` is built into xladder, whose tests check its emulator.")
    arguments(kwargs)
    if kwargs and place.source not in ARGUMENTS:
        raise UsageError(
            f"`--world.kwargs` are not for `{options.name}`, which is made without arguments: give it a name at the "
            "top level of its module, such as `small = World(4)`, and check that."
        )
    check_writable(options.json)
    startup.prepare("cpu")
    from xladder.worlds.contract import require_world

    require_world(place.source, place.name, options.twin)
    return report(options, findings(place.source, place.name, options.twin, kwargs))


def report(options: CheckOptions, made: Iterator[Finding]) -> int:
    """Print findings as they are made; raise a `UsageError` if there is a fault among them."""
    console = Console(stderr=str(options.json) == "-", highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(f"{options.name}:")
    found = []
    for finding in made:
        found.append(finding)
        console.print(f"  {MARKS[finding.kind]}{finding.sentence}")
    wrong = [finding for finding in found if finding.kind == "broken"]
    write_json_file(
        options.json,
        {"world": options.name, "findings": [{"kind": f.kind, "sentence": f.sentence} for f in found]},
    )
    checked = options.world.reward or options.name
    if wrong:
        raise UsageError(f"`{checked}` breaks its contract: see what is marked {MARKS['broken'].strip()} above.")
    console.print(f"`{checked}` fulfils its contract.")
    return 0
