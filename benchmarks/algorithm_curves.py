"""Learning curves of every algorithm and of worlds, for their pages in docs/algorithms and docs/worlds.

    python benchmarks/algorithm_curves.py catch cartpole             value presets on two small worlds
    python benchmarks/algorithm_curves.py hypergrid ingredients      GFlowNet losses and ingredients
    python benchmarks/algorithm_curves.py memory exploration         worlds that need one or the other
    python benchmarks/algorithm_curves.py vectors flows hosted       worlds that no other benchmark trains
    python benchmarks/algorithm_curves.py catch --only iqn,rainbow   some rows again; other rows of the file are kept
    python benchmarks/algorithm_curves.py catch --scale 0.02         whether it runs; writes nothing
    python benchmarks/algorithm_curves.py catch --random             random play of the file's rows again, nothing else

Each piece is a file, results/curves-PIECE-cpu.json, written after every row. A row has the command line that trains the
same; where a world is jittable, all its seeds are one program (`fused`). A curve is the mean over seeds with its 95 %
interval: of the training return in POINTS parts of the run, exploration included, or of exact total variation.
"""

import argparse
import json
import shlex
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from rounds import command, measured_on

from xladder import devices
from xladder.core.statistics import episode_weights, mean_and_interval, weighted_mean
from xladder.execution import execute
from xladder.plans import plan
from xladder.runs.disk import write_json

RESULTS = Path(__file__).parent / "results"
SEEDS, EPISODES, POINTS = 8, 16, 40
RANDOM_EPISODES = 1000  # cheap, and few of them say little
VALUE = ("dqn", "double", "dueling", "c51", "qrdqn", "iqn", "munchausen", "rainbow", "pqn")
LOSSES = ("tb", "db", "subtb", "fm", "fldb", "flsubtb", "vargrad", "mdb", "rtb")


@dataclass(frozen=True)
class Row:
    """One run: what it is called on its page, and what `xladder train` is told."""

    name: str
    world: str
    length: tuple[str, int]
    """The setting that says how long, and its value."""
    preset: str = "default"
    changes: dict[str, object] = field(default_factory=dict)
    """By dotted name, as on the command line."""
    seeds: int = SEEDS
    rung: str = "fused"

    @property
    def line(self) -> str:
        """The command line of the same run."""
        flags = {"preset": self.preset, self.length[0]: self.length[1], **self.changes, "rung": self.rung}
        words = [w for k, v in flags.items() if v != "default" for w in (f"--{k.replace('_', '-')}", str(v))]
        return shlex.join(["xladder", "train", self.world, *words, "--seeds", str(self.seeds)])


def steps(name: str, world: str, count: int, preset: str = "default", **more: object) -> Row:
    """A row of a value learner."""
    return Row(name, world, ("steps", count), preset, **more)


def iterations(name: str, world: str, count: int, **changes: object) -> Row:
    """A row of a GFlowNet; `__` in names stands for a dot."""
    return Row(name, world, ("iterations", count), changes={k.replace("__", "."): v for k, v in changes.items()})


def value_rows(world: str, count: int, **seeds: int) -> list[Row]:
    """Every value preset in one world; PQN, which learns from each step once, is given as many as its preset has."""
    lengths = {name: 409_600 if name == "pqn" else count for name in VALUE}
    return [steps(name, world, length, name, seeds=seeds.get(name, SEEDS)) for name, length in lengths.items()]


def ingredient_rows() -> list[Row]:
    """What GFlowNets can be given besides a loss: on a hard grid, and for many rewards at once."""
    hard = {"world__reward": "hard", "learner__epsilon": 0.0}
    both = {"world__reward": "easy+corners", "learner__condition": "preferences"}
    return [
        iterations("no exploration", "hypergrid", 1500, **hard),
        iterations("random steps", "hypergrid", 1500, **(hard | {"learner__epsilon": 0.3})),
        iterations("local search", "hypergrid", 1500, learner__local_search=2, **hard),
        iterations("diverse replay", "hypergrid", 1500, learner__replay="diverse", **hard),
        iterations("β from 0.5 to 2", "hypergrid", 2000, learner__condition="beta"),
        iterations("weights of easy + corners", "hypergrid", 2000, **both),
    ]


PIECES = {
    "catch": value_rows("catch", 30_000),
    "cartpole": value_rows("cartpole", 40_000, iqn=4),
    "hypergrid": [iterations(loss, "hypergrid", 2000, loss=loss) for loss in LOSSES],
    "ingredients": ingredient_rows(),
    "memory": [steps(preset, "memorychain", 20_000, preset, seeds=4) for preset in ("r2d2", "dueling")],
    "exploration": [steps(preset, "mountaincar", 100_000, preset, seeds=4) for preset in ("explore", "default")],
    "vectors": [steps(world, world, 30_000, seeds=4) for world in ("acrobot", "deepsea", "frozenlake")],
    "flows": [iterations("bits", "bits", 2000), iterations("sequences", "sequences", 1000)],
    "hosted": [
        steps("gym/CartPole-v1", "gym/CartPole-v1", 30_000, seeds=4, rung="parallel"),
        steps("jaxmarl/MPE_simple_spread_v3", "jaxmarl/MPE_simple_spread_v3", 60_000, seeds=4),
        steps("minatar/breakout", "minatar/breakout", 409_600, "pqn", seeds=4),
    ],
}


