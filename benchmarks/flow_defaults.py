"""Which exploration loses no modes: candidates × losses × grids on 16 seeds each, judged by exact total variation.

    python benchmarks/flow_defaults.py --device gpu                      about five minutes on an H200
    python benchmarks/flow_defaults.py --tiny --seeds 2                  whether it runs, on a CPU

All candidates that differ in their ε schedule alone are one population: one program, in which every seed has its own ε.
The schedules are stepped, in 50 levels per run. A replay memory and local search are other programs. Each program is a
job; jobs run in threads, so that some compile while others train. The JSON is written after every job, and jobs that
would begin after `--seconds` are left out and listed.

For each seed the median of the last three evaluations counts, because trajectory balance has spikes. A seed is `stuck`
if that is above 0.3: it lacks a mode or more.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from rounds import measured_on

from xladder import devices
from xladder.core.compiling import compiled
from xladder.families.gflownet import evaluation
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.hypergrid_presets import Config, WorldConfig
from xladder.families.gflownet.program import Program
from xladder.rungs.fused import FusedRun
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
LEVELS, LAST = 50, (45, 48, 50)  # steps of a schedule, and after which of them samplers are evaluated
STUCK = 0.3
PUBLISHED = (0.1, 0.48)
# ε at the start, and the fraction of the run after which it is 0.
SCHEDULES = (PUBLISHED, (0.1, 0.9), (0.2, 0.9), (0.3, 0.9), (0.5, 0.9), (0.3, 0.48))
FEW = (PUBLISHED, (0.3, 0.9))
GRIDS = {"8²": (WorldConfig(2, 8), 2000), "26²": (WorldConfig(2, 26), 5000), "8⁴": (WorldConfig(4, 8), 5000)}
TINY = {"4²": (WorldConfig(2, 4), 50), "3³": (WorldConfig(3, 3), 50)}
INGREDIENTS = {
    "none": {},
    "diverse replay": {"replay": "diverse", "memory": 1000},
    "local search": {"local_search": 2, "local_search_rule": "metropolis"},
}


@dataclass(frozen=True)
class Job:
    """One program: a grid, a loss and an ingredient, with several schedules of ε."""

    grid: str
    loss: str
    ingredient: str
    schedules: tuple[tuple[float, float], ...]


class OneBucket(FusedRun):
    """A population whose updates all have the largest bucket: a GPU has room for it, and it compiles in a third."""

    def make_program(self, config):
        return replace(Program.for_platform(config, self.device.platform, self.seeds), one_bucket=True)


def jobs(grids):
    """The most telling first, in case time runs out."""
    plain = [Job(grid, loss, "none", SCHEDULES) for loss in ("tb", "vargrad", "db", "subtb") for grid in grids]
    more = [
        Job(grid, loss, name, FEW)
        for loss in ("tb", "vargrad")
        for name in ("diverse replay", "local search")
        for grid in grids
    ]
    return plain + more


def epsilons(job, seeds, level):
    """float32 [S]: ε of every row of the population at a level of its schedule."""
    each = [start * max(0.0, 1 - level / LEVELS / until) for start, until in job.schedules]
    return jnp.repeat(jnp.asarray(each, jnp.float32), seeds)


def trained(job, grids, seeds, device):
    """Rows, one per schedule: total variation and modes of every seed at the end."""
    world, iterations = grids[job.grid]
    learner = replace(LearnerConfig(), **INGREDIENTS[job.ingredient])
    config = Config(world, learner, loss=job.loss, iterations=iterations)
    plain = replace(config, learner=LearnerConfig())  # one evaluation program for all ingredients
    begun = time.perf_counter()
    with jax.default_device(device):
        run = OneBucket(config, [*range(seeds)] * len(job.schedules), device)
        found = []
        for level in range(LEVELS):
            now = epsilons(job, seeds, level)
            agent = run.runs.agent
            explore = agent.hyperparams._replace(epsilon=now, epsilon_end=jnp.array(now))
            run.runs = run.runs._replace(agent=agent._replace(hyperparams=explore))
            run.advance(max(1, iterations // LEVELS))
            if level + 1 in LAST:
                found.append(evaluation.measure(plain, run.params(), level, compiled).columns)
    distances = np.median([one["tv"] for one in found], axis=0).reshape(len(job.schedules), seeds)
    modes = found[-1]["modes"].reshape(len(job.schedules), seeds)
    facts = {"grid": job.grid, "loss": job.loss, "ingredient": job.ingredient, "iterations": iterations}
    facts |= {"seconds": time.perf_counter() - begun, "num_modes": world.build().num_modes()}
    return [
        facts
        | {
            "epsilon": start,
            "explore_until": until,
            "median": float(np.median(row)),
            "mean": float(row.mean()),
            "worst": float(row.max()),
            "stuck": int((row > STUCK).sum()),
            "tv_each": row.tolist(),
            "modes_each": there.tolist(),
        }
        for (start, until), row, there in zip(job.schedules, distances, modes, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--tiny", action="store_true", help="tiny grids and runs, to see that it runs")
    parser.add_argument("--only", nargs="*", default=[], help="words that a job has to have: a grid, a loss …")
    parser.add_argument("--seconds", type=float, default=280, help="no job begins after this time")
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "flow-defaults.json")
    options = parser.parse_args()
    device, grids, begun, lock = devices.find(options.device), TINY if options.tiny else GRIDS, time.time(), Lock()
    todo = [job for job in jobs(grids) if {job.grid, job.loss, job.ingredient} >= set(options.only)]
    console, rows, left_out, failed = Console(width=120), [], [], []

    def work(job):
        if time.time() - begun > options.seconds:
            return None
        return trained(job, grids, options.seeds, device)

    def write():
        facts = {"rows": rows, "left_out": left_out, "failed": failed, "seeds": options.seeds, "stuck_above": STUCK}
        write_json(options.out, facts | measured_on(device))

    with ThreadPoolExecutor(options.threads) as pool:
        waiting = {pool.submit(work, job): job for job in todo}
        for future in as_completed(waiting):
            job = waiting[future]
            name = f"{job.grid}, {job.loss}, {job.ingredient}"
            with lock:
                if future.exception() is not None:
                    failed.append(f"{name}: {future.exception()!r}"[:300])
                    console.print(failed[-1], markup=False)
                elif future.result() is None:
                    left_out.append(name)
                else:
                    rows.extend(future.result())
                    console.print(f"{time.time() - begun:6.0f} s  {name}", highlight=False)
                write()
    show(rows, console)
    for name in left_out:
        console.print(f"left out: {name}", highlight=False)


def show(rows, console):
    table = Table(title="exact total variation over seeds: median, worst, stuck seeds", title_justify="left")
    for head in ("grid", "loss", "ingredient", "ε", "until", "median", "mean", "worst", "stuck"):
        table.add_column(head)
    for row in sorted(rows, key=lambda row: (row["grid"], row["loss"], row["ingredient"], row["median"])):
        numbers = [f"{row[name]:.4f}" for name in ("median", "mean", "worst")]
        names = [str(row[name]) for name in ("grid", "loss", "ingredient", "epsilon", "explore_until")]
        table.add_row(*names, *numbers, f"{row['stuck']} of {len(row['tv_each'])}")
    console.print(table)


if __name__ == "__main__":
    main()
