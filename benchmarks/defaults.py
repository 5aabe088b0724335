"""Defaults of the value learners: which candidates learn best on some seeds, and what the chosen one reaches on others.

    python benchmarks/defaults.py choose --device gpu --workers 8         CartPole: 24 candidates × 32 seeds
    python benchmarks/defaults.py choose --device gpu --worlds minatar/breakout --steps 500000
    python benchmarks/defaults.py report --device gpu --workers 8         all worlds with vectors: the default
    python benchmarks/defaults.py report --device gpu --worlds minatar --steps 500000
    python benchmarks/defaults.py choose --steps 400 --seeds 2            whether it runs, on a CPU
    python benchmarks/defaults.py table                                   tables into docs/benchmarks/defaults.md

`choose` trains candidates, `report` the preset `default` and the same with the other loss. The seeds of one are never
those of the other. All seeds of a row are one program (`fused`) in a process of its own, evaluated without
exploration, {episodes} episodes each; `--workers` processes run side by side, on one GPU, too. The JSON is written
after every row. Rows that are in it already, as long and with the same seeds, are kept and not trained again; those
that would begin after `--seconds` are left out and listed, and the next call trains them. 500,000 steps of 32 seeds of
the five MinAtar worlds take about two minutes of an H200 that makes 0.7 million steps per second. `table` reads all
files `results/defaults-*.json`; where two have the same row, the one with more steps counts.
"""

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from side_by_side import (
    MARKS,
    add_options,
    best_rows,
    markdown_table,
    measure_rows,
    measured_before,
    print_row,
    write_between,
)

from xladder.execution import execute
from xladder.plans import plan
from xladder.worlds import names

HERE = Path(__file__).parent
FIRST = {"choose": 1000, "report": 2000}  # the first seed of each
EPISODES = 16
MINATAR = [name for name in names.GYMNAX if name.startswith("minatar/")]
VECTORS = [name for name, world in names.GYMNAX.items() if len(world.shape) == 1]
WANTED = {"choose": ["cartpole"], "report": [*VECTORS, *MINATAR]}  # whose rows the tables should have
SOLVED = {"cartpole": 475.0}
LOSSES = ("huber", "squared")
DOCS = HERE.parent / "docs" / "benchmarks" / "defaults.md"
# CleanRL's documentation of dqn_jax.py (three seeds, 500,000 steps) and gymnax's README (PPO or evolution strategies).
CLEANRL, GYMNAX = "DQN, CleanRL, 500,000 steps", "PPO or ES, gymnax"
PUBLISHED = {
    "cartpole": f"498.4 ± 2.3 ({CLEANRL})",
    "acrobot": f"−88.9 ± 1.6 ({CLEANRL})",
    "mountaincar": f"−188.9 ± 11.8 ({CLEANRL}); −118 ({GYMNAX})",
    **{
        world: f"{number} ({GYMNAX})"
        for world, number in {
            "catch": "1",
            "deepsea": "0",
            "memorychain": "0.1",
            "umbrellachain": "1",
            "discountingchain": "1.1",
            "fourrooms": "1",
            "metamaze": "32",
            "bernoullibandit": "90",
            "gaussianbandit": "0",
            "minatar/asterix": "15",
            "minatar/breakout": "28",
            "minatar/freeway": "58",
            "minatar/spaceinvaders": "131",
        }.items()
    },
}
TARGETS = {
    "soft": {"target_update_period": 0, "tau": 0.01},
    "copied": {"target_update_period": 500, "tau": 0.0},
}


@dataclass(frozen=True)
class Job:
    """One row: a world and changes to the learner of its preset `default`."""

    world: str
    name: str
    learner: tuple[tuple[str, object], ...] = ()

    @property
    def label(self) -> str:
        """The world and the name."""
        return f"{self.world}, {self.name}"


def candidates(world: str) -> list[Job]:
    """What races for the default of a world: today's settings first, then those that differ in most."""
    found = []
    if world in MINATAR:
        for loss, double in itertools.product(LOSSES, (False, True)):
            found.append(Job(world, f"{loss}{', double' * double}", (("loss", loss), ("double", double))))
        return found
    for lr, steps, target, loss in itertools.product((1e-3, 2.5e-4), (5, 1), TARGETS, LOSSES):
        changes = {"loss": loss, "n_step": steps, "lr": lr, **TARGETS[target]}
        name = f"{loss}, {target} target, {steps} step{'s' * (steps > 1)}, lr {lr:g}"
        found.append(Job(world, name, tuple(changes.items())))
        if loss == "squared":  # whose gradients clipping to a norm of 10 shortens most
            found.append(Job(world, f"{name}, no clipping", (*changes.items(), ("clip", float("inf")))))
    return found


def reported(world: str) -> list[Job]:
    """The default of a world, and the same with the other loss."""
    loss = plan(world, "fused").config.learner.loss
    (other,) = set(LOSSES) - {loss}
    return [Job(world, f"default ({loss})"), Job(world, other, (("loss", other),))]


