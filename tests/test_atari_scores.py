"""Published Atari scores: the tables agree with each other, and a result is judged only where it can be."""

import subprocess
import sys

import pytest

from xladder.families.value import atari_scores
from xladder.families.value.atari_scores import GAMES, Published, format_placing, key_of, normalised, place, published
from xladder.worlds.names import ATARI_GAMES

M = 1_000_000


def test_normalised_by_hand():
    # Breakout: random 1.7; human 31.8 or 30.5. (16.75 − 1.7) / 30.1 = 0.5, and 15.05 / 28.8.
    scores = normalised("breakout", 16.75)
    assert scores == {"human49": pytest.approx(0.5), "human57": pytest.approx(15.05 / 28.8)}
    # Pong: random −20.7; human 9.3 or 14.6. At the level of the first, 30 points of 35.3.
    assert normalised("Pong", 9.3) == {"human49": pytest.approx(1.0), "human57": pytest.approx(30 / 35.3)}
    assert normalised("pong", -20.7) == {"human49": 0.0, "human57": 0.0}
    assert normalised("beam_rider", 0.0)["human49"] == pytest.approx(-363.9 / (5775 - 363.9))


def test_tables_are_not_mixed(monkeypatch):
    assert normalised("chess", 3.0) == {"human49": None, "human57": None}
    only_in_57 = GAMES["pong"]._replace(human49=None)
    monkeypatch.setattr(atari_scores, "GAMES", {"pong": only_in_57})
    assert normalised("pong", 14.6) == {"human49": None, "human57": pytest.approx(1.0)}


@pytest.mark.parametrize("spelling", ["Ms. Pacman", "ms_pacman", "MsPacman", "atari/ms_pacman", "atari/MsPacman"])
def test_a_game_has_many_spellings(spelling):
    assert GAMES[key_of(spelling)].name == "Ms. Pacman"


def test_every_game_is_one_that_the_emulator_has():
    assert len(GAMES) == 14
    assert GAMES.keys() <= {key_of(game) for game in ATARI_GAMES}


@pytest.mark.parametrize("game", GAMES)
def test_tables_are_consistent(game):
    row = GAMES[game]
    assert row.random < min(row.human49, row.human57, row.nature, *row.dopamine)
    points = published(game)
    assert len({(point.protocol, point.frames) for point in points}) == len(points)  # one figure for each
    assert {point.protocol for point in points} <= atari_scores.REPORTED.keys()
    at = {(point.protocol, point.frames): point for point in points}
    # Figures with a spread are the same ones as in the table of all games.
    assert [at["dopamine", frames].score for frames in (10 * M, 40 * M, 200 * M)] == list(row.dopamine)
    assert at["nature", 200 * M] == Published("nature", 200 * M, row.nature)
    assert all((point.spread is None) == (point.seeds is None) for point in points)


