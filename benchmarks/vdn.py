"""VDN beside independent learners: the team's return over training and after it, with everything else the same.

    python benchmarks/vdn.py --device gpu --workers 4 --steps 1000000       JaxMARL's settings in two of its worlds
    python benchmarks/vdn.py --worlds marl/examples.own_gridworld:ButtonDoor --steps 30000
    python benchmarks/vdn.py --peer JaxMARL/baselines/QLearning/vdn_rnn.py --learners vdn --steps 10000000
    python benchmarks/vdn.py table                                          into docs/algorithms/teams.md

Three learners with the settings of the preset `vdn`, of JaxMARL's protocol where there is one: a team with one network
(vdn), agents that learn alone with one network (iql, shared), and agents that learn alone with a network each (iql).
With `--peer`, a clone's file, JaxMARL's own training is a row, too (`jaxmarl_peer.py`), with as many env steps.
An env's steps count once for every learner: with a shared network, settings that count steps of agents are multiplied
by their number. Each row is a process of its own; `--workers` run side by side. Rows that the file has already, as
long and on the same seeds, are kept. `table` reads all files `results/vdn-*.json`.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from rounds import peer_row
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

from xladder.core.statistics import mean_and_interval, weighted_mean
from xladder.families.value import presets as named
from xladder.training import train
from xladder.user_code import allow

LEARNERS = {
    "vdn": {"team": True, "shared": True},
    "iql, shared": {"team": False, "shared": True},
    "iql": {"team": False, "shared": False},
}
PEER = "JaxMARL's VDN"
WORLDS = ("jaxmarl/MPE_simple_spread_v3", "jaxmarl/MPE_simple_reference_v3")
PER_STEP = ("memory", "learning_starts", "steps_per_update", "target_update_period")
EPISODES = 64
POINTS = 50  # of a curve of training
GREEDY = 20  # times that the greedy policy plays during training, as in JaxMARL's settings
DOCS = Path(__file__).parents[1] / "docs" / "algorithms" / "teams.md"


@dataclass(frozen=True)
class Job:
    """One row: a learner in a world, with JaxMARL's settings or ours."""

    world: str
    learner: str

    @property
    def protocol(self) -> str | None:
        """JaxMARL's, where it has one."""
        return "jaxmarl" if self.world.startswith("jaxmarl/MPE_") else None

    @property
    def name(self) -> str:
        """World and learner."""
        return f"{self.world}, {self.learner}"


