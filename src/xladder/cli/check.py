"""`xladder check`: check that a world fulfils its contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from xladder.cli.options import check_writable, parse, write_json_file
from xladder.errors import UsageError
from xladder.registry import WORKLOADS

if TYPE_CHECKING:
    from xladder.worlds.findings import Finding

MARKS = {"kept": "ok    ", "noted": "note  ", "broken": "WRONG "}


@dataclass(frozen=True)
class CheckOptions:
    """The world to check."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """module:Name for a world of your own, or any other world: cartpole, jaxmarl/NAME, gym/ID."""
    twin: str | None = None
    """module:Name of a world to compare it with step by step, if it is in JAX; by default its own `twin`."""
    json: Path | None = None
    """Write the findings as JSON to this file (- for standard output)."""


def findings(source: str, name: str, twin: str | None = None) -> Iterator[Finding]:
    """Yield the findings about a world as they are made."""
    from xladder.worlds.contract import check_world
    from xladder.worlds.findings import broken, kept, noted

    if source != "flow":
        yield from check_world(source, name, twin)
        return
    from xladder.families.gflownet.check import faults_of, remarks_on

    faults = faults_of(name)
    for fault in faults:
        yield broken(fault)
    if not faults:
        yield kept("forward and backward steps undo each other, masks allow what can be done, and rewards are finite")
        yield from map(noted, remarks_on(name))


def run(words: Sequence[str]) -> int:
    """Check a world and print the findings; raise a `UsageError` if it breaks its contract."""
    options = parse(
        CheckOptions, words, "xladder check", "Check that a world fulfils its contract, and say what is wrong if not."
    )
    from xladder.cli import startup
    from xladder.worlds import names

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
    check_writable(options.json)
    startup.prepare("cpu")
    from xladder.worlds.contract import require_world

    require_world(place.source, place.name, options.twin)
    console = Console(stderr=str(options.json) == "-", highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(f"{options.name}:")
    found = []
    for finding in findings(place.source, place.name, options.twin):
        found.append(finding)
        console.print(f"  {MARKS[finding.kind]}{finding.sentence}")
    wrong = [finding for finding in found if finding.kind == "broken"]
    write_json_file(
        options.json,
        {"world": options.name, "findings": [{"kind": f.kind, "sentence": f.sentence} for f in found]},
    )
    if wrong:
        raise UsageError(f"`{options.name}` breaks its contract: see what is marked {MARKS['broken'].strip()} above.")
    console.print(f"`{options.name}` fulfils its contract.")
    return 0
