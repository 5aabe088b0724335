"""Published Atari scores, and how a result compares with them. Imports nothing heavy.

A score depends on the evaluation protocol more than on the code, so a result is compared only with published scores
of the same protocol at the same number of frames (four per agent step). If there is none, the text says so and gives no
verdict. There is no verdict either if the published score has no spread.

Two tables of human scores are in use: one of 49 games (Mnih et al. 2015) and one of 57. They differ up to threefold for
the same game, so there are two normalised scores, and neither table fills the gaps of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, log
from typing import Literal, NamedTuple

from xladder.families.value.atari_humans import NATURE_DQN, TABLE49, TABLE57

M = 1_000_000
SAME = 0.01  # relative difference up to which numbers of frames count as equal: a run ends with a whole tick
EDGE = 1e-9  # tolerance for rounding, so that a band contains its ends

Verdict = Literal["inside", "above", "below", "beside", "nothing"]


class Published(NamedTuple):
    """A published score."""

    protocol: str
    frames: int
    score: float
    spread: float | None = None  # ±, over the seeds
    seeds: int | None = None


@dataclass(frozen=True)
class Placing:
    """How a score compares with published ones."""

    game: str
    protocol: str
    frames: int
    score: float
    verdict: Verdict
    """inside, above or below the band; beside a score without a band; or nothing comparable is published."""
    published: Published
    """The score it was compared with or, if none is comparable, the nearest one."""


# Dopamine's DQN at 10M, 40M and 200M frames.
DOPAMINE: Mapping[str, tuple[float, float, float]] = {
    "assault": (1061, 1580, 2125),
    "asterix": (2401, 5136, 16655),
    "beamrider": (5314, 4959, 6038),
    "boxing": (53.8, 87.7, 93.7),
    "breakout": (51.9, 99.8, 199.4),
    "enduro": (962, 1481, 1727),
    "freeway": (18.7, 20.0, 20.2),
    "krull": (3061, 7341, 8323),
    "mspacman": (2051, 2519, 3205),
    "pong": (1.1, 18.0, 19.5),
    "qbert": (1245, 8629, 11097),
    "roadrunner": (31644, 41195, 48311),
    "seaquest": (951, 3357, 5515),
    "spaceinvaders": (690, 1426, 4006),
}
DOPAMINE_FRAMES = (10 * M, 40 * M, 200 * M)
# Frames → score and spread.
DOPAMINE_BANDS: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "breakout": {5 * M: (23.4, 1.0), 10 * M: (51.9, 3.4), 20 * M: (93.4, 6.3), 40 * M: (99.8, 16.6)},
    "pong": {5 * M: (-11.2, 2.7), 10 * M: (1.1, 4.9), 20 * M: (14.3, 2.9), 40 * M: (18.0, 0.9)},
}
CLEANRL_BANDS: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "breakout": {40 * M: (377.8, 34.9)},
    "pong": {40 * M: (20.4, 0.3)},
    "beamrider": {40 * M: (5938, 956)},
}
# DER after 100,000 agent steps: van Hasselt et al. 2019, as listed by mila-iqia/spr: src/rlpyt_utils.py.
DER: Mapping[str, float] = {
    "alien": 739.9,
    "amidar": 188.6,
    "assault": 431.2,
    "asterix": 470.8,
    "bankheist": 51.0,
    "battlezone": 10124.6,
    "boxing": 0.2,
    "breakout": 1.9,
    "choppercommand": 861.8,
    "crazyclimber": 16185.3,
    "demonattack": 508.0,
    "freeway": 27.9,
    "frostbite": 866.8,
    "gopher": 349.5,
    "hero": 6857.0,
    "jamesbond": 301.6,
    "kangaroo": 779.3,
    "krull": 2851.5,
    "kungfumaster": 14346.1,
    "mspacman": 1204.1,
    "pong": -19.3,
    "privateeye": 97.8,
    "qbert": 1152.9,
    "roadrunner": 9600.0,
    "seaquest": 354.1,
    "upndown": 2877.4,
}
DER_FRAMES = 400_000
# What a protocol reports. Nature's score is the best evaluation of a run of 200M frames, 50M agent steps.
REPORTED = {
    "nature": "best evaluation",
    "dopamine": "training return",
    "cleanrl": "training return",
    "atari100k": "evaluation of the final agent",
}


def key_of(game: str) -> str:
    """A game's key in the tables, for any spelling: `atari/ms_pacman`, `MsPacman` and `Ms. Pacman` are the same."""
    return "".join(letter for letter in game.rsplit("/", 1)[-1].lower() if letter.isalnum())


