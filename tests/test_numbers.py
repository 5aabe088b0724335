"""Numbers beyond sense: refused with a sentence before anything is compiled, and nothing is left behind."""

import os
import time

import pytest

from xladder.cli.main import main
from xladder.core import array_sizes
from xladder.errors import UsageError
from xladder.plans import check_fits, plan
from xladder.rungs.running import Compiler
from xladder.sweeps.space import field_names, field_type

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
    ("parity cartpole --updates 2e9", "--updates"),
    ("train hypergrid --iterations 20 --eval-episodes 20000000", "--eval-episodes"),
    ("train hypergrid --eval-samples 20000000", "--eval-samples"),
    ("train cartpole --evaluate-episodes 20000000", "--evaluate-episodes"),
    ("train hypergrid --learner.layers 10000 --learner.width 8", "--learner.layers"),
    (f"train cartpole --learner.hidden {' '.join(['8'] * 200)}", "--learner.hidden"),
    ("train cartpole --learner.n-step 5000", "--learner.n-step"),
    ("train treasurehunt --learner.n-step 500", "--learner.n-step"),
    ("train bits --learner.batch-size 1e6", "--learner.batch-size"),
    ("train treasurehunt --world.height 99 --world.width 99 --world.num-agents 9000", "--world.num-agents"),
    ("train dags --world.samples 400000000", "--world.samples"),
    ("train cleanup --world.embedding 1e9", "--world.embedding"),
    ("train cleanup --world.beam-radius 1e9", "--world.beam-radius"),
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
    ("train treasurehunt --learner.act-quantiles 1000000000", "embedded fractions", "--learner.act-quantiles"),
    ("parity cartpole --preset r2d2 --learner.recurrent 1000000", "weights", "--learner.recurrent"),
    ("train cartpole --preset pqn --pqn.rollout 50000000", "rollout", "--pqn.rollout"),
    ("train cartpole --preset pqn --pqn.passes 1e8", "orders", "--pqn.passes"),
    ("train cartpole --preset c51 --learner.atoms 5000000 --learner.batch-size 1", "activations", "--learner.atoms"),
    ("train cartpole --preset iqn --learner.act-quantiles 1e8", "activations", "--learner.act-quantiles"),
    ("train cartpole --world.stack 1e7 --learner.memory 1e9", "weights", "--world.stack"),
    ("train hypergrid --learner.local-search 1e9", "local search", "--learner.local-search"),
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


@pytest.mark.parametrize("flags", ["bits --world.bits 4096 --world.word 1", "sets --world.items 2000 --world.most 999"])
def test_states_beyond_any_float_are_counted_in_words(flags):
    name, *flags = flags.split()
    world = {flag.removeprefix("--world."): int(value) for flag, value in zip(flags[::2], flags[1::2], strict=True)}
    assert "e+" in (words := plan(name, world=world).config.world.size_in_words()) and "states" in words


def test_settings_that_fit_are_not_refused():
    for name in ("treasurehunt", "cleanup", "cartpole", "minatar/breakout", "hypergrid", "bits"):
        found = plan(name).config.family.large_arrays(plan(name).config)
        assert found and 0 < max(array.bytes for array in found) < 2**31, found


WORKLOADS = {
    **dict.fromkeys(
        ["treasurehunt", "cleanup", "tag", "iowa", "hypergrid", "bits", "sequences", "ising"], ("default",)
    ),
    **dict.fromkeys(["sets", "dags"], ("default",)),
    "cartpole": ("default", "c51", "qrdqn", "iqn", "rainbow", "r2d2", "pqn"),
    "minatar/breakout": ("default", "pqn"),
}
MEMORY = 16 * 2**30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* are rounded up")
@pytest.mark.parametrize(("name", "preset"), [(name, one) for name, every in WORKLOADS.items() for one in every])
def test_every_whole_number_may_be_huge_while_planning(name, preset):
    """It is refused in a sentence or fits into memory, and either is known at once: nothing is made of that size."""
    base = plan(name, preset=preset).config
    whole = [field for field in field_names(base) if field_type(base, field) in (int, tuple[int, ...])]
    assert len(whole) > 5
    for field in whole:
        for value in (10**4, 10**6, 10**9):
            *path, last = field.split(".")
            changes = {last: value if field_type(base, field) is int else [value]}
            for part in reversed(path):
                changes = {part: changes}
            begun = time.monotonic()
            try:
                config = plan(name, preset=preset, changes=changes).config
                check_fits(config, 1, MEMORY)
                assert config.family.memory_bytes(config) >= 0
            except UsageError as error:
                assert str(error).endswith(".") and "`" in str(error), (field, value, error)
            assert time.monotonic() - begun < 5, (field, value)


def test_too_many_seeds_are_the_first_thing_to_change_where_one_fits():
    array = array_sizes.LargeArray("weights", 2**20, ("learner.width",))
    said = array_sizes.too_large([array], 4096, 2**30)
    assert "use at most 1024 `--seeds` at once, or make `--learner.width` smaller." in said
    assert "seeds" not in array_sizes.too_large([array], 1, 2**19)


def test_minatars_worlds_are_found(capsys):
    assert main(["worlds", "minatar"]) == 2
    assert "`xladder worlds gymnax`" in capsys.readouterr().err