def test_bands_belong_to_games_and_frames_that_were_published():
    assert atari_scores.DOPAMINE_BANDS.keys() | atari_scores.CLEANRL_BANDS.keys() <= GAMES.keys()
    assert [(point.frames // M, point.spread) for point in published("pong") if point.protocol == "dopamine"] == [
        (5, 2.7),
        (10, 4.9),
        (20, 2.9),
        (40, 0.9),
        (200, None),
    ]
    assert published("breakout")[0] == Published("cleanrl", 40 * M, 377.8, 34.9, 3)
    assert published("chess") == ()


@pytest.mark.parametrize(
    ("game", "protocol", "frames", "score", "verdict"),
    [
        ("breakout", "dopamine", 10 * M, 51.9, "inside"),
        ("breakout", "dopamine", 10 * M, 55.3, "inside"),  # the ends belong to the band: 51.9 + 3.4 and 51.9 − 3.4
        ("breakout", "dopamine", 10 * M, 48.5, "inside"),
        ("pong", "cleanrl", 40 * M, 20.7, "inside"),  # 20.7 − 20.4 is a little more than 0.3, by rounding
        ("breakout", "dopamine", 10 * M, 55.31, "above"),
        ("breakout", "dopamine", 10 * M, 48.49, "below"),
        ("breakout", "dopamine", 10 * M + 128, 52.0, "inside"),  # a run ends with a whole tick
        ("pong", "dopamine", 5 * M, -11.2, "inside"),
        ("pong", "cleanrl", 40 * M, 18.0, "below"),  # inside dopamine's band, which is another protocol
        ("pong", "dopamine", 40 * M, 18.0, "inside"),
        ("beam_rider", "cleanrl", 40 * M, 9000.0, "above"),
        ("seaquest", "dopamine", 40 * M, 1e6, "beside"),  # no spread: not judged, however far
        ("seaquest", "nature", 200 * M, 0.0, "beside"),
    ],
)
def test_a_score_is_judged_at_the_same_frames_and_protocol(game, protocol, frames, score, verdict):
    placing = place(game, protocol, frames, score)
    assert placing.verdict == verdict
    assert placing.published.protocol == protocol
    assert abs(placing.published.frames - frames) < 1000


@pytest.mark.parametrize(
    ("game", "protocol", "frames", "nearest"),
    [
        ("breakout", "dopamine", 7 * M, ("dopamine", 5 * M)),  # 7 / 5 is less than 10 / 7
        ("breakout", "dopamine", 7.2 * M, ("dopamine", 10 * M)),
        ("breakout", "dopamine", 10.2 * M, ("dopamine", 10 * M)),  # two hundredths off are not the same
        ("breakout", "dopamine", 0, ("dopamine", 5 * M)),
        ("breakout", "cleanrl", 10 * M, ("cleanrl", 40 * M)),  # not dopamine's at 10M
        ("breakout", "nature", 40 * M, ("nature", 200 * M)),
        ("seaquest", "cleanrl", 40 * M, ("dopamine", 40 * M)),  # cleanrl has none of this game
        ("breakout", "my own", 5 * M, ("dopamine", 5 * M)),
    ],
)
def test_elsewhere_nothing_is_judged_and_the_nearest_is_named(game, protocol, frames, nearest):
    placing = place(game, protocol, int(frames), 50.0)
    assert placing.verdict == "nothing"
    assert (placing.published.protocol, placing.published.frames) == nearest


def test_without_figures_or_score_there_is_no_placing():
    assert place("chess", "nature", 200 * M, 1.0) is None
    assert place("pong", "dopamine", 10 * M, float("nan")) is None


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            ("breakout", "dopamine", 10 * M, 53.0),
            "Breakout (dopamine): 53.0 is inside the published band at 10M frames, 51.9 ± 3.4 "
            "(training return of 5 seeds).",
        ),
        (
            ("atari/pong", "dopamine", 40 * M, -20.9),
            "Pong (dopamine): −20.9 is below the published band at 40M frames, 18.0 ± 0.9 "
            "(training return of 5 seeds).",
        ),
        (
            ("road_runner", "nature", 200 * M, 20000.0),
            "Road Runner (nature): 20,000 after 200M frames; published is 18,257 "
            "(best evaluation, no spread, so not judged).",
        ),
        (
            ("beam_rider", "cleanrl", 2_500_000, 700.0),
            "Beam Rider (cleanrl): nothing comparable with 700 after 2.5M frames is published; "
            "the nearest is 5,938 ± 956 after 40M frames (cleanrl, training return of 3 seeds).",
        ),
        (
            ("krull", "cleanrl", 4_000, 1600.5),
            "Krull (cleanrl): nothing comparable with 1,600.5 after 4,000 frames is published; "
            "the nearest is 3,061 after 10M frames (dopamine, training return).",
        ),
    ],
)
def test_sentences(asked, sentence):
    assert format_placing(place(*asked)) == sentence


def test_importing_brings_nothing_heavy():
    code = "import sys, xladder.families.value.atari_scores; print({'jax', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
