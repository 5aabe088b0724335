"""A run that ends no better than random play says so, and what to try."""

import math

import pytest

from xladder.core.statistics import signed
from xladder.families.value import presets as named
from xladder.families.value import summaries
from xladder.families.value.advice import advise

MOUNTAIN = named.presets("mountaincar")["default"]


def test_a_return_at_the_level_of_random_play_is_named_with_what_to_try():
    said = advise(MOUNTAIN, -200.0, 0.0, -200.0, 0.0)
    assert said == (
        "The return is not above that of random play (−200.0). To try: exploration that keeps to its actions "
        "(`--learner.explore-repeat 16`); more exploration (`--learner.epsilon-steps 0 --learner.epsilon-share 0.8`); "
        "noise that depends on the state (`--learner.noisy`); memory, if what matters was seen earlier "
        "(`--learner.recurrent 64`); rewards that reach further back "
        "(`--learner.n-step 10`); a longer run (`--steps 400000`)."
    )
    score = {"mean_return": -200.0, "ci95": 0.0, "median_return": -200.0, "episodes": 8, "seeds": 1, "epsilon": 0.0}
    score |= {"random_return": -200.0, "random_ci95": 0.0, "advice": said}
    lines = summaries.describe_score(score)[1:]
    assert lines[:2] == [
        "random play −200.0 ± 0.0",
        "The return is not above that of random play (−200.0). To try:",
    ]
    assert lines[2] == "  exploration that keeps to its actions (`--learner.explore-repeat 16`)"
    assert lines[-1] == "  a longer run (`--steps 400000`)" and max(map(len, lines)) < 100

    # With one agent there are no others to act at random; its return is the total.
    score |= {"per_agent": [-200.0], "against_random": [-200.0], "random_per_agent": [-200.0], "agents": ["walker"]}
    assert not any("others act at random" in line for line in summaries.describe_score(score))
    both = {name: [1.0, 2.0] for name in ("per_agent", "against_random", "random_per_agent")} | {"agents": ["a", "b"]}
    assert "while the others act at random: a 1.0, b 2.0" in summaries.describe_score(score | both)


@pytest.mark.parametrize(
    ("score", "interval", "random", "random_interval", "says"),
    [
        (-150.0, 5.0, -200.0, 0.0, False),
        (21.0, 3.0, 20.0, 4.0, True),  # by less than √(3² + 4²) = 5
        (26.0, 3.0, 20.0, 4.0, False),
        (10.0, math.nan, 20.0, 1.0, True),  # one episode has no interval
        (math.nan, 1.0, 20.0, 1.0, False),
    ],
)
def test_only_a_return_that_is_not_above_by_the_intervals_is_named(score, interval, random, random_interval, says):
    assert bool(advise(MOUNTAIN, score, interval, random, random_interval)) == says


def test_totals_of_agents_that_may_compete_are_told_apart():
    config = named.presets("jaxmarl/MPE_simple_spread_v3")["default"]
    assert "Of agents that compete that says little" in advise(config, 0.0, 0.0, 0.0, 0.0)
    assert "compete" not in advise(MOUNTAIN, -200.0, 0.0, -200.0, 0.0)


def test_large_numbers_have_a_power_of_ten_and_nothing_has_no_sign():
    assert signed(-375e27) == "−3.750e+29" and signed(-1e6) == "−1000000.0" and signed(-math.inf) == "−inf"
    assert signed(-0.0) == signed(-0.04) == "0.0" and signed(-0.06) == "−0.1" and signed(-0.004, 2) == "0.00"


def test_a_return_that_is_only_a_little_higher_asks_for_more_episodes():
    said = advise(MOUNTAIN, 21.0, 3.0, 20.0, 4.0)
    assert said.startswith(
        "The return is above that of random play (20.0), but by less than their intervals. To try: more episodes "
        "(`xladder eval --episodes`); exploration"
    )


def test_what_is_done_already_is_not_proposed():
    rainbow = named.presets("mountaincar")["rainbow"]
    said = advise(rainbow, -200.0, 0.0, -200.0, 0.0)
    assert "noisy" not in said and "epsilon" not in said and "repeat" not in said and "--learner.n-step 10" in said
    said = advise(named.presets("cartpole")["pqn"], 9.0, 1.0, 20.0, 1.0)
    assert "--learner.noisy" not in said and "--learner.n-step" not in said and "--steps 1638400" in said
    assert "explore-repeat" not in advise(named.presets("mountaincar")["explore"], -200.0, 0.0, -200.0, 0.0)