GAMES: Mapping[str, str] = {key_of(game): game for game in TABLE57}
"""The games of the tables, as the emulator spells them."""


def normalised(game: str, score: float) -> dict[str, float | None]:
    """The score on a scale from random play (0) to a human player (1), by each table of human scores.

    None where the table does not have the game.
    """
    name = GAMES.get(key_of(game), "")
    anchors = {"human49": TABLE49.get(name), "human57": TABLE57.get(name)}
    return {
        table: None if anchor is None else (score - anchor.random) / (anchor.human - anchor.random)
        for table, anchor in anchors.items()
    }


def published(game: str) -> tuple[Published, ...]:
    """Every published score of a game, by protocol and number of frames."""
    key = key_of(game)
    nature = NATURE_DQN.get(GAMES.get(key, ""))
    found = [] if nature is None else [Published("nature", 200 * M, nature)]
    bands = DOPAMINE_BANDS.get(key, {})
    for frames, score in zip(DOPAMINE_FRAMES, DOPAMINE.get(key, ()), strict=False):
        if frames not in bands:
            found.append(Published("dopamine", frames, score))
    found += [Published("dopamine", frames, *band, seeds=5) for frames, band in bands.items()]
    found += [Published("cleanrl", frames, *band, seeds=3) for frames, band in CLEANRL_BANDS.get(key, {}).items()]
    found += [Published("atari100k", DER_FRAMES, DER[key])] if key in DER else []
    return tuple(sorted(found, key=lambda point: (point.protocol, point.frames)))


def place(game: str, protocol: str, frames: int, score: float) -> Placing | None:
    """Compare a score after `frames` frames; None if nothing is published for the game, or the score is not finite.

    `protocol` is nature, dopamine, cleanrl or atari100k, and the score is what that protocol reports (`REPORTED`);
    with any other protocol nothing is comparable.
    """
    # DER's scores are those of another agent and a much shorter run: they are compared under their own protocol alone.
    found = [point for point in published(game) if point.protocol != "atari100k" or protocol == "atari100k"]
    if not found or not isfinite(score):
        return None

    def distance(point: Published) -> tuple[bool, float]:
        # By ratio: 20M frames are as far from 10M as from 40M. Another protocol is always further away.
        return point.protocol != protocol, abs(log(point.frames / max(frames, 1)))

    nearest = min(found, key=distance)
    verdict: Verdict = "nothing"
    if nearest.protocol == protocol and abs(frames - nearest.frames) <= SAME * nearest.frames:
        verdict = _judge(score, nearest)
    return Placing(_title(game), protocol, frames, score, verdict, nearest)


def format_placing(placing: Placing) -> str:
    """The comparison as a sentence."""
    point = placing.published
    figure = _plain(point.score) + ("" if point.spread is None else f" ± {_plain(point.spread)}")
    source = REPORTED[point.protocol] + (f" of {point.seeds} seeds" if point.seeds else "")
    game, score, frames = f"{placing.game} ({placing.protocol})", _plain(placing.score), _count(placing.frames)
    if placing.verdict == "nothing":
        nearest = f"{figure} after {_count(point.frames)} frames ({point.protocol}, {source})"
        return f"{game}: nothing comparable with {score} after {frames} frames is published; the nearest is {nearest}."
    if placing.verdict == "beside":
        return f"{game}: {score} after {frames} frames; published is {figure} ({source}, no spread, so not judged)."
    band = f"the published band at {_count(point.frames)} frames, {figure} ({source})"
    return f"{game}: {score} is {placing.verdict} {band}."


def _title(game: str) -> str:
    """`Space Invaders` from any spelling."""
    return GAMES[key_of(game)].replace("_", " ").title()


def _judge(score: float, point: Published) -> Verdict:
    if point.spread is None:
        return "beside"
    if abs(score - point.score) <= point.spread + EDGE:
        return "inside"
    return "above" if score > point.score else "below"


def _count(frames: int) -> str:
    return f"{frames:,}" if frames < M else f"{frames / M:,.2f}".rstrip("0").rstrip(".") + "M"


def _plain(value: float) -> str:
    """One decimal, or none for a large whole number."""
    text = f"{value:,.1f}"
    return (text.removesuffix(".0") if abs(value) >= 100 else text).replace("-", "\u2212")
