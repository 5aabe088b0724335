"""Numbers beyond sense: refused with a sentence before anything is compiled, and nothing is left behind."""

import os

import pytest

from xladder.cli.main import main
from xladder.plans import plan
from xladder.rungs.running import Compiler

HUGE = "1e30"
BEYOND = [
    ("train cartpole --learner.memory {}", "--learner.memory"),
    ("train cartpole --learner.width {}", "--learner.width"),
    ("train cartpole --learner.hidden 16 {}", "--learner.hidden"),
    ("train cartpole --eval-episodes {}", "--eval-episodes"),
    ("train treasurehunt --world.height {}", "--world.height"),
    ("train treasurehunt --learner.quantiles {}", "--learner.quantiles"),
    ("train treasurehunt --epochs {}", "--epochs"),
    ("train hypergrid --world.side {}", "--world.side"),
    ("train hypergrid --iterations {}", "--iterations"),
    ("train cartpole --world.num-envs 2147483648", "--world.num-envs"),
    ("train cartpole --world.num-envs 2147483647 --learner.strata 2147483648", "--learner.strata"),
    ("parity cartpole --updates {}", "--updates"),
    ("parity cartpole --seed {}", "--seed"),
    ("parity cartpole --seed -1", "--seed"),
    ("eval run --episodes {}", "--episodes"),
    ("sample run -n {}", "-n"),
]
TOO_LARGE = [
    ("train treasurehunt --world.radius 1000", "weights", "--world.radius"),
    ("train treasurehunt --rung torch --world.radius 1000", "weights", "--world.radius"),
    ("parity treasurehunt --world.radius 1000", "weights", "--world.radius"),
    ("inspect treasurehunt --world.radius 1000", "weights", "--world.radius"),
    ("train treasurehunt --world.height 100000 --world.width 100000", "draws for a board", "--world.height"),
    ("train treasurehunt --learner.quantiles 2000000", "activations", "--learner.quantiles"),
    ("train cartpole --learner.width 100000000", "weights", "--learner.width"),
    ("train cartpole --learner.head implicit --learner.quantiles 1000000", "activations", "--learner.quantiles"),
    ("train hypergrid --learner.layers 10000000", "weights", "--learner.layers"),
]


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Compiler, "program", lambda *given: pytest.fail("this compiles"))
    yield
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(("words", "flag"), BEYOND)
def test_a_number_that_nothing_could_count_is_refused(words, flag, capsys):
    assert main(words.format(HUGE).split()) == 2
    said = capsys.readouterr().err
    assert f"`{flag}` is " in said and ("or less" in said or " to " in said or "2³¹" in said), said


@pytest.mark.parametrize(("words", "what", "flag"), TOO_LARGE)
def test_what_does_not_fit_is_refused_with_the_setting_to_change(words, what, flag, capsys):
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert what in said and f"`{flag}" in said and "GiB" in said, said


@pytest.mark.parametrize("flag", ["--rung", "--preset", "--config", "--debug"])
@pytest.mark.parametrize("form", ["{} ", "{}="])
def test_an_empty_value_does_not_count_as_none_given(flag, form, capsys):
    assert main(["train", "treasurehunt", *form.format(flag).split(" ")]) == 2
    assert "is empty" in capsys.readouterr().err


def test_settings_that_fit_are_not_refused():
    for name in ("treasurehunt", "cleanup", "cartpole", "minatar/breakout", "hypergrid", "bits"):
        found = plan(name).config.family.large_arrays(plan(name).config)
        assert found and 0 < max(array.bytes for array in found) < 2**31, found