def measure(job: Job, seeds: range, steps: int | None, device: str) -> dict:
    """Train all seeds of a job in one program and evaluate them."""
    length = {} if steps is None else {"steps": steps}
    settings = {"evaluate_episodes": 0, "learner": dict(job.learner), **length}
    begun = time.perf_counter()
    result = execute(plan(job.world, "fused", seeds=list(seeds), device=device, changes=settings))
    trained = time.perf_counter() - begun
    score = result.evaluate(EPISODES)
    each = np.array(score["per_seed"])
    solved = {"solved": int((each >= SOLVED[job.world]).sum())} if job.world in SOLVED else {}
    return {
        "world": job.world,
        "name": job.name,
        "learner": {name: "inf" if value == float("inf") else value for name, value in job.learner},
        "steps": result.config.steps,
        "seeds": [seeds.start, seeds.stop - 1],
        "mean": float(each.mean()),
        "ci95": score["ci95"],
        "median": float(np.median(each)),
        "worst": float(each.min()),
        **solved,
        "random": score["random_return"],
        "per_seed": each.tolist(),
        "compile_seconds": result.compile_seconds,
        "seconds": trained,
    }


def show(row: dict) -> str:
    """A row as a line."""
    solved = f"  {row['solved']}/{len(row['per_seed'])} solved" if "solved" in row else ""
    return (
        f"{row['world']:<22} {row['name']:<42} {row['steps']:>9,} steps {row['mean']:>8.2f} ± {row['ci95']:<6.2f} "
        f"worst {row['worst']:>8.2f}  random {row['random']:>8.2f}  {row['seconds']:>5.0f} s{solved}"
    )


def key(row: dict) -> tuple[str, str]:
    """What tells rows apart."""
    return row["world"], row["name"]


def ordered(row: dict) -> tuple[int, float]:
    """Sorts rows by world, the best first."""
    return list(names.GYMNAX).index(row["world"]), -row["mean"]


def kept(what: str) -> tuple[list[dict], list[str]]:
    """The rows of all files of a kind, and what measured them."""
    rows, about = best_rows(f"defaults-{what}-*.json", key)
    return sorted(rows, key=ordered), about


def missing(what: str, rows: list[dict]) -> str:
    """A sentence that says which rows the table should have and lacks."""
    found = {(row["world"], row["name"]) for row in rows}
    wanted = [job for world in WANTED[what] for job in jobs_of(what, world)]
    lacking = [job for job in wanted if (job.world, job.name) not in found]
    if not lacking:
        return f"Rows measured: all {len(wanted)}."
    worlds = itertools.groupby(lacking, key=lambda job: job.world)
    listed = ". ".join(f"{world}: {'; '.join(job.name for job in jobs)}" for world, jobs in worlds)
    return f"Rows measured: {len(wanted) - len(lacking)} of {len(wanted)}. Missing are: {listed}."


def tables() -> str:
    """The tables of docs/benchmarks/defaults.md."""
    lines = []
    for what, title in {"choose": "Candidates", "report": "The default, on seeds that chose nothing"}.items():
        rows, about = kept(what)
        heads = ["world", "settings", "steps", "return", "worst seed", "random play"]
        heads += ["published"] * (what == "report")
        lines += [f"## {title}", "", *(f"{text}  " for text in about), "", missing(what, rows), ""]
        cells = []
        for row in rows:
            score = f"{row['mean']:.2f} ± {row['ci95']:.2f}"
            if "solved" in row:
                score += f", {row['solved']} of {len(row['per_seed'])} above {SOLVED[row['world']]:.0f}"
            ends = [score, f"{row['worst']:.2f}", f"{row['random']:.2f}", PUBLISHED.get(row["world"], "–")]
            cells.append([row["world"], row["name"], f"{row['steps']:,}", *ends][: len(heads)])
        lines += [*markdown_table(heads, cells), ""]
    return "\n".join(lines)


def jobs_of(what: str, world: str) -> list[Job]:
    """The rows of a world."""
    return candidates(world) if what == "choose" else reported(world)


def train_one(options: argparse.Namespace) -> None:
    """Print the one row that the options name, with what measured it, as a line of JSON."""
    (job,) = [job for job in jobs_of(options.what, options.worlds[0]) if job.label == options.row]
    seeds = range(FIRST[options.what], FIRST[options.what] + options.seeds)
    print_row(measure(job, seeds, options.steps, options.device), options.device)


def main() -> None:
    text = __doc__.format(episodes=EPISODES)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose", "report", "table"])
    parser.add_argument("--worlds", nargs="*", help="names, or `vectors` or `minatar` for all of a kind")
    parser.add_argument("--only", nargs="*", default=[], help="words that a row's name has to have: squared, soft …")
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--steps", type=int, help="if not as many as the default says")
    add_options(parser)
    options = parser.parse_args()
    if options.what == "table":
        return write_between(DOCS, MARKS, tables())
    if options.row:
        return train_one(options)
    kinds = {"vectors": VECTORS, "minatar": MINATAR}
    given = options.worlds or (["cartpole"] if options.what == "choose" else ["vectors"])
    worlds = [world for word in given for world in kinds.get(word, [word])]
    jobs = [job for w in worlds for job in jobs_of(options.what, w) if all(word in job.name for word in options.only)]
    out = options.out or HERE / "results" / f"defaults-{options.what}-{options.device}.json"
    seeds = [FIRST[options.what], FIRST[options.what] + options.seeds - 1]
    rows = measured_before(out)["rows"]
    same = {(row["world"], row["name"], row["steps"]) for row in rows if row["seeds"] == seeds}
    jobs = [job for job in jobs if (job.world, job.name, options.steps or plan(job.world).config.steps) not in same]
    length = ("--steps", str(options.steps)) if options.steps else ()
    words = {job.label: (options.what, "--seeds", str(options.seeds), *length, "--worlds", job.world) for job in jobs}
    measure_rows(words, out, options, key=key, order=ordered, show=show, facts={"episodes": EPISODES})


if __name__ == "__main__":
    main()
