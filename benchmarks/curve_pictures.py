"""The curves in docs/algorithms and docs/worlds, from committed results.

    python benchmarks/curve_pictures.py [NAME …]          writes docs/images/curves/NAME.png

`pictures.py` keeps a digest of the numbers that each shows, and a test compares it with the results as they are.
"""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pictures

from xladder.core.statistics import mean_and_interval

HERE = Path(__file__).parent
FOLDER = HERE.parent / "docs" / "images" / "curves"
BLUE, ORANGE, GREEN, GREY = "#1b6ca8", "#d95f02", "#1b9e77", "#999999"
VALUE = ("dqn", "double", "dueling", "c51", "qrdqn", "iqn", "munchausen", "rainbow", "pqn")
read: set[str] = set()  # results that were asked for
STEPS, RETURN, VARIATION = "agent steps", "training return", "total variation"


@dataclass(frozen=True)
class Line:
    """A mean over seeds with its interval; gaps and intervals that are not known are None."""

    label: str
    colour: str
    at: list[float]
    mean: list[float | None]
    ci95: list[float | None]


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log: bool = False


def result(name: str) -> dict:
    """A committed result."""
    read.add(name)
    return parsed(name)


@cache
def parsed(name: str) -> dict:
    """The contents of a result."""
    return json.loads((HERE / "results" / f"{name}.json").read_text())


def measured(piece: str, **colours: str) -> tuple[Line, ...]:
    """The curves of rows of `algorithm_curves.py`, as far as they were measured."""
    file = f"curves-{piece}-cpu"
    rows = result(file)["rows"] if (HERE / "results" / f"{file}.json").exists() else []
    return tuple(
        Line(row["name"], colour, row["at"], row["mean"], row["ci95"])
        for name, colour in colours.items()
        for row in rows
        if row["name"] == name
    )


def spread(label: str, colour: str, at: list[float], each: np.ndarray) -> Line:
    """A curve from seeds [seed, point]."""
    mean, half = (np.where(np.isfinite(v), v, 0.0).round(6).tolist() for v in mean_and_interval(each))
    return Line(label, colour, at, mean, half)


def value(preset: str) -> list[Panel]:
    """A value preset beside DQN, on Catch and CartPole."""
    colours = {"dqn": GREY} | {preset: BLUE}
    titles = {"catch": "Catch", "cartpole": "CartPole"}
    found = [Panel(titles[piece], STEPS, RETURN, measured(piece, **colours)) for piece in titles]
    return [panel for panel in found if preset in [line.label for line in panel.lines]]  # not DQN alone


def losses(*names: str) -> list[Panel]:
    """GFlowNet losses on the small hypergrid, beside trajectory balance."""
    colours = {"tb": GREY} | dict(zip(names, (BLUE, ORANGE), strict=False))
    lines = measured("hypergrid", **colours)
    shown = [Panel("hypergrid, 8 × 8, easy", "iterations", VARIATION, lines, log=True)]
    return shown if names[0] in [line.label for line in lines] else []


def trained(piece: str, title: str, *names: str) -> Panel:
    """Some rows of value learners in one panel."""
    colours = dict(zip(names, (BLUE, ORANGE, GREEN, GREY), strict=False))
    return Panel(title, STEPS, RETURN, measured(piece, **colours))


def sampled(piece: str, title: str, *names: str) -> Panel:
    """Some rows of GFlowNets in one panel."""
    colours = dict(zip(names, (BLUE, ORANGE, GREEN, GREY), strict=False))
    return Panel(title, "iterations", VARIATION, measured(piece, **colours), log=True)