def settings(job: Job, steps: int):
    """The preset's settings for one of the learners, with as many env steps and updates."""
    config = named.presets(job.world, job.protocol)["vdn"]
    changed = replace(config, world=replace(config.world, **LEARNERS[job.learner]), steps=steps)
    each = changed.world.rows // config.world.num_envs
    counts = {name: getattr(config.learner, name) * each for name in PER_STEP}
    evaluated = {"evaluate_episodes": EPISODES, "evaluate_every": max(1, steps * each // GREEDY)}
    return replace(changed, learner=replace(changed.learner, **counts), steps=steps * each, **evaluated)


def about(job: Job, options: argparse.Namespace) -> dict:
    """What is known of a row before it is measured."""
    return {
        "world": job.world,
        "learner": job.learner,
        "protocol": job.protocol,
        "env_steps": options.steps,
        "seeds": [options.seed, options.seed + options.seeds - 1],
    }


def measure_peer(job: Job, options: argparse.Namespace) -> dict:
    """Let JaxMARL train in one of its worlds."""
    given = ("--world", job.world.removeprefix("jaxmarl/"), "--steps", options.steps, "--seeds", options.seeds)
    words = [sys.executable, Path(__file__).with_name("jaxmarl_peer.py"), options.peer, *given, "--seed", options.seed]
    found = peer_row(job.name, [str(word) for word in words])
    if "error" in found:
        sys.exit(found["error"])
    mean, half = mean_and_interval(np.array(found["per_seed"]))
    return {
        **about(job, options),
        "per_seed": found["per_seed"],
        "mean": float(mean),
        "ci95": float(half),
        "greedy_curve": found["greedy_curve"],
        "compile_seconds": found["compile_seconds"],
        "seconds": found["whole_seconds"],
    }


def measure(job: Job, options: argparse.Namespace) -> dict:
    """Train all seeds of a learner at once, and evaluate them."""
    if job.learner == PEER:
        return measure_peer(job, options)
    config = settings(job, options.steps)
    begun = time.perf_counter()
    result = train(
        job.world,
        "fused",
        config=config,
        seeds=options.seeds,
        seed=options.seed,
        device=options.device,
        progress=False,
    )
    seconds = time.perf_counter() - begun
    score = result.evaluate(EPISODES)
    returns, episodes = result.metrics["return"], result.metrics["episodes"]
    ticks = returns.shape[1]
    parts = list(pairwise(np.linspace(0, ticks, min(POINTS, ticks) + 1).astype(int)))
    curve = [[mean(returns[s, a:b], episodes[s, a:b]) for a, b in parts] for s in range(options.seeds)]
    last = ticks - max(1, ticks // 10)
    greedy = result.metrics["eval_return"]
    evaluated = np.flatnonzero(np.isfinite(greedy[0]))
    times = [round(options.steps * (int(row) + 1) / ticks) for row in evaluated]
    return {
        **about(job, options),
        "per_seed": score["per_seed"],
        "mean": score["mean_return"],
        "ci95": score["ci95"],
        "random": score["random_return"],
        "training_return_last_tenth": [mean(r[last:], e[last:]) for r, e in zip(returns, episodes, strict=True)],
        "greedy_curve": {
            "env_steps": times,
            "return": greedy[:, evaluated].astype(float).tolist(),
        },
        "training_curve": {"env_steps": [round(options.steps * int(b) / ticks) for _, b in parts], "return": curve},
        "compile_seconds": result.compile_seconds,
        "seconds": seconds,
    }


def mean(returns: np.ndarray, episodes: np.ndarray) -> float | None:
    """The mean return per episode, or None without any."""
    value = float(weighted_mean(returns, episodes))
    return value if np.isfinite(value) else None


def key(row: dict) -> tuple[str, str]:
    """What tells rows apart."""
    return row["world"], row["learner"]


def ordered(row: dict) -> tuple[bool, str, int]:
    """Sorts rows: JaxMARL's worlds first, and in each the team."""
    return not row["world"].startswith("jaxmarl/"), row["world"], [PEER, *LEARNERS].index(row["learner"])


def show(row: dict) -> str:
    """A row as a line."""
    random = f"random {row['random']:>8.2f}" if "random" in row else ""
    return f"{Job(*key(row)).name:<56} {row['mean']:>8.2f} ± {row['ci95']:<6.2f} {random:<15}  {row['seconds']:>6.0f} s"


def tables() -> str:
    """The table of docs/algorithms/teams.md."""
    rows, about = best_rows("vdn-*.json", key, "env_steps")
    cells = []
    for row in sorted(rows, key=ordered):
        last = row.get("training_return_last_tenth")
        cells.append(
            [
                f"`{row['world']}`" + (", `--protocol jaxmarl`" if row.get("protocol") else ""),
                row["learner"],
                f"{row['env_steps']:,}",
                f"{row['mean']:.2f} ± {row['ci95']:.2f}",
                ", ".join(f"{x:.2f}" for x in row["per_seed"]),
                f"{min(last):.2f} to {max(last):.2f}" if last else "",
                f"{row['random']:.2f}" if "random" in row else "",
            ]
        )
    heads = ["world", "learner", "env steps", "return", "each seed", "last tenth of training", "random play"]
    return "\n".join([*markdown_table(heads, cells), "", *(f"{text}  " for text in about), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"], nargs="?", default="train")
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS), choices=[PEER, *LEARNERS])
    parser.add_argument("--peer", type=Path, metavar="FILE", help="vdn_rnn.py of a clone of JaxMARL")
    parser.add_argument("--steps", type=int, default=400_000, help="env steps")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    add_options(parser)
    options = parser.parse_args()
    if options.what == "table":
        return write_between(DOCS, MARKS, tables())
    allow("examples.own_gridworld")
    learners = [*options.learners, *([PEER] if options.peer and not options.row else [])]
    jobs = {job.name: job for learner in learners for job in (Job(w, learner) for w in options.worlds)}
    if options.row:
        return print_row(measure(jobs[options.row], options), options.device)
    out = options.out or RESULTS / f"vdn-{options.device}.json"
    seeds = [options.seed, options.seed + options.seeds - 1]
    same = {
        key(row) for row in measured_before(out)["rows"] if (row["env_steps"], row["seeds"]) == (options.steps, seeds)
    }
    given = ("--steps", str(options.steps), "--seeds", str(options.seeds), "--seed", str(options.seed))
    has_peer = options.peer is not None
    words = {
        name: ("--worlds", job.world, "--learners", job.learner, *given, *(("--peer", str(options.peer)) * has_peer))
        for name, job in jobs.items()
        if (job.world, job.learner) not in same
    }
    measure_rows(words, out, options, key=key, order=ordered, show=show, facts={"episodes": EPISODES})


if __name__ == "__main__":
    main()
