"""The README's picture, from committed results: how long an epoch takes on the rungs, and what two of them learn.

    python benchmarks/ladder_picture.py          writes docs/images/ladder.png

`pictures.py` keeps a digest of these results, and a test compares it with the results as they are.
"""

import json
from pathlib import Path

import numpy as np
import pictures

from xladder.core.statistics import mean_and_interval

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "ladder.png"
BLOCK = 20  # epochs of a point


def result(name: str) -> dict:
    """A committed result."""
    return json.loads((HERE / "results" / f"{name}.json").read_text())


def bars() -> dict[str, dict[str, float]]:
    """Milliseconds per epoch of treasure hunt at batch 256 on the H200, by the run that measured them.

    Only bars of one run are to be divided by each other: eager `torch` took 55 ms in one and 87 ms in the other.
    """
    rows = {(r["name"], r["observe"]): 1000 * r["seconds_per_epoch"] for r in result("treasurehunt-gpu")["rows"]}
    best = {r["rung"]: r["ms"] for r in result("strongest-torch-gpu")["rows"] if r["case"] == "treasurehunt-256"}
    return {
        "agents observe together, one run": {
            "torch": best["torch"],
            "compiled, PyTorch\nat its best": best["compiled"],
            "fused": best["fused"],
        },
        "another run": {
            "sorrel, in turn": rows["sorrel on cuda", "in_turn"],
            "fused, in turn": rows["fused on gpu", "in_turn"],
            "fused, 512 seeds,\nper seed": rows["fused on gpu, 512 seeds", "together"],
        },
    }


def curves() -> dict[str, np.ndarray]:
    """Returns of all agents [seed, epoch], with preset `demo`."""
    return {rung: np.array(result(f"learning-demo-{rung}")["curves"]) for rung in ("torch", "fused")}


def epochs() -> int:
    """How long the runs of the curves were; the preset itself is longer."""
    [length] = {result(f"learning-demo-{rung}")["epochs"] for rung in curves()}
    return length


def in_words() -> str:
    """What the picture shows, for those who do not see it."""
    ms = {name.partition("\n")[0]: short(value) for run in bars().values() for name, value in run.items()}
    ends = {rung: found[:, -found.shape[1] // 10 :].mean() for rung, found in curves().items()}
    return (
        f"Bars: with agents that observe together, an epoch takes torch {ms['torch']} ms, compiled PyTorch "
        f"{ms['compiled, PyTorch']} ms and fused {ms['fused']} ms, all in one run; in another run, with agents that "
        f"observe in turn, sorrel {ms['sorrel, in turn']} ms and fused {ms['fused, in turn']} ms. Curves: torch and "
        f"fused learn alike in {epochs()} epochs, to returns of {ends['torch']:.0f} and {ends['fused']:.0f}; bands are "
        "95 % intervals over four seeds."
    )


def short(ms: float) -> str:
    """As in the README's tables."""
    return f"{ms:.2f}" if ms < 1 else f"{ms:.1f}" if ms < 20 else f"{ms:.0f}"


def main() -> None:
    """Draw both."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    top, ticks = 0.0, {}
    for title, times in bars().items():
        left.text(0.11, top, title, fontsize=9, style="italic", va="center")
        places = [top + 0.9 + number for number in range(len(times))]
        colours = ["#1b6ca8" if name.startswith("fused") else "#d95f02" for name in times]
        drawn = left.barh(places, list(times.values()), color=colours, height=0.7)
        left.bar_label(drawn, [short(ms) for ms in times.values()], padding=3, fontsize=9)
        ticks |= dict(zip(places, times, strict=True))
        top = places[-1] + 1.0
    left.set_yticks(list(ticks), list(ticks.values()))
    left.set_xscale("log")
    left.set_xlim(0.1, 400)
    left.invert_yaxis()
    left.set_xlabel("ms per epoch of treasure hunt with five agents\non one H200, batch 256 (log scale)")
    for (name, found), colour in zip(curves().items(), ("#d95f02", "#1b6ca8"), strict=True):
        blocks = found[:, : found.shape[1] // BLOCK * BLOCK].reshape(len(found), -1, BLOCK).mean(-1)
        mean, interval = mean_and_interval(blocks)
        at = BLOCK * (0.5 + np.arange(blocks.shape[1]))
        right.plot(at, mean, color=colour, label=f"{name}, {len(found)} seeds")
        right.fill_between(at, mean - interval, mean + interval, color=colour, alpha=0.2, linewidth=0)
    right.set_xlabel(f"epoch (preset demo, shortened by --epochs {epochs()})\nmeans and 95 % intervals over seeds")
    right.set_ylabel("return of all agents")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=130)
    pictures.note(PICTURE.name)


if __name__ == "__main__":
    main()
