"""`xladder doctor`: show versions, devices, memory and which extras are installed."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from rich.console import Console

from xladder.cli.options import parse
from xladder.core.packages import install_line

EXTRAS = {
    "torch": (("torch",), "the rungs torch, compiled and hybrid, and parity"),
    "gymnax": (("gymnax",), "gymnax worlds: cartpole, minatar/breakout …"),
    "atari": (("ale-py", "gymnasium", "chex"), "Atari games: atari/GAME"),
    "gym": (("gymnasium",), "Gymnasium environments: gym/ID"),
    "jaxmarl": (("jaxmarl",), "JaxMARL environments: jaxmarl/NAME"),
    "zoo": (("pettingzoo", "gymnasium"), "PettingZoo environments: zoo/module:function"),
    "ray": (("ray",), "asynchronous actors"),
    "wandb": (("wandb",), "metrics to Weights & Biases: --track wandb"),
    "trackio": (("trackio",), "metrics to Trackio: --track trackio"),
}


@dataclass(frozen=True)
class DoctorOptions:
    """No options."""


def run(words: Sequence[str]) -> int:
    """Print the information that a bug report should include."""
    parse(DoctorOptions, words, "xladder doctor", "Show versions, devices and which extras are installed.")
    from xladder import devices, program_cache
    from xladder.cli import startup
    from xladder.runs.environment import versions

    console = Console()

    def print_line(name: str, value: object) -> None:
        console.print(f"{name:<10} {value}", highlight=False, markup=False, soft_wrap=True)

    startup.prepare(None)
    import jax

    print_line("python", f"{platform.python_version()} on {platform.platform()}")
    for package, version in versions().items():
        print_line(package, version)
    for device in jax.devices():
        stats = device.memory_stats() or {}
        limit = f", {stats['bytes_limit'] / 2**30:.0f} GiB" if "bytes_limit" in stats else ""
        print_line("device", f"{devices.describe(device)}{limit}")
    print_line("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB")
    print_line("cache", program_cache.describe())
    for extra, (packages, use) in EXTRAS.items():
        try:
            found = [f"{package} {metadata.version(package)}" for package in packages]
            print_line(extra, f"{', '.join(found)}; {use}")
        except metadata.PackageNotFoundError as missing:
            what = "" if len(packages) == 1 else f"{missing.name} is "
            print_line(extra, f"{what}not installed ({use}); {install_line(extra)}")
    return 0
