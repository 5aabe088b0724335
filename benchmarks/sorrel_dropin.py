"""Real sorrel's worlds with its own model and with ours, in one run on one machine; prints a table and writes JSON.

    python benchmarks/sorrel_dropin.py                      sorrel's model and ours on the CPU
    python benchmarks/sorrel_dropin.py --device cuda        both on the GPU
    python benchmarks/sorrel_dropin.py --worlds tag --epochs 40
    python benchmarks/sorrel_dropin.py --device cuda --seconds 40    at most that long in each world, compiling included

The file is written anew after every epoch, so a run that is cut off leaves what it has measured.

Needs Python 3.12 or newer with sorrel 1.6. The environments take turns, epoch by epoch, so that a busy moment of the
machine hits all of them; times are medians, as wall-clock time and as the process's time on all cores. Its model is
measured with one thread of PyTorch and, on a CPU, with as many as there are cores, too (`--threads`), and the faster
one counts.

An epoch is split into learning, the model's share of acting (inside `take_action`), and the rest, which is sorrel's
own Python: worlds, observations and replay memory. No model can make that faster.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import jax
import no_notebook  # noqa: F401
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rounds import measured_on
from sorrel.models.pytorch import PyTorchIQN

from xladder import devices
from xladder.plans import plan
from xladder.runs.disk import write_json
from xladder.sorrel import JaxIQN
from xladder.sorrel.examples import example_env, play
from xladder.sorrel.models import find_device

HERE = Path(__file__).parent
# Name → workload, preset and changes. Batches are of 64 everywhere; the others are as sorrel ships them.
WORLDS: dict[str, tuple[str, str, dict]] = {
    "treasurehunt": ("treasurehunt", "sorrel", {}),
    "treasurehunt, 5 agents": ("treasurehunt", "default", {"learner": {"batch_size": 64, "epsilon": 0.6}}),
    "tag": ("tag", "sorrel", {}),
    "iowa": ("iowa", "sorrel", {}),
    "cleanup": ("cleanup", "sorrel", {}),
}


@dataclass
class Contestant:
    """One environment with one kind of model."""

    name: str
    env: object
    threads: int
    rows: list[tuple[float, ...]] = field(default_factory=list)
    acting: float = 0.0
    number: int = 0

    def __post_init__(self):
        for agent in self.env.agents:
            agent.model.take_action = self.timed(agent.model.take_action)

    def timed(self, take_action: Callable) -> Callable:
        def call(state):
            begun = time.perf_counter()
            action = take_action(state)
            self.acting += time.perf_counter() - begun
            return action

        return call

    def epoch(self) -> None:
        """One epoch as sorrel runs it; a row of seconds: all, learning, the model's acting, all on all cores."""
        torch.set_num_threads(self.threads)
        env, self.acting = self.env, 0.0
        begun, cpu = time.perf_counter(), time.process_time()
        play(env, self.number)
        acted, cpu_acted = time.perf_counter(), time.process_time()
        for agent in env.agents:
            agent.model.train_step()
        ended, cpu_ended = time.perf_counter(), time.process_time()
        self.number += 1
        self.rows.append((ended - begun, ended - acted, self.acting, cpu_ended - cpu, cpu_ended - cpu_acted))

    def result(self) -> dict:
        epoch, learning, acting, cpu, cpu_learning = (float(x) * 1000 for x in np.median(self.rows, axis=0))
        return {
            "model": self.name,
            "torch_threads": self.threads,
            "ms_per_epoch": epoch,
            "ms_learning": learning,
            "ms_acting": acting,
            "ms_world": epoch - learning - acting,
            "cpu_ms_per_epoch": cpu,
            "cpu_ms_learning": cpu_learning,
            "epochs": len(self.rows),
        }


def contestants(world: str, device: str, counts: list[int]) -> list[Contestant]:
    workload, preset, changes = WORLDS[world]
    config = plan(workload, "fused", preset=preset, changes=changes).config
    found = []
    for name, model, threads in [("PyTorchIQN", PyTorchIQN, count) for count in counts] + [("JaxIQN", JaxIQN, 1)]:
        found.append(Contestant(name, example_env(config, model, device), threads))
    return found


def measure(world: str, options: argparse.Namespace) -> Iterator[list[dict]]:
    """Rows of one world's contestants, again after every epoch that all of them have played."""
    begun = time.monotonic()
    found = contestants(world, options.device, options.threads)
    agents, turns = len(found[0].env.agents), int(found[0].env.config.experiment.max_turns)
    filled = -(-80 // turns) + 2  # epochs until there is a batch, and everything has been compiled
    for number in range(filled + options.epochs):
        for one in found:
            if number == filled:
                one.rows.clear()
            one.epoch()
        if number >= filled:
            yield compared([{"world": world, "agents": agents, "turns": turns, **one.result()} for one in found])
            if time.monotonic() - begun > options.seconds:
                return


def compared(rows: list[dict]) -> list[dict]:
    """The rows, with how much faster the last one, ours, is than the fastest of the others."""
    theirs, ours = min(rows[:-1], key=lambda row: row["ms_per_epoch"]), rows[-1]
    ours["times_faster"] = {
        key: theirs[key] / ours[key]
        for key in ("ms_per_epoch", "ms_learning", "ms_acting", "cpu_ms_per_epoch", "cpu_ms_learning")
    }
    ours["most_possible"] = theirs["ms_per_epoch"] / theirs["ms_world"]  # with a model that takes no time
    return rows


def show(rows: list[dict], console: Console) -> None:
    table = Table(title="ms per epoch, batches of 64", title_justify="left")
    heads = ("world", "agents", "model", "all", "world", "acting", "learning", "all, CPU time", "× faster", "at most")
    for head in heads:
        table.add_column(head, justify="left" if head in ("world", "model") else "right")
    for row in rows:
        faster, most = row.get("times_faster"), row.get("most_possible")
        table.add_row(
            row["world"],
            str(row["agents"]),
            f"{row['model']} ({row['torch_threads']})" if row["model"] == "PyTorchIQN" else row["model"],
            *(
                f"{row[key]:.0f}"
                for key in ("ms_per_epoch", "ms_world", "ms_acting", "ms_learning", "cpu_ms_per_epoch")
            ),
            f"{faster['ms_per_epoch']:.2f}" if faster else "",
            f"{most:.2f}" if most else "",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--epochs", type=int, default=20, help="of each environment")
    parser.add_argument("--seconds", type=float, default=math.inf, help="in each world, after which no epoch begins")
    parser.add_argument("--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--threads", nargs="*", type=int, help="of PyTorch, for sorrel's model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # otherwise JAX takes the GPU's memory, too
    options.threads = options.threads or (sorted({1, devices.cores()}) if options.device == "cpu" else [1])
    console = Console(width=120)
    found = measured_on(find_device(options.device)) | {"torch": torch.__version__}
    out = options.out or HERE / "results" / f"sorrel-dropin-{'cpu' if options.device == 'cpu' else 'gpu'}.json"
    done: list[dict] = []
    for world in options.worlds:
        rows: list[dict] = []
        for rows in measure(world, options):
            write_json(out, found | {"load_average": os.getloadavg(), "rows": done + rows})
        done += rows
        for row in rows:
            said = f"{row['ms_per_epoch']:.0f} ms per epoch ({row['epochs']} epochs)"
            console.print(f"{world}, {row['model']}, {row['torch_threads']} threads: {said}", highlight=False)
    show(done, console)


if __name__ == "__main__":
    main()
