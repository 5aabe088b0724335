"""`xladder export`: write the trained networks of a run as a file for PyTorch, and check it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from xladder.cli.options import parse, print_line
from xladder.cli.signals import cleaned_up


@dataclass(frozen=True)
class ExportOptions:
    """What to export."""

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run directory."""
    to: Literal["torch", "safetensors", "sorrel"]
    """torch: a state_dict written by `torch.save`. safetensors: the same names, without needing PyTorch. sorrel: a
    folder with one file per agent, which sorrel's models load, with target network and Adam's state."""
    out: Path
    """The file or folder to write; it must not exist."""
    seed: int | None = None
    """Export only the networks of this seed."""
    agent: int | None = None
    """Export only the network of this agent."""


def run(words: Sequence[str]) -> int:
    """Export networks and print how they compare with PyTorch."""
    options = parse(
        ExportOptions, words, "xladder export", "Write the trained networks of a run as a file for PyTorch."
    )
    from xladder.runs.loading import load
    from xladder.runs.plan_files import read_run_plan

    read_run_plan(options.run_dir)  # report a wrong path before importing JAX
    from xladder.cli import startup

    startup.prepare("cpu")  # rounding is compared, so both sides compute on the same processor
    console = Console()
    if options.to == "sorrel":
        return _export_agents(options, console)
    from xladder.runs.exchange import export

    with cleaned_up(), console.status("exporting"):
        done = export(load(options.run_dir), options.to, options.out, options.seed, options.agent)
    count = len(done.places)
    several = f"{count} networks under `seed{done.places[0][0]}.agent{done.places[0][1]}.` …"
    print_line(
        console, f"{'one network' if count == 1 else several}, {done.parameters:,} parameters, read back bit for bit"
    )
    if done.level is None:
        print_line(console, "PyTorch is not installed here, so its outputs were not compared.")
    else:
        far, allowed = done.level.max_abs_diff, done.level.tolerance
        print_line(console, f"Flax and PyTorch on random inputs: largest difference {far:.1e}, {allowed:.1e} allowed")
    print_line(console, str(options.out))
    return 0


def _export_agents(options: ExportOptions, console: Console) -> int:
    """Export one file per agent."""
    from xladder.runs.loading import load
    from xladder.runs.sorrel_agents import export_agents

    with cleaned_up(), console.status("exporting"):
        done = export_agents(load(options.run_dir), options.out, options.seed, options.agent)
    count = len(done.files)
    print_line(console, f"{count} agent{'s' * (count > 1)}, {done.parameters:,} parameters, read back bit for bit")
    if done.steps is None:
        print_line(console, "The run has not kept Adam's state: the files start with a fresh one, and target = local.")
    else:
        print_line(console, f"with target networks and Adam's state after {done.steps} updates")
    far, allowed = done.level.max_abs_diff, done.level.tolerance
    print_line(console, f"Flax and PyTorch on random inputs: largest difference {far:.1e}, {allowed:.1e} allowed")
    names = f"{done.files[0].name} … {done.files[-1].name}" if count > 1 else done.files[0].name
    print_line(console, f"{options.out} ({names})")
    return 0
