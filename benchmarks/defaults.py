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
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rounds import command, measured_on, peer_row

from xladder import devices
from xladder.execution import execute
from xladder.plans import plan
from xladder.runs.disk import write_json
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
MARKS = ("<!-- measured -->", "<!-- end -->")
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


def kept(what: str) -> tuple[list[dict], list[str]]:
    """The rows of all files of a kind, and what measured them."""
    found: dict[tuple[str, str], dict] = {}
    about = []
    for file in sorted((HERE / "results").glob(f"defaults-{what}-*.json")):
        content = json.loads(file.read_text())
        about += [f"`{line}`, {content['device']}" for line in content["command"].split(" && ")]
        for row in content["rows"]:
            key = (row["world"], row["name"])
            found[key] = max(row, found.get(key, row), key=lambda r: r["steps"])  # of two alike, the later
    order = list(names.GYMNAX)
    return sorted(found.values(), key=lambda row: (order.index(row["world"]), -row["mean"])), about


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
        lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        for row in rows:
            cells = [row["world"], row["name"], f"{row['steps']:,}", f"{row['mean']:.2f} ± {row['ci95']:.2f}"]
            if "solved" in row:
                cells[-1] += f", {row['solved']} of {len(row['per_seed'])} above {SOLVED[row['world']]:.0f}"
            cells += [f"{row['worst']:.2f}", f"{row['random']:.2f}", PUBLISHED.get(row["world"], "–")]
            lines.append(f"| {' | '.join(cells[: len(heads)])} |".replace("-", "−"))
        lines.append("")
    return "\n".join(lines)


def write_tables() -> None:
    """Put the tables between the marks in docs/benchmarks/defaults.md."""
    before, rest = DOCS.read_text().split(MARKS[0])
    DOCS.write_text(f"{before}{MARKS[0]}\n{tables()}{MARKS[1]}{rest.split(MARKS[1])[1]}")


def jobs_of(what: str, world: str) -> list[Job]:
    """The rows of a world."""
    return candidates(world) if what == "choose" else reported(world)


def train_one(options: argparse.Namespace) -> None:
    """Print the one row that the options name, with what measured it, as a line of JSON."""
    (job,) = [job for job in jobs_of(options.what, options.worlds[0]) if job.name == options.row]
    seeds = range(FIRST[options.what], FIRST[options.what] + options.seeds)
    row = measure(job, seeds, options.steps, options.device)
    print(json.dumps({"row": row, "facts": measured_on(devices.find(options.device))}))


def row_of(job: Job, options: argparse.Namespace, until: float) -> dict:
    """A row, trained in a process of its own, or why there is none, as `error`."""
    if time.perf_counter() > until:
        return {"error": "no time was left"}
    words = [sys.executable, __file__, options.what, "--device", options.device, "--seeds", str(options.seeds)]
    words += ["--steps", str(options.steps)] if options.steps else []
    # Each process would reserve three quarters of a GPU's memory.
    memory = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return peer_row(job.name, [*words, "--worlds", job.world, "--row", job.name], options.row_seconds, **memory)


def trained_before(out: Path) -> dict:
    """What the file of results holds."""
    return json.loads(out.read_text()) if out.exists() else {"rows": []}


def main() -> None:
    text = __doc__.format(episodes=EPISODES)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose", "report", "table"])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--worlds", nargs="*", help="names, or `vectors` or `minatar` for all of a kind")
    parser.add_argument("--only", nargs="*", default=[], help="words that a row's name has to have: squared, soft …")
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--steps", type=int, help="if not as many as the default says")
    parser.add_argument("--seconds", type=float, default=3600, help="no row begins after this time")
    parser.add_argument("--row-seconds", type=float, default=3600, help="a row that takes longer is stopped")
    parser.add_argument("--workers", type=int, default=1, help="rows at once, each a process")
    parser.add_argument("--row", help=argparse.SUPPRESS)  # the name of the row that this process trains
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/defaults-WHAT-DEVICE.json)")
    options = parser.parse_args()
    if options.what == "table":
        return write_tables()
    if options.row:
        return train_one(options)
    kinds = {"vectors": VECTORS, "minatar": MINATAR}
    given = options.worlds or (["cartpole"] if options.what == "choose" else ["vectors"])
    worlds = [world for word in given for world in kinds.get(word, [word])]
    jobs = [job for w in worlds for job in jobs_of(options.what, w) if all(word in job.name for word in options.only)]
    out = options.out or HERE / "results" / f"defaults-{options.what}-{options.device}.json"
    before = trained_before(out)
    rows: list[dict] = before["rows"]
    seeds = [FIRST[options.what], FIRST[options.what] + options.seeds - 1]
    same = {(row["world"], row["name"], row["steps"]) for row in rows if row["seeds"] == seeds}
    jobs = [job for job in jobs if (job.world, job.name, options.steps or plan(job.world).config.steps) not in same]
    begun = [line for line in before.get("command", "").split(" && ") if line and line != command()]
    failed: list[str] = []
    until = time.perf_counter() + options.seconds
    with ThreadPoolExecutor(options.workers) as pool:
        running = {pool.submit(row_of, job, options, until): job for job in jobs}
        for future in as_completed(running):
            job, found = running[future], future.result()
            if "error" in found:
                failed.append(f"{job.world}, {job.name}: {found['error']}")
                print(failed[-1], flush=True)
            else:
                rows = [row for row in rows if (row["world"], row["name"]) != (job.world, job.name)]
                rows.append(found["row"] | {"process_seconds": found["process_seconds"]})
                print(show(rows[-1]), flush=True)
                if before.get("device", found["facts"]["device"]) != found["facts"]["device"]:
                    sys.exit(f"{out} has rows from {before['device']}, and these are from {found['facts']['device']}")
                before |= found["facts"]
            order = list(names.GYMNAX)
            ordered = sorted(rows, key=lambda row: (order.index(row["world"]), -row["mean"]))
            facts = before | {"command": " && ".join([*begun, command()]), "episodes": EPISODES}
            write_json(out, facts | {"rows": ordered, "left_out": failed})


if __name__ == "__main__":
    main()
