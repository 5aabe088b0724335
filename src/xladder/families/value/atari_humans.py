"""Human and random scores of Atari games, from the two published tables. Imports nothing heavy.

`TABLE57`: 57 games, as in Wang et al. 2016 (table 2, scores from no-op starts), van Hasselt et al. 2016 (Pop-Art,
table 1) and DQN Zoo (`atari_data.py`), which agree. `TABLE49`: 49 games, Mnih et al. 2015, extended data table 2, with
the score of its DQN. The human testers were different ones, so the tables must not be mixed.
"""

from __future__ import annotations

from typing import NamedTuple


class Anchor(NamedTuple):
    """What is 0 and 1 on a normalised scale."""

    random: float
    human: float


# Game; random and human of 57 games; random and human of 49 games; DQN of Mnih et al. 2015.
_TABLE = """
alien                 227.8   7127.7    227.8     6875     3069
amidar                  5.8   1719.5      5.8     1676    739.5
assault               222.4      742    222.4     1496     3359
asterix                 210   8503.3      210     8503     6012
asteroids             719.1  47388.7    719.1    13157     1629
atlantis              12850  29028.1    12850    29028    85641
bank_heist             14.2    753.1     14.2    734.4    429.7
battle_zone            2360  37187.5     2360    37800    26300
beam_rider            363.9  16926.5    363.9     5775     6846
berzerk               123.7   2630.4
bowling                23.1    160.7     23.1    154.8     42.4
boxing                  0.1     12.1      0.1      4.3     71.8
breakout                1.7     30.5      1.7     31.8    401.2
centipede            2090.9    12017     2091    11963     8309
chopper_command         811   7387.8      811     9882     6687
crazy_climber       10780.5  35829.4    10781    35411   114103
defender             2874.5  18688.9
demon_attack          152.1     1971    152.1     3401     9711
double_dunk           -18.6    -16.4    -18.6    -15.5    -18.1
enduro                    0    860.5        0    309.6    301.8
fishing_derby         -91.7    -38.7    -91.7      5.5     -0.8
freeway                   0     29.6        0     29.6     30.3
frostbite              65.2   4334.7     65.2     4335    328.3
gopher                257.6   2412.5    257.6     2321     8520
gravitar                173   3351.4      173     2672    306.7
hero                   1027  30826.4     1027    25763    19950
ice_hockey            -11.2      0.9    -11.2      0.9     -1.6
jamesbond                29    302.8       29    406.7    576.7
kangaroo                 52     3035       52     3035     6740
krull                  1598   2665.5     1598     2395     3805
kung_fu_master        258.5  22736.3    258.5    22736    23270
montezuma_revenge         0   4753.3        0     4367        0
ms_pacman             307.3   6951.6    307.3    15693     2311
name_this_game       2292.3     8049     2292     4076     7257
phoenix               761.4   7242.6
pitfall              -229.4   6463.7
pong                  -20.7     14.6    -20.7      9.3     18.9
private_eye            24.9  69571.3     24.9    69571     1788
qbert                 163.9    13455    163.9    13455    10596
riverraid            1338.5    17118     1339    13513     8316
road_runner            11.5     7845     11.5     7845    18257
robotank                2.2     11.9      2.2     11.9     51.6
seaquest               68.4  42054.7     68.4    20182     5286
skiing             -17098.1  -4336.9
solaris              1236.3  12326.7
space_invaders          148   1668.7      148     1652     1976
star_gunner             664    10250      664    10250    57997
surround                -10      6.5
tennis                -23.8     -8.3    -23.8     -8.9     -2.5
time_pilot             3568   5229.2     3568     5925     5947
tutankham              11.4    167.6     11.4    167.6    186.7
up_n_down             533.4  11693.2    533.4     9082     8456
venture                   0   1187.5        0     1188      380
video_pinball       16256.9  17667.9    16257    17298    42684
wizard_of_wor         563.5   4756.5    563.5     4757     3393
yars_revenge         3092.9  54576.9
zaxxon                 32.5   9173.3     32.5     9173     4977
"""
_ROWS = [line.split() for line in _TABLE.strip().splitlines()]
TABLE57 = {game: Anchor(float(numbers[0]), float(numbers[1])) for game, *numbers in _ROWS}
TABLE49 = {game: Anchor(float(numbers[2]), float(numbers[3])) for game, *numbers in _ROWS if len(numbers) > 2}
NATURE_DQN = {game: float(numbers[4]) for game, *numbers in _ROWS if len(numbers) > 2}
