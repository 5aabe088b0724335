"""Every preset on Catch, CartPole and MinAtar Breakout: the return after training beside random play, over seeds.

    python benchmarks/presets_learn.py --device gpu --workers 12          about five minutes on an H200
    python benchmarks/presets_learn.py --worlds catch --presets iqn qrdqn --scale 0.1
    python benchmarks/presets_learn.py --worlds memorychain umbrellachain metamaze --presets r2d2 dueling
    python benchmarks/presets_learn.py table                              into docs/benchmarks/presets.md

Presets are a world's own, and those of every protocol that it has (`pqn/purejaxql`). All seeds of a preset are one
program (`fused`) in a process of its own; `--workers` processes run side by side, on one GPU, too. The agents of a
protocol train as long as published, except MinAtar's DQN, which would take longer than all others together. `--scale`
shortens runs. Rows that the file has already, as long and with as many seeds, are kept; those that would begin after
`--seconds` are left out and listed, and the next call trains them. `table` reads all files
`results/presets-learn-*.json`. Worlds that may need memory are measured if they are named.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from side_by_side import (
    MARKS,
    RESULTS,
    add_options,
    best_rows,
    markdown_table,
    measure_rows,
    measured_before,
    print_row,
    write_between,
)

from xladder.families.value import gymnax_presets
from xladder.families.value import presets as named
from xladder.families.value.published import protocols
from xladder.training import train

# A world's steps for our own presets with a replay memory, and the return that counts as solved.
WORLDS = {"catch": (100_000, 0.9), "cartpole": (100_000, 475.0), "minatar/breakout": (300_000, None)}
MEMORY_WORLDS = {"memorychain": (50_000, 0.9), "umbrellachain": (100_000, None), "metamaze": (500_000, None)}
KNOWN = WORLDS | MEMORY_WORLDS
SHORTENED = {("minatar/breakout", "dqn", "minatar")}  # with an update in every step, 5 million take too long
SLOW = ("r2d2", "iqn", "rainbow")  # whose rows begin first within a world, as they end last
EPISODES = 32
DOCS = Path(__file__).parents[1] / "docs" / "benchmarks" / "presets.md"


@dataclass(frozen=True)
class Job:
    """One row: a preset of a world, or of a protocol there."""

    world: str
    preset: str
    protocol: str | None
    scale: float = 1.0

    @property
    def name(self) -> str:
        """World, preset and protocol."""
        return f"{self.world}, {self.preset}{f'/{self.protocol}' if self.protocol else ''}"

    @property
    def steps(self) -> int:
        """Agent steps of all envs together, whole ticks."""
        config = named.presets(self.world, self.protocol)[self.preset]
        whole = (self.protocol or self.preset == "pqn") and (self.world, self.preset, self.protocol) not in SHORTENED
        steps = config.steps if whole else KNOWN[self.world][0]
        return max(1, round(steps * self.scale / config.per_tick)) * config.per_tick


def jobs_of(world: str, scale: float = 1.0) -> Iterator[Job]:
    """The rows of a world: our own presets, then the published agents."""
    yield from (Job(world, name, None, scale) for name in named.presets(world) if name != "default")
    for protocol in protocols(gymnax_presets.agents(world)):
        yield from (Job(world, name, protocol, scale) for name in named.presets(world, protocol) if name != "default")


def urgency(job: Job) -> tuple[bool, bool, bool]:
    """Sorts jobs for a limited time: published agents, then the rest, of which those that take long begin first.

    In MinAtar, R2D2 takes several times as long as any other, and comes last.
    """
    pictures = job.world.startswith("minatar/")
    return job.protocol is None, pictures and job.preset == "r2d2", job.preset not in SLOW


def measure(job: Job, seeds: int, device: str) -> dict:
    """Train one preset with all seeds at once, and evaluate it."""
    begun = time.perf_counter()
    choice = {"preset": job.preset, "protocol": job.protocol}
    result = train(job.world, "fused", **choice, device=device, seeds=seeds, steps=job.steps, evaluate_episodes=0)
    trained = time.perf_counter() - begun
    score = result.evaluate(EPISODES)
    each = np.array(score["per_seed"])
    bar = KNOWN[job.world][1]
    return {
        "world": job.world,
        "preset": job.preset,
        "protocol": job.protocol,
        "steps": job.steps,
        "seeds": seeds,
        "per_seed": each.tolist(),
        "mean": float(each.mean()),
        "ci95": score["ci95"],
        "worst": float(each.min()),
        "random": score["random_return"],
        "learned": "advice" not in score,
        **({} if bar is None else {"solved": int((each >= bar).sum())}),
        "compile_seconds": result.compile_seconds,
        "seconds": trained,
    }


def key(row: dict) -> tuple[str, str, str | None]:
    """What tells rows apart."""
    return row["world"], row["preset"], row["protocol"]


def ordered(row: dict) -> tuple[int, float]:
    """Sorts rows by world, the best first."""
    return list(KNOWN).index(row["world"]), -row["mean"]


def show(row: dict) -> str:
    """A row as a line."""
    solved = f"  {row['solved']}/{row['seeds']} solved" if "solved" in row else ""
    return (
        f"{Job(*key(row)).name:<32} {row['steps']:>11,} steps {row['mean']:>9.2f} ± {row['ci95']:<7.2f} worst "
        f"{row['worst']:>8.2f}  random {row['random']:>7.2f}  {row['seconds']:>6.0f} s{solved}"
        f"{'' if row['learned'] else '  NOT above random play'}"
    )


def missing(rows: list[dict]) -> str:
    """A sentence that says which rows the table should have and lacks."""
    wanted = [job for world in WORLDS for job in jobs_of(world)]
    found = {Job(*key(row)).name for row in rows}
    lacking = [job.name for job in wanted if job.name not in found]
    if not lacking:
        return f"Rows measured: all {len(wanted)}."
    if len(lacking) == len(wanted):
        return f"None of the {len(wanted)} rows is measured so far."
    return f"Rows measured: {len(wanted) - len(lacking)} of {len(wanted)}. Missing are: {'; '.join(lacking)}."


def tables() -> str:
    """The table of docs/benchmarks/presets.md."""
    rows, about = best_rows("presets-learn-*.json", key)
    lines = [*(f"{text}  " for text in about), "", missing(rows), ""] if about else [missing(rows), ""]
    cells = []
    for row in sorted(rows, key=ordered):
        score = f"{row['mean']:.2f} ± {row['ci95']:.2f}"
        if "solved" in row:
            score += f", {row['solved']} of {row['seeds']} at {KNOWN[row['world']][1]:g} or more"
        if not row["learned"]:
            score += ", **not above random play**"
        agent = row["preset"] + (f", `{row['protocol']}`" if row["protocol"] else "")
        ends = [f"{row['steps']:,}", score, f"{row['worst']:.2f}", f"{row['random']:.2f}"]
        cells.append([row["world"], agent, *ends])
    if cells:
        lines += [*markdown_table(["world", "preset", "steps", "return", "worst seed", "random play"], cells), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"], nargs="?", default="train")
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=list(KNOWN))
    parser.add_argument("--presets", nargs="*", default=[], help="all, if none is named")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps")
    add_options(parser)
    options = parser.parse_args()
    if options.what == "table":
        return write_between(DOCS, MARKS, tables())
    jobs = {job.name: job for world in options.worlds for job in jobs_of(world, options.scale)}
    if options.row:
        return print_row(measure(jobs[options.row], options.seeds, options.device), options.device)
    out = options.out or RESULTS / f"presets-learn-{options.device}.json"
    same = {(*key(row), row["steps"]) for row in measured_before(out)["rows"] if row["seeds"] == options.seeds}
    words = {
        job.name: ("--worlds", job.world, "--seeds", str(options.seeds), "--scale", str(options.scale))
        for job in sorted(jobs.values(), key=urgency)
        if (not options.presets or job.preset in options.presets)
        and (job.world, job.preset, job.protocol, job.steps) not in same
    }
    measure_rows(words, out, options, key=key, order=ordered, show=show, facts={"episodes": EPISODES})


if __name__ == "__main__":
    main()
