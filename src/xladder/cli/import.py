"""`xladder import`: make a run directory from a PyTorch or safetensors file. Nothing in the file is ever executed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from xladder.cli import help_page
from xladder.cli.options import parse_with_config, print_line
from xladder.cli.signals import cleaned_up
from xladder.errors import UsageError
from xladder.plans import plan as make_plan
from xladder.registry import find_workload

USAGE = "xladder import FILE … --workload NAME --out RUN_DIR"


@dataclass(frozen=True)
class ImportOptions:
    """What to write; the settings have to be those the network was trained with."""

    workload: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The workload that the networks were trained on; it has to be given."""
    out: Path | None = None
    """The run directory; it has to be new or empty."""
    preset: str | None = None
    """The preset to start from; `xladder presets NAME` lists those of a workload."""
    config: Path | None = None
    """The config.json of another run to start from."""
    rung: str | None = None
    """The rung to record in the run's config; the workload's default if not given."""
    seed: int = 0
    """The seed to assign to a network without one."""


def run(words: Sequence[str]) -> int:
    """Import files and print what they hold."""
    about = (
        "Make a run directory from a state_dict: PyTorch's, sorrel's or a safetensors file; or from one file per agent."
    )
    files, name, rest = split(words)
    if not name:  # the help was asked for
        more = f"{about} `xladder import --workload NAME --help` also shows the settings of a workload."
        sys.stdout.write(help_page.short_page("xladder import FILE … --workload NAME", more, ImportOptions))
        return 0
    workload = find_workload(name)
    options, config = parse_with_config(ImportOptions, workload, rest, "xladder import FILE --workload", about)
    if options.out is None:
        raise UsageError(f"`--out` is missing: {USAGE}")
    plan = make_plan(name, options.rung, seed=options.seed, config=config)
    from xladder.cli import startup

    startup.prepare("cpu")
    from xladder.runs import exchange
    from xladder.runs.folders import command
    from xladder.runs.nets import check_twin, format_numbers

    check_twin(plan)
    imported = exchange.read_files(files, plan)
    seeds = sorted({seed for seed, _ in imported.nets})
    plan = replace(plan, seeds=tuple(seeds))
    with cleaned_up():
        folder = exchange.write_run(options.out, plan, imported, files)
    console = Console()
    agents = len(imported.nets) // len(seeds)
    if imported.shared:
        print_line(console, f"`{files[0]}` holds one network per seed: all {agents} agents use it.")
    print_line(
        console, f"{name}, seed{'s' * (len(seeds) > 1)} {format_numbers(seeds)}, {agents} agent{'s' * (agents > 1)}"
    )
    if imported.states:
        print_line(console, "with target networks and Adam's state, from which `xladder train --from` goes on")
    print_line(console, f"{folder} (try: {command('eval', folder)})")
    return 0


def split(words: Sequence[str]) -> tuple[list[Path], str, list[str]]:
    """Split a command line into the files, the name of the workload, and the rest. A request for help needs neither."""
    rest = list(words)
    asks = bool(help_page.ASKED & {*rest})
    name = ""
    for i, word in enumerate(rest):
        flag, equals, value = word.partition("=")
        if flag == "--workload":
            if not equals and i + 1 == len(rest):
                raise UsageError(f"`--workload` needs a name: {USAGE}")
            name = value if equals else rest[i + 1]
            del rest[i : i + (1 if equals else 2)]
            break
    if any(word.partition("=")[0] == "--workload" for word in rest):
        raise UsageError("`--workload` is given twice: give it once.")
    files = []
    while rest and not rest[0].startswith("-"):
        files.append(Path(rest.pop(0)))
    if not (asks or (files and name)):
        raise UsageError(f"`xladder import` needs {'a file' if not files else 'a workload'}: {USAGE}")
    return files, name, rest
