"""`xladder rungs`: show which workload runs on which rung, and why others do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from xladder.cli.options import parse
from xladder.registry import RUNGS, SOURCES, WORKLOADS

# Short names for the worlds of a source, so that the matrix fits.
SOURCE_NAMES = {
    "gymnax": "cartpole, …",
    "atari": "atari/GAME",
    "gym": "gym/ID",
    "jax": "jax/MOD:Name",
    "marl": "jaxmarl/, …",
    "zoo": "zoo/MOD:env",
    "flow": "flow/MOD:Name",
}

Missing = Mapping[str, tuple[str, str]]  # rung → why it is missing, and the nearest one


@dataclass(frozen=True)
class RungsOptions:
    """No options."""


def run(words: Sequence[str]) -> int:
    """Print the matrix of workloads and rungs, the rungs, and the reasons for gaps."""
    parse(RungsOptions, words, "xladder rungs", "Show which workload runs on which rung.")
    console = Console(highlight=False, markup=False)
    missing: dict[str, Missing] = {name: workload.missing for name, workload in WORKLOADS.items()}
    missing |= {SOURCE_NAMES[family]: workload.missing for family, workload in SOURCES.items()}
    matrix = Table(box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False)
    for head in ("workload", *RUNGS):
        matrix.add_column(head, no_wrap=True)
    for name, gaps in missing.items():
        matrix.add_row(name, *("–" if rung in gaps else "yes" for rung in RUNGS))
    console.print(matrix)
    console.print()
    for rung in RUNGS.values():
        console.print(f"{rung.name:<11} {rung.summary}")
    console.print()
    family = SOURCES["gymnax"].family
    missing["`--preset pqn`"] = family.missing(family.presets(SOURCES["gymnax"].name)["pqn"])
    for line in reasons(missing):
        console.print(line)
    console.print("\n`xladder worlds` lists all worlds: gymnax's, Atari's and Gymnasium's.")
    return 0


def reasons(missing: Mapping[str, Missing]) -> Iterator[str]:
    """Sentences on why rungs are missing; workloads with the same reason share one."""
    gaps: dict[tuple[tuple[str, ...], tuple[str, str]], list[str]] = {}
    for name, reason_of in missing.items():
        for reason in dict.fromkeys(reason_of.values()):
            rungs = tuple(rung for rung in reason_of if reason_of[rung] == reason)
            gaps.setdefault((rungs, reason), []).append(name)
    for (rungs, (why, nearest)), names in gaps.items():
        yield f"{join(names, 'and')} cannot run on {join(rungs, 'or')}: {why}. Use {nearest}."


def join(names: Sequence[str], word: str) -> str:
    """`mesh, hosts or actors`."""
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else names[0]
