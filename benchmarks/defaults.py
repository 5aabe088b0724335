"""Defaults of the value learners: which candidates learn best on some seeds, and what the chosen one reaches on others.

    python benchmarks/defaults.py choose --device gpu                     CartPole: 24 candidates × 32 seeds
    python benchmarks/defaults.py choose --device gpu --worlds minatar/breakout --steps 500000
    python benchmarks/defaults.py report --device gpu                     all worlds with vectors: the default
    python benchmarks/defaults.py report --device gpu --worlds minatar --steps 1000000
    python benchmarks/defaults.py choose --steps 400 --seeds 2            whether it runs, on a CPU
    python benchmarks/defaults.py table                                   tables into docs/benchmarks/defaults.md

`choose` trains candidates, `report` the preset `default` and the same with the other loss. The seeds of one are never
those of the other. All seeds of a row are one program (`fused`), evaluated without exploration, {episodes} episodes
each. On a GPU programs compile in threads while others train. The JSON is written after every row, and rows that would
begin after `--seconds` are left out and listed. `table` reads all files `results/defaults-*.json`; where two have the
same row, the one with more steps counts.
"""

import argparse
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.execution import execute
from xladder.plans import plan
from xladder.runs.disk import write_json
from xladder.worlds import names

HERE = Path(__file__).parent
CHOOSING, REPORTED = 1000, 2000  # the first seed of each
EPISODES = 16
MINATAR = [name for name in names.GYMNAX if name.startswith("minatar/")]
VECTORS = [name for name, world in names.GYMNAX.items() if len(world.shape) == 1]
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
        about.append(f"`{content['command']}`, {content['device']}")
        for row in content["rows"]:
            key = (row["world"], row["name"])
            found[key] = max(row, found.get(key, row), key=lambda r: r["steps"])  # of two alike, the later
    order = list(names.GYMNAX)
    return sorted(found.values(), key=lambda row: (order.index(row["world"]), -row["mean"])), about


def tables() -> str:
    """The tables of docs/benchmarks/defaults.md."""
    lines = []
    for what, title in {"choose": "Candidates", "report": "The default, on seeds that chose nothing"}.items():
        rows, about = kept(what)
        if not rows:
            continue
        heads = [
            "world",
            "settings",
            "steps",
            "return",
            "worst seed",
            "random play",
            *["published"] * (what == "report"),
        ]
        lines += [f"## {title}", "", *(f"{text}  " for text in about), ""]
        lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        for row in rows:
            cells = [row["world"], row["name"], f"{row['steps']:,}", f"{row['mean']:.2f} ± {row['ci95']:.2f}"]
            if "solved" in row:
                cells[-1] += f", {row['solved']} of {len(row['per_seed'])} above {SOLVED[row['world']]:.0f}"
            cells += [f"{row['worst']:.2f}", f"{row['random']:.2f}", PUBLISHED.get(row["world"], "–")]
            lines.append(f"| {' | '.join(cells[: len(heads)])} |".replace("-", "−"))
        lines.append("")
    return "\n".join(lines) or "Nothing has been measured yet.\n"


def write_tables() -> None:
    """Put the tables between the marks in docs/benchmarks/defaults.md."""
    before, rest = DOCS.read_text().split(MARKS[0])
    DOCS.write_text(f"{before}{MARKS[0]}\n{tables()}{MARKS[1]}{rest.split(MARKS[1])[1]}")


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
    parser.add_argument("--threads", type=int, help="rows at once (1 on a CPU, 4 on a GPU)")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/defaults-WHAT-DEVICE.json)")
    options = parser.parse_args()
    if options.what == "table":
        return write_tables()
    kinds = {"vectors": VECTORS, "minatar": MINATAR}
    given = options.worlds or (["cartpole"] if options.what == "choose" else ["vectors"])
    worlds = [world for word in given for world in kinds.get(word, [word])]
    first, jobs_of = (CHOOSING, candidates) if options.what == "choose" else (REPORTED, reported)
    jobs = [job for world in worlds for job in jobs_of(world) if all(word in job.name for word in options.only)]
    seeds, begun, out = range(first, first + options.seeds), time.perf_counter(), options.out
    out = out or HERE / "results" / f"defaults-{options.what}-{options.device}.json"
    facts = measured_on(devices.find(options.device)) | {"episodes": EPISODES}
    rows: list[dict] = []
    failed: list[str] = []

    def row_of(job: Job) -> dict | None:
        late = time.perf_counter() - begun > options.seconds
        return None if late else measure(job, seeds, options.steps, options.device)

    with ThreadPoolExecutor(options.threads or (4 if options.device == "gpu" else 1)) as pool:
        running = {pool.submit(row_of, job): job for job in jobs}
        for future in as_completed(running):
            job = running[future]
            if (error := future.exception()) or future.result() is None:
                failed.append(f"{job.world}, {job.name}: {error or 'no time was left'}")
                print(failed[-1], flush=True)
            else:
                rows.append(future.result())
                print(show(rows[-1]), flush=True)
            ordered = sorted(rows, key=lambda row: (worlds.index(row["world"]), -row["mean"]))
            write_json(out, {"rows": ordered, "left_out": failed, **facts})


if __name__ == "__main__":
    main()
