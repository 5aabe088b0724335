"""`xladder worlds`: list every workload and world, its observations, and which extra it needs."""

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
from xladder.core.packages import install_line
from xladder.errors import UsageError, unknown
from xladder.registry import SOURCES, WORKLOADS
from xladder.worlds import names

SOME_GAMES = ("breakout", "pong", "space_invaders", "qbert")


@dataclass(frozen=True)
class WorldsOptions:
    """What to list."""

    family: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FAMILY]")] = None
    """gymnax, atari, gym, jax, marl, zoo or flow; all if not given."""
    json: Path | None = None
    """Write the list as JSON to this file (- for standard output)."""


def run(words: Sequence[str]) -> int:
    """List workloads and worlds."""
    options = parse(WorldsOptions, words, "xladder worlds", "List every workload and world, and what each needs.")
    if options.family == "minatar":
        raise UsageError("MinAtar's worlds are gymnax's here, such as `minatar/breakout`: `xladder worlds gymnax`.")
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
    """Print the built-in workloads, which need no extra."""
    shown = Table.grid(padding=(0, 2))
    for workload in WORKLOADS.values():
        shown.add_row(workload.name, workload.summary)
    console.print(shown)


def show_gymnax(console: Console, whole: bool) -> None:
    """Print gymnax's worlds as a table; with `whole`, also those that are left out."""
    console.print(f"gymnax worlds: {need('gymnax')}")
    shown = Table(box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False)
    for head in ("name", "observation", "actions"):
        shown.add_column(head, no_wrap=True, justify="right" if head == "actions" else "left")
    shown.add_column(" task")
    for world in names.GYMNAX.values():
        shown.add_row(world.name, format_shape(world.shape), str(world.actions), f" {world.summary}")
    console.print(shown)
    if whole:
        reasons = dict.fromkeys(names.GYMNAX_LEFT_OUT.values())
        for reason in reasons:
            left_out = [name for name, why in names.GYMNAX_LEFT_OUT.items() if why == reason]
            console.print(f"Left out: {', '.join(left_out)} ({reason}).")


def show_atari(console: Console, whole: bool) -> None:
    """Print the number of Atari games, or with `whole` all of them."""
    console.print(f"Atari, {len(names.ATARI_GAMES)} games as atari/GAME: {need('atari')}")
    console.print("An observation is the last 4 frames, 84 × 84 each; the actions are the game's own.")
    if not whole:
        some = ", ".join(f"atari/{game}" for game in SOME_GAMES)
        console.print(f"For example {some};\n`xladder worlds atari` lists all.")
        return
    console.print(Columns(names.ATARI_GAMES, equal=True, column_first=True, padding=(0, 2)))
    *most, last = names.ATARI_LEFT_OUT
    console.print(f"Left out: {', '.join(most)} and {last}; each {names.ATARI_LEFT_OUT_WHY}.")


def show_gym(console: Console, whole: bool) -> None:
    """Print what Gymnasium environments have to be like; only Gymnasium knows which there are."""
    console.print(f"Gymnasium environments as gym/ID: {need('gym')}")
    console.print("Actions have to be Discrete, and observations a vector or an image: for example")
    console.print("gym/CartPole-v1. Your own are gym/module:ID, where the module registers them.")


def show_jax(console: Console, whole: bool) -> None:
    """Print how the user's own JAX worlds are named."""
    console.print("Your own worlds with gymnax's API (`reset_env`, `step_env`, spaces) as jax/module:Name;")
    console.print("gymnax's other worlds as gymnax/ID. `xladder check jax/module:Name` checks a world's contract.")


def show_marl(console: Console, whole: bool) -> None:
    """Print JaxMARL's worlds, and how the user's own with its API are named."""
    console.print(f"JaxMARL worlds, shared by several agents, as jaxmarl/NAME: {need('marl')}")
    console.print("Each agent has its own network and replay memory, or all share one (--world.shared).")
    console.print("Actions have to be Discrete: for example jaxmarl/MPE_simple_spread_v3, jaxmarl/coin_game.")
    console.print("Your own worlds with the same API are marl/module:Name.")
    if whole and is_installed("marl"):
        from xladder.worlds.marl_world import names as registered

        console.print(f"JaxMARL has {', '.join(registered())}.")


def show_zoo(console: Console, whole: bool) -> None:
    """Print how worlds with PettingZoo's parallel API are named."""
    console.print(f"Worlds with PettingZoo's parallel API as zoo/module:parallel_env: {need('zoo')}")
    console.print("For example zoo/pettingzoo.sisl.pursuit_v5:parallel_env.")


def show_flow(console: Console, whole: bool) -> None:
    """Print how GFlowNet worlds are named; all but one are the user's own."""
    console.print("Objects built step by step, for GFlowNets, as flow/NAME: flow/bits, strings of 8 bits.")
    console.print("It is the smallest example; the workload `bits` is another, with published sizes and rewards.")
    console.print("Your own are flow/module:Name, a `FlowWorld` of `xladder.worlds.flow`.")


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
    """Whether a family's package is installed, or how to install it."""
    return "installed" if is_installed(family) else f"not installed; {install_line(SOURCES[family].extra or family)}"


def is_installed(family: str) -> bool:
    """Whether the package of a family is installed."""
    package = SOURCES[family].package
    return package is None or registry.is_installed(package)


def format_shape(shape: tuple[int, ...]) -> str:
    """`4 numbers`, or `10 × 10 × 4`."""
    if len(shape) == 1:
        return f"{shape[0]} number{'s' * (shape[0] > 1)}"
    return " × ".join(map(str, shape))


def listed() -> Iterator[dict[str, Any]]:
    """All workloads and worlds as JSON-ready rows; values that only a package knows are null."""
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
    """One row of the list."""
    return {
        "name": name,
        "family": family,
        "summary": summary,
        "shape": shape,
        "actions": actions,
        "extra": SOURCES[family].extra if family else None,
        "installed": is_installed(family) if family else True,
    }
