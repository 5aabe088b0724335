"""From an empty folder to trained agents in a gridworld of one's own: `python -m tests.walks.own_gridworld`."""

import sys
from pathlib import Path

from tests.walks import score_of, walk

PAGE = "docs/tutorials/own-world.md"
EXTRAS = "torch"


def check(folder: Path) -> None:
    """The agents win, with our network and with the reader's, and there is something to look at."""
    for name in ("plates", "flat"):
        score = score_of(folder / "runs" / name)
        assert score["random_return"] < -0.5, score
        assert score["mean_return"] > score["random_return"] + 1.5, score
        assert (folder / "runs" / name / "media/replay.gif").stat().st_size > 1000
    assert score_of(folder / "runs/line")["mean_return"] > 0.9
    assert "my_worlds:Plates" in (folder / "report.html").read_text()


if __name__ == "__main__":
    walk(sys.modules[__name__])
    print(f"{PAGE}: the walk ends where it should.")