def measure(row: Row, scale: float) -> dict:
    """Train a row's seeds and evaluate them."""
    unit, length = row.length
    nested: dict = {unit: max(1, round(length * scale))}
    for name, value in row.changes.items():
        group, _, leaf = name.partition(".")
        nested |= {group: nested.get(group, {}) | {leaf: value}} if leaf else {name: value}
    settings = {"evaluate_episodes": 0} if unit == "steps" else {}
    begun = time.perf_counter()
    chosen = plan(row.world, row.rung, seeds=row.seeds, device="cpu", preset=row.preset, changes=nested | settings)
    result = execute(chosen)
    seconds = time.perf_counter() - begun
    found = {"name": row.name, "world": row.world, "preset": row.preset, "seeds": row.seeds, "command": row.line}
    found |= {"unit": unit, "length": getattr(result.config, unit), "seconds": round(seconds, 1)}
    curve = returns(result) | random_play(row.world, row.rung) if unit == "steps" else distances(result)
    return found | curve | {"git_commit": measured_on(devices.find("cpu"))["git_commit"]}


@cache
def random_play(world: str, rung: str) -> dict:
    """The return of random actions; the agents that are evaluated beside them have hardly been trained."""
    chosen = plan(world, rung, device="cpu", changes={"steps": 1, "evaluate_episodes": 0})
    score = execute(chosen).evaluate(RANDOM_EPISODES)
    return {
        "random": float(score["random_return"]),
        "random_ci95": float(score["random_ci95"]),
        "random_episodes": RANDOM_EPISODES,
    }


def returns(result) -> dict:
    """The curve of training returns, and the return of the greedy policy."""
    columns, per_tick = result.metrics, result.config.units_per_tick
    parts = np.array_split(np.arange(columns["return"].shape[1]), POINTS)
    weights = episode_weights("return", columns)
    each = np.stack([weighted_mean(columns["return"][:, p], weights[:, p], axis=1) for p in parts], axis=1)
    score = result.evaluate(EPISODES)
    # An agent axis, where there is one, is averaged by `evaluate`.
    return points([int((p[-1] + 1) * per_tick) for p in parts], each) | {
        "measure": "return",
        "end": mean_of(np.array(score["per_seed"])),
        "episodes": EPISODES,
    }


def distances(result) -> dict:
    """Exact total variation, with modes where a world counts them."""
    columns = result.metrics
    at = np.flatnonzero(np.isfinite(columns["tv"]).all(axis=0))
    modes = {"modes": mean_of(columns["modes"][:, at[-1]])} if "modes" in columns else {}
    extra = {name: mean_of(values[:, at[-1]]) for name, values in columns.items() if name.startswith("tv_")}
    return points([int(t + 1) for t in at], columns["tv"][:, at]) | {
        "measure": "total variation",
        "end": mean_of(columns["tv"][:, at[-1]]),
        "logz_error": mean_of(columns["logz_error"][:, at[-1]]),
        "conditions": extra,
        **modes,
    }


def points(at: list[int], each: np.ndarray) -> dict:
    """A curve over seeds, [seed, point]."""
    mean, half = mean_and_interval(each)
    return {"at": at, "mean": rounded(mean), "ci95": rounded(half)}


def rounded(values: np.ndarray) -> list[float | None]:
    """Numbers for a file; None where nothing was measured."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values]


def mean_of(each: np.ndarray) -> dict:
    """Mean, interval and worst of the seeds."""
    mean, half = mean_and_interval(each)
    return {"mean": float(mean), "ci95": float(half), "per_seed": rounded(each)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="+", choices=list(PIECES))
    parser.add_argument("--only", default="", help="names of rows, with commas; the file's other rows are kept")
    parser.add_argument("--scale", type=float, default=1.0, help="shortens runs, to try the script")
    parser.add_argument("--random", action="store_true", help="measure random play only")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    for piece in options.pieces:
        out = RESULTS / f"curves-{piece}-cpu.json"
        if options.random:
            found = json.loads(out.read_text())
            rungs = {row.name: row.rung for row in PIECES[piece]}
            rows = [row | random_play(row["world"], rungs[row["name"]]) for row in found["rows"]]
            write_json(out, found | {"rows": rows, "random_command": command()})
            continue
        for row in PIECES[piece]:
            if only and row.name not in only:
                continue
            found = measure(row, options.scale)
            end = found["end"]
            print(
                f"{piece:<12} {row.name:<28} {end['mean']:.4g} ± {end['ci95']:.2g}  {found['seconds']:.0f} s",
                flush=True,
            )
            order = [r.name for r in PIECES[piece]]
            kept = json.loads(out.read_text())["rows"] if out.exists() else []  # read now: others may have added to it
            rows = [r for r in kept if r["name"] in order and r["name"] != row.name] + [found]
            rows.sort(key=lambda r: order.index(r["name"]))
            if options.scale == 1.0:
                write_json(out, measured_on(devices.find("cpu")) | {"rows": rows})


if __name__ == "__main__":
    main()
