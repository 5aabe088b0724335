"""Published Atari scores: the tables agree with each other, and a result is judged only where it can be."""

import subprocess
import sys

import pytest

from xladder.families.value import atari_scores
from xladder.families.value.atari_humans import NATURE_DQN, TABLE49, TABLE57
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


def test_tables_are_not_mixed():
    assert normalised("chess", 3.0) == {"human49": None, "human57": None}
    # Only the larger table has Berzerk: random 123.7, human 2630.4.
    assert normalised("berzerk", 2630.4) == {"human49": None, "human57": pytest.approx(1.0)}
    # Each has its own random play, too: 2,090.9, rounded to 2,091 in the other.
    assert normalised("centipede", 2091.0)["human49"] == 0.0 < normalised("centipede", 2091.0)["human57"]


@pytest.mark.parametrize("spelling", ["Ms. Pacman", "ms_pacman", "MsPacman", "atari/ms_pacman", "atari/MsPacman"])
def test_a_game_has_many_spellings(spelling):
    assert GAMES[key_of(spelling)] == "ms_pacman"


def test_every_game_is_one_that_the_emulator_has():
    assert len(GAMES) == 57
    assert set(GAMES.values()) <= set(ATARI_GAMES)


# Normalised DQN in per cent, the last column of extended data table 2 in Mnih et al. 2015: it checks the other three.
PERCENT = """
alien 42.7 amidar 43.9 assault 246.2 asterix 70.0 asteroids 7.3 atlantis 449.9 bank_heist 57.7 battle_zone 67.6
beam_rider 119.8 bowling 14.7 boxing 1707.9 breakout 1327.2 centipede 63.0 chopper_command 64.8 crazy_climber 419.5
demon_attack 294.2 double_dunk 17.1 enduro 97.5 fishing_derby 93.5 freeway 102.4 frostbite 6.2 gopher 400.4 gravitar 5.3
hero 76.5 ice_hockey 79.3 jamesbond 145.0 kangaroo 224.2 krull 277.0 kung_fu_master 102.4 montezuma_revenge 0.0
ms_pacman 13.0 name_this_game 278.3 pong 132.0 private_eye 2.5 qbert 78.5 riverraid 57.3 road_runner 232.9
robotank 509.0 seaquest 25.9 space_invaders 121.5 star_gunner 598.1 tennis 143.2 time_pilot 100.9 tutankham 112.2
up_n_down 92.7 venture 32.0 video_pinball 2539.4 wizard_of_wor 67.5 zaxxon 54.1
"""


def test_the_table_of_49_games_gives_the_percentages_that_are_printed_beside_it():
    words = PERCENT.split()
    printed = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    assert printed.keys() == TABLE49.keys() == NATURE_DQN.keys()
    for game, percent in printed.items():
        # Scores are rounded to a tenth, and large ones to 1, which counts where a scale is short.
        scale, unit = TABLE49[game].human - TABLE49[game].random, 0.5 if TABLE49[game].human > 1000 else 0.05
        slack = 0.06 + 200 * unit / scale * max(1.0, percent / 100)
        assert 100 * normalised(game, NATURE_DQN[game])["human49"] == pytest.approx(percent, abs=slack), game


def test_checksums_of_both_tables():
    """Sums, counted when the numbers were typed in, of columns that were compared with two other copies each."""
    assert len(TABLE57) == 57 and len(TABLE49) == 49 and TABLE49.keys() < TABLE57.keys()
    assert sum(a.random + a.human for a in TABLE57.values()) == pytest.approx(657_359.1)
    total = sum(a.random + a.human + NATURE_DQN[game] for game, a in TABLE49.items())
    assert total == pytest.approx(1_015_242.1)
    # The random scores are the same ones, rounded; so a row that slipped would show.
    assert all(abs(TABLE49[game].random - TABLE57[game].random) <= 0.5 for game in TABLE49)
    assert all(anchor.human > anchor.random for table in (TABLE49, TABLE57) for anchor in table.values())


@pytest.mark.parametrize("game", sorted(atari_scores.DOPAMINE))
def test_tables_are_consistent(game):
    row, name = atari_scores.DOPAMINE[game], GAMES[game]
    assert TABLE57[name].random < min(NATURE_DQN[name], *row)
    points = published(game)
    assert len({(point.protocol, point.frames) for point in points}) == len(points)  # one figure for each
    assert {point.protocol for point in points} <= atari_scores.REPORTED.keys()
    at = {(point.protocol, point.frames): point for point in points}
    # Figures with a spread are the same ones as in the table of all games.
    assert [at["dopamine", frames].score for frames in (10 * M, 40 * M, 200 * M)] == list(row)
    assert at["nature", 200 * M] == Published("nature", 200 * M, NATURE_DQN[name])
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
    assert published("breakout")[0] == Published("atari100k", 400_000, 1.9)
    assert published("breakout")[1] == Published("cleanrl", 40 * M, 377.8, 34.9, 3)
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
