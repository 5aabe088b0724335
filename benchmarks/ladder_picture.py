"""The README's picture, from committed results: how long an epoch takes on the rungs, and sorrel's curve beside ours.

    python benchmarks/ladder_picture.py          writes docs/images/ladder.png

The picture carries a digest of the files it shows, and a test compares it with the files as they are.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "ladder.png"
FILES = ("treasurehunt-gpu.json", "strongest-torch-gpu.json", "sorrel-learning.json")
BLOCK = 25  # epochs of a point


def digest() -> str:
    """Of the results that the picture shows."""
    return hashlib.sha256(b"".join((HERE / "results" / name).read_bytes() for name in FILES)).hexdigest()


def bars() -> dict[str, float]:
    """Milliseconds per epoch of treasure hunt at batch 256 on the H200; agents observe together, or "in turn"."""
    speed, best, _ = (json.loads((HERE / "results" / name).read_text()) for name in FILES)
    rows = {(row["name"], row["observe"]): 1000 * row["seconds_per_epoch"] for row in speed["rows"]}
    [compiled] = [r["ms"] for r in best["rows"] if (r["case"], r["rung"]) == ("treasurehunt-256", "compiled")]
    names = {
        "sorrel, in turn": ("sorrel on cuda", "in_turn"),
        "torch": ("torch on gpu", "together"),
        "parallel": ("parallel on gpu", "together"),
        "fused, in turn": ("fused on gpu", "in_turn"),
        "fused": ("fused on gpu", "together"),
        "fused, 512 seeds,\nper seed": ("fused on gpu, 512 seeds", "together"),
    }
    found = {label: rows[name] for label, name in names.items()}
    return dict(sorted({**found, "compiled, PyTorch\nat its best": compiled}.items(), key=lambda item: -item[1]))


def curves() -> dict[str, np.ndarray]:
    """Returns of all agents [seed, epoch], of sorrel and of `fused`."""
    entries = json.loads((HERE / "results" / FILES[2]).read_text())["entries"]
    [entry] = [entry for entry in entries if entry["world"] == "treasurehunt"]
    return {name: np.array(entry[name]["curves"]) for name in ("sorrel", "fused")}


def main() -> None:
    """Draw both."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from xladder.core.statistics import mean_and_interval

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    times = bars()
    colours = ["#1b6ca8" if name.startswith(("fused", "parallel")) else "#d95f02" for name in times]
    drawn = left.barh(list(times), list(times.values()), color=colours, height=0.7)
    left.bar_label(
        drawn,
        [f"{ms:.1f}" if 1 < ms < 10 else f"{ms:.2f}" if ms < 1 else f"{ms:.0f}" for ms in times.values()],
        padding=3,
        fontsize=9,
    )
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
    right.set_xlabel("epoch")
    right.set_ylabel("return of all agents")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=130, metadata={"Shows": digest()})


if __name__ == "__main__":
    main()