def board(world: str) -> list[Panel]:
    """sorrel's own training beside `fused`."""
    [entry] = [entry for entry in result("sorrel-learning")["entries"] if entry["world"] == world]
    lines = []
    for name, colour in {"sorrel": ORANGE, "fused": BLUE}.items():
        curves = np.array(entry[name]["curves"], float)
        block = max(1, curves.shape[1] // 40)
        means = curves[:, : curves.shape[1] // block * block].reshape(len(curves), -1, block).mean(-1)
        lines.append(spread(name, colour, [block * (i + 0.5) for i in range(means.shape[1])], means))
    return [Panel(f"{world}, preset {entry['preset']}, 8 seeds", "epoch", "return of all agents", tuple(lines))]


def atari() -> list[Panel]:
    """Training returns of one seed each."""
    panels = []
    for title, name in {"Pong": "atari-pong-dopamine-10M", "Breakout": "atari-breakout-cleanrl-24M"}.items():
        curve, protocol = result(name)["training_curve"], result(name)["protocol"]
        line = Line(f"dqn, {protocol}", BLUE, curve["frames"], curve["return"], [None] * len(curve["frames"]))
        panels.append(Panel(f"{title}, one seed", "frames", RETURN, (line,)))
    return panels


def points(runs: dict[str, list[dict]], key: str, title: str, y: str = VARIATION, log: bool = True) -> list[Panel]:
    """Runs with a list of values per seed at each point."""
    lines = [
        spread(label, colour, [p["iterations"] for p in found], np.array([p[key] for p in found]).T)
        for (label, found), colour in zip(runs.items(), (BLUE, ORANGE, GREEN), strict=False)
    ]
    return [Panel(title, "iterations", y, tuple(lines), log)]


def teams() -> list[Panel]:
    """VDN beside JaxMARL's own, in a world of JaxMARL's."""
    lines = []
    for row in result("vdn-cpu")["rows"]:
        label, colour = ("fused", BLUE) if row["learner"] == "vdn" else ("JaxMARL", ORANGE)
        curve = row["greedy_curve"]
        lines.append(spread(label, colour, curve["env_steps"], np.array(curve["return"])))
    return [Panel("MPE_simple_spread_v3, VDN, 4 seeds", "env steps", "greedy return of the team", tuple(lines))]


def graphs() -> list[Panel]:
    """Posteriors over graphs, beside gfnx."""
    found = result("dags-gpu")
    runs = {"fused, mdb": found["runs"][0]["points"], "gfnx, mdb": found["peer"]["points"]}
    return points(runs, "tv_each", "dags, 5 nodes, 16 seeds")


def spins() -> list[Panel]:
    """The Ising model, beside gfnx."""
    first, second, gfnx = (curve["points"] for curve in result("ising-curves-gpu")["curves"])
    return points({"fused": first, "gfnx": gfnx}, "tv_each", "3 × 3 spins in any order") + points(
        {"fused": second}, "tv_each", "4 × 4 spins row by row"
    )


def items() -> list[Panel]:
    """Sets, beside torchgfn."""
    found = result("sets-curves-cpu")
    runs = {"fused": found["fused"]["points"], "torchgfn": found["torchgfn"]["points"]}
    return points(runs, "tv", "sets, up to 5 of 10, 16 seeds")


def bits() -> list[Panel]:
    """Bit sequences: the default, exactly, and gfnx's settings."""
    runs = {curve["name"]: curve["points"] for curve in result("bits-curves-gpu")["curves"]}
    large = points(runs, "spearman_each", "120 bits, 16 seeds", "Spearman correlation", log=False)
    return [sampled("flows", "16 bits, 8 seeds", "bits"), *large]


def hypergrids() -> list[Panel]:
    """The published grid."""
    runs = {run["loss"]: run["points"] for run in result("hypergrid-learning-gpu")["runs"]}
    return points(runs, "tv_each", "hypergrid, 20⁴, easy, 16 seeds")


PICTURES = {
    **{name: partial(value, name) for name in VALUE},
    "memory": lambda: [trained("memory", "memorychain", "r2d2", "dueling")],
    "exploration": lambda: [trained("exploration", "mountaincar", "explore", "default")],
    "cartpole": lambda: [trained("cartpole", "CartPole", "dqn", "iqn", "rainbow", "double")],
    "vectors": lambda: [trained("vectors", world, world) for world in ("acrobot", "deepsea", "frozenlake")],
    "gym": lambda: [trained("hosted", "gym/CartPole-v1", "gym/CartPole-v1")],
    "jaxmarl": lambda: [trained("hosted", "MPE_simple_spread_v3", "jaxmarl/MPE_simple_spread_v3")],
    "minatar": lambda: [trained("hosted", "minatar/breakout", "minatar/breakout")],
    "ingredients": lambda: [
        sampled("ingredients", "8 × 8, hard", "no exploration", "random steps", "local search", "diverse replay")
    ],
    "conditional": lambda: [
        sampled("ingredients", "mean over conditions", "β from 0.5 to 2", "weights of easy + corners")
    ],
    "sequences": lambda: [sampled("flows", "sequences, made-up table", "sequences")],
    "tb": partial(losses, "tb", "vargrad"),
    "db": partial(losses, "db", "fldb"),
    "subtb": partial(losses, "subtb", "flsubtb"),
    "fm": partial(losses, "fm"),
    "mdb": partial(losses, "mdb"),
    "rtb": partial(losses, "rtb"),
    **{world: partial(board, world) for world in ("treasurehunt", "cleanup", "tag", "iowa")},
    "atari": atari,
    "teams": teams,
    "dags": graphs,
    "ising": spins,
    "sets": items,
    "bits": bits,
    "hypergrid": hypergrids,
}


def panels(name: str) -> list[Panel]:
    """What a picture shows; nothing if nothing was measured."""
    return [panel for panel in PICTURES[name]() if panel.lines]


def files(name: str) -> list[str]:
    """The results that a picture is made from."""
    read.clear()
    panels(name)
    return [f"benchmarks/results/{one}.json" for one in sorted(read)]


def digest(name: str) -> str:
    """Of the numbers that a picture shows."""
    return hashlib.sha256(json.dumps([asdict(panel) for panel in panels(name)]).encode()).hexdigest()


def draw(name: str) -> None:
    """Write a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = panels(name)
    size = (3.6 * max(len(shown), 1.5), 2.6)
    figure, axes = plt.subplots(1, len(shown), figsize=size, layout="constrained", squeeze=False)
    for axis, panel in zip(axes[0], shown, strict=True):
        for line in panel.lines:
            mean, half = (np.array(values, float) for values in (line.mean, line.ci95))
            axis.plot(line.at, mean, color=line.colour, label=line.label, linewidth=1.6)
            low = np.maximum(mean - half, np.nanmin(mean) / 4) if panel.log else mean - half
            axis.fill_between(line.at, low, mean + half, color=line.colour, alpha=0.2, linewidth=0)
        axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, yscale="log" if panel.log else "linear")
        axis.title.set_fontsize(10)
        axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 5))
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"{name}.png", dpi=100)
    plt.close(figure)


def main() -> None:
    """Draw those that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        if panels(name):
            draw(name)
            pictures.note(f"curves/{name}.png")


if __name__ == "__main__":
    main()
