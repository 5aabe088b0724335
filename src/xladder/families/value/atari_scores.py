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

M = 1_000_000
SAME = 0.01  # relative difference up to which numbers of frames count as equal: a run ends with a whole tick
EDGE = 1e-9  # tolerance for rounding, so that a band contains its ends

Verdict = Literal["inside", "above", "below", "beside", "nothing"]


class Game(NamedTuple):
    """The reference scores of one game."""

    name: str
    random: float
    human49: float | None  # None where the table of 49 games does not have it
    human57: float | None
    nature: float
    dopamine: tuple[float, float, float]  # at 10M, 40M and 200M frames


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


_ROWS = (
    Game("Breakout", 1.7, 31.8, 30.5, 401.2, (51.9, 99.8, 199.4)),
    Game("Pong", -20.7, 9.3, 14.6, 18.9, (1.1, 18.0, 19.5)),
    Game("Space Invaders", 148, 1652, 1668.7, 1976, (690, 1426, 4006)),
    Game("Seaquest", 68.4, 20182, 42054.7, 5286, (951, 3357, 5515)),
    Game("Q*bert", 163.9, 13455, 13455, 10596, (1245, 8629, 11097)),
    Game("Beam Rider", 363.9, 5775, 16926.5, 6846, (5314, 4959, 6038)),
    Game("Enduro", 0, 309.6, 860.5, 301.8, (962, 1481, 1727)),
    Game("Ms. Pacman", 307.3, 15693, 6951.6, 2311, (2051, 2519, 3205)),
    Game("Asterix", 210, 8503, 8503.3, 6012, (2401, 5136, 16655)),
    Game("Boxing", 0.1, 4.3, 12.1, 71.8, (53.8, 87.7, 93.7)),
    Game("Freeway", 0, 29.6, 29.6, 30.3, (18.7, 20.0, 20.2)),
    Game("Assault", 222.4, 1496, 742, 3359, (1061, 1580, 2125)),
    Game("Road Runner", 11.5, 7845, 7845, 18257, (31644, 41195, 48311)),
    Game("Krull", 1598, 2395, 2665.5, 3805, (3061, 7341, 8323)),
)
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
# What a protocol reports. Nature's score is the best evaluation of a run of 200M frames, 50M agent steps.
REPORTED = {"nature": "best evaluation", "dopamine": "training return", "cleanrl": "training return"}


def key_of(game: str) -> str:
    """A game's key in the tables, for any spelling: `atari/ms_pacman`, `MsPacman` and `Ms. Pacman` are the same."""
    return "".join(letter for letter in game.rsplit("/", 1)[-1].lower() if letter.isalnum())


GAMES: Mapping[str, Game] = {key_of(row.name): row for row in _ROWS}


def normalised(game: str, score: float) -> dict[str, float | None]:
    """The score on a scale from random play (0) to a human player (1), by each table of human scores.

    None where the table does not have the game.
    """
    row = GAMES.get(key_of(game))
    humans = {"human49": row and row.human49, "human57": row and row.human57}
    return {
        table: None if row is None or human is None else (score - row.random) / (human - row.random)
        for table, human in humans.items()
    }


def published(game: str) -> tuple[Published, ...]:
    """Every published score of a game, by protocol and number of frames."""
    key = key_of(game)
    if key not in GAMES:
        return ()
    row = GAMES[key]
    found = [Published("nature", 200 * M, row.nature)]
    bands = DOPAMINE_BANDS.get(key, {})
    for frames, score in zip(DOPAMINE_FRAMES, row.dopamine, strict=True):
        if frames not in bands:
            found.append(Published("dopamine", frames, score))
    found += [Published("dopamine", frames, *band, seeds=5) for frames, band in bands.items()]
    found += [Published("cleanrl", frames, *band, seeds=3) for frames, band in CLEANRL_BANDS.get(key, {}).items()]
    return tuple(sorted(found, key=lambda point: (point.protocol, point.frames)))


def place(game: str, protocol: str, frames: int, score: float) -> Placing | None:
    """Compare a score after `frames` frames; None if nothing is published for the game, or the score is not finite.

    `protocol` is nature, dopamine or cleanrl, and the score is what that protocol reports (`REPORTED`); with any other
    protocol nothing is comparable.
    """
    found = published(game)
    if not found or not isfinite(score):
        return None

    def distance(point: Published) -> tuple[bool, float]:
        # By ratio: 20M frames are as far from 10M as from 40M. Another protocol is always further away.
        return point.protocol != protocol, abs(log(point.frames / max(frames, 1)))

    nearest = min(found, key=distance)
    verdict: Verdict = "nothing"
    if nearest.protocol == protocol and abs(frames - nearest.frames) <= SAME * nearest.frames:
        verdict = _judge(score, nearest)
    return Placing(GAMES[key_of(game)].name, protocol, frames, score, verdict, nearest)


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
