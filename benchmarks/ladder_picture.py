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


def bars() -> dict[str, float]:
    """Milliseconds per epoch of treasure hunt at batch 256 on the H200; agents observe together, or "in turn"."""
    rows = {(r["name"], r["observe"]): 1000 * r["seconds_per_epoch"] for r in result("treasurehunt-gpu")["rows"]}
    best = {(r["case"], r["rung"]): r["ms"] for r in result("strongest-torch-gpu")["rows"]}
    names = {
        "sorrel, in turn": ("sorrel on cuda", "in_turn"),
        "torch": ("torch on gpu", "together"),
        "sequential": ("sequential on gpu", "together"),
        "parallel": ("parallel on gpu", "together"),
        "fused, in turn": ("fused on gpu", "in_turn"),
        "fused": ("fused on gpu", "together"),
        "fused, 512 seeds,\nper seed": ("fused on gpu, 512 seeds", "together"),
    }
    found = {label: rows[name] for label, name in names.items()}
    found["compiled, PyTorch\nat its best"] = best["treasurehunt-256", "compiled"]
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def curves() -> dict[str, np.ndarray]:
    """Returns of all agents [seed, epoch], with preset `demo`."""
    return {rung: np.array(result(f"learning-demo-{rung}")["curves"]) for rung in ("torch", "fused")}


def in_words() -> str:
    """What the picture shows, for those who do not see it."""
    ms = {name.partition("\n")[0]: short(value) for name, value in bars().items()}
    ends = {rung: found[:, -found.shape[1] // 10 :].mean() for rung, found in curves().items()}
    return (
        f"Bars: with agents that observe in turn, an epoch takes sorrel {ms['sorrel, in turn']} ms and fused "
        f"{ms['fused, in turn']} ms; together, torch {ms['torch']} ms, compiled PyTorch {ms['compiled, PyTorch']} ms "
        f"and fused {ms['fused']} ms. Curves: torch and fused learn alike, to returns of {ends['torch']:.0f} and "
        f"{ends['fused']:.0f}."
    )


def short(ms: float) -> str:
    """Two digits or more."""
    return f"{ms:.1f}" if 1 < ms < 10 else f"{ms:.2f}" if ms < 1 else f"{ms:.0f}"


def main() -> None:
    """Draw both."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    times = bars()
    colours = ["#1b6ca8" if name.startswith(("fused", "parallel", "sequential")) else "#d95f02" for name in times]
    drawn = left.barh(list(times), list(times.values()), color=colours, height=0.7)
    left.bar_label(drawn, [short(ms) for ms in times.values()], padding=3, fontsize=9)
    left.set_xscale("log")
    left.set_xlim(0.1, 400)
    left.invert_yaxis()
    left.set_xlabel(
        "ms per epoch on one H200, five agents that observe\ntogether, or in turn where it says so (log scale)"
    )
    for (name, found), colour in zip(curves().items(), ("#d95f02", "#1b6ca8"), strict=True):
        blocks = found[:, : found.shape[1] // BLOCK * BLOCK].reshape(len(found), -1, BLOCK).mean(-1)
        mean, interval = mean_and_interval(blocks)
        at = BLOCK * (0.5 + np.arange(blocks.shape[1]))
        right.plot(at, mean, color=colour, label=f"{name}, {len(found)} seeds")
        right.fill_between(at, mean - interval, mean + interval, color=colour, alpha=0.2, linewidth=0)
    right.set_xlabel("epoch (preset demo)")
    right.set_ylabel("return of all agents")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=130)
    pictures.note(PICTURE.name)


if __name__ == "__main__":
    main()
