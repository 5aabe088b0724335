"""`xladder worlds`: every workload and world, what it shows, and which extra it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from xladder import registry
from xladder.cli.options import parse, write_json_file
from xladder.errors import unknown
from xladder.registry import SOURCES, WORKLOADS
from xladder.worlds import names

SOME_GAMES = ("breakout", "pong", "space_invaders", "qbert")


@dataclass(frozen=True)
class WorldsOptions:
    """What to list."""

    family: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FAMILY]")] = None
    """gymnax, atari, gym, jax, marl, zoo or flow; everything if not given."""
    json: Path | None = None
    """Write the list as JSON to this file (- for standard output)."""


def run(words: Sequence[str]) -> int:
    """List what can be trained on."""
    options = parse(WorldsOptions, words, "xladder worlds", "Every workload and world, and what each needs.")
    if options.family is not None and options.family not in SOURCES:
        raise unknown("family of worlds", options.family, SOURCES)
    console = Console(stderr=str(options.json) == "-", highlight=False, markup=False)
    if options.family is None:
        show_workloads(console)
        for show in SECTIONS.values():
            console.print()
            show(console, False)
        console.print("\n`xladder train NAME` trains in any of them; `xladder rungs` says on which rungs.")
    else:
        SECTIONS[options.family](console, True)
    write_json_file(options.json, {"worlds": [w for w in listed() if options.family in (None, w["family"])]})
    return 0


def show_workloads(console: Console) -> None:
    """The workloads that are their own world, which need no extra."""
    shown = Table.grid(padding=(0, 2))
    for workload in WORKLOADS.values():
        shown.add_row(workload.name, workload.summary)
    console.print(shown)


def show_gymnax(console: Console, whole: bool) -> None:
    """The worlds of gymnax as a table; what is left out only where the family is asked for."""
    console.print(f"Worlds of gymnax: {need('gymnax')}")
    shown = Table(box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False)
    for head in ("name", "shows", "actions"):
        shown.add_column(head, no_wrap=True, justify="right" if head == "actions" else "left")
    shown.add_column(" what to do")
    for world in names.GYMNAX.values():
        shown.add_row(world.name, format_shape(world.shape), str(world.actions), f" {world.summary}")
    console.print(shown)
    if whole:
        reasons = dict.fromkeys(names.GYMNAX_LEFT_OUT.values())
        for reason in reasons:
            left_out = [name for name, why in names.GYMNAX_LEFT_OUT.items() if why == reason]
            console.print(f"Left out: {', '.join(left_out)} ({reason}).")


def show_atari(console: Console, whole: bool) -> None:
    """How many games there are, or all of them."""
    console.print(f"Atari, {len(names.ATARI_GAMES)} games as atari/GAME: {need('atari')}")
    console.print("A state is the last 4 screens, 84 × 84 each; the actions are the game's own.")
    if not whole:
        some = ", ".join(f"atari/{game}" for game in SOME_GAMES)
        console.print(f"For example {some};\n`xladder worlds atari` lists all.")
        return
    console.print(Columns(names.ATARI_GAMES, equal=True, column_first=True, padding=(0, 2)))
    *most, last = names.ATARI_LEFT_OUT
    console.print(f"Left out: {', '.join(most)} and {last}; each {names.ATARI_LEFT_OUT_WHY}.")


def show_gym(console: Console, whole: bool) -> None:
    """What Gymnasium's environments have to be like; which there are only Gymnasium knows."""
    console.print(f"Environments of Gymnasium as gym/ID: {need('gym')}")
    console.print("Actions have to be Discrete, and observations a vector or a picture: for example")
    console.print("gym/CartPole-v1. Those of your own are gym/module:ID, whose module registers them.")


def show_jax(console: Console, whole: bool) -> None:
    """How worlds of one's own are named."""
    console.print("Worlds of your own with gymnax's API (`reset_env`, `step_env`, spaces) as jax/module:Name;")
    console.print("what gymnax has besides as gymnax/ID. `xladder check jax/module:Name` says whether it keeps to it.")


def show_marl(console: Console, whole: bool) -> None:
    """JaxMARL's worlds, and those of one's own with its API."""
    console.print(f"Worlds that several agents share, of JaxMARL, as jaxmarl/NAME: {need('marl')}")
    console.print("Each agent has its own network and memory, or all share one (--world.shared).")
    console.print("Actions have to be Discrete: for example jaxmarl/MPE_simple_spread_v3, jaxmarl/coin_game.")
    console.print("Those of your own, with the same API, are marl/module:Name.")
    if whole and is_installed("marl"):
        from xladder.worlds.marl_world import names as registered

        console.print(f"JaxMARL has {', '.join(registered())}.")


def show_zoo(console: Console, whole: bool) -> None:
    """Worlds with PettingZoo's parallel API."""
    console.print(f"Worlds with PettingZoo's parallel API as zoo/module:parallel_env: {need('zoo')}")
    console.print("For example zoo/pettingzoo.sisl.pursuit_v5:parallel_env.")


def show_flow(console: Console, whole: bool) -> None:
    """Worlds in which objects are built step by step; all but one are users' own."""
    console.print("Objects built step by step, for GFlowNets, as flow/NAME: flow/bits, strings of 8 bits.")
    console.print("Those of your own are flow/module:Name, a `FlowWorld` of `xladder.worlds.flow`.")


SECTIONS = {
    "gymnax": show_gymnax,
    "atari": show_atari,
    "gym": show_gym,
    "jax": show_jax,
    "marl": show_marl,
    "zoo": show_zoo,
    "flow": show_flow,
}


def need(family: str) -> str:
    """Whether a family can be used, or what would install it."""
    return "installed" if is_installed(family) else f"not installed; pip install 'xladder[{SOURCES[family].extra}]'"


def is_installed(family: str) -> bool:
    """Whether the package of a family is there."""
    package = SOURCES[family].package
    return package is None or registry.is_installed(package)


def format_shape(shape: tuple[int, ...]) -> str:
    """`4 numbers`, or `10 × 10 × 4`."""
    if len(shape) == 1:
        return f"{shape[0]} number{'s' * (shape[0] > 1)}"
    return " × ".join(map(str, shape))


def listed() -> Iterator[dict[str, Any]]:
    """Everything as JSON-ready rows; what only a package knows is null."""
    from xladder.families.value.atari_presets import SHAPE

    for workload in WORKLOADS.values():
        yield row(workload.name, None, workload.summary)
    for world in names.GYMNAX.values():
        yield row(world.name, "gymnax", world.summary, list(world.shape), world.actions)
    for game in names.ATARI_GAMES:
        yield row(f"atari/{game}", "atari", SOURCES["atari"].summary, list(SHAPE))
    yield row("gym/ID", "gym", SOURCES["gym"].summary)
    for source in ("jax", "marl", "zoo"):
        yield row(SOURCES[source].name, source, SOURCES[source].summary)
    yield row("flow/NAME", "flow", SOURCES["flow"].summary)


def row(
    name: str, family: str | None, summary: str, shape: list[int] | None = None, actions: int | None = None
) -> dict[str, Any]:
    """One world."""
    return {
        "name": name,
        "family": family,
        "summary": summary,
        "shape": shape,
        "actions": actions,
        "extra": SOURCES[family].extra if family else None,
        "installed": is_installed(family) if family else True,
    }
