"""A sweep.json that was edited, or that another version wrote: refused with a sentence, before anything is compiled."""

from __future__ import annotations

import json

import pytest

from tests.test_cli import call
from tests.test_sweep import swept
from xladder.errors import UsageError
from xladder.runs.disk import to_json
from xladder.sweeps.space import MOST_TRIALS, Range, parse_axis
from xladder.sweeps.sweep import describe_sweep, make_sweep, parse_sweep

RATES = [0.001, 0.002, 0.003, 0.004]


def written(**edits):
    """The sweep.json of four trials, with some of its entries replaced."""
    sweep = json.loads(to_json(describe_sweep(swept({"learner.lr": RATES}, "hypergrid"))))
    return sweep | edits


def rates(values):
    """Trials with these learning rates."""
    return [{"learner.lr": value} for value in values]


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"seed": -1}, "`--seed` is -1"),
        ({"seed": 2**31}, "`--seed` is 2147483648"),
        ({"trials": rates([*RATES[:3], 0.5])}, r"Trial 3 has 0.5 for `learner.lr`, which is not in `0.001,"),
        ({"trials": rates([True, *RATES[:3]])}, "Trial 0 has True"),
        ({"trials": rates([[0.001], *RATES[:3]])}, r"Trial 0 has \[0.001\]"),
        ({"trials": rates([float("nan"), *RATES[:3]])}, "Trial 0 has nan"),
        ({"trials": [1, 2, 3, 4]}, "Trial 0 needs a value of learner.lr"),
        ({"trials": [{"learner.lr": 0.001, "learner.width": 8}]}, "and of nothing else"),
        ({"trials": []}, "There are 0 trials"),
        ({"trials": rates([0.001]) * (MOST_TRIALS + 1)}, "There are 20,001 trials"),
        ({"space": {"learner.lr": "log:1e-4..1e-2"}, "trials": rates([0.5])}, "not in `log:0.0001..0.01`"),
        ({"space": {"learner.lr": "1e-4..1e-2"}, "trials": rates(["0.001"])}, "Trial 0 has '0.001'"),
        ({"space": {"learner.lr": 3}}, "a sweep needs a list"),
        ({"space": {}, "trials": [{}]}, "needs a setting that varies"),
        ({"space": {"iterations": "1,2"}, "trials": [{"iterations": 1}, {"iterations": 2}]}, "the length of training"),
        (
            {"space": {"learner.width": "8..200"}, "trials": [{"learner.width": 8 + i} for i in range(17)]},
            "17 programs, more than 16",
        ),
        ({"halve": 1}, "`--halve` is 1,"),
        ({"halve": -1}, "`--halve` is -1,"),
        ({"halve": 5}, "keeps one in 5 trials, and there are 4"),
        ({"halve": 10**30}, "a sweep has 20,000 trials at most"),
        ({"halve": 2, "pbt": True}, "two ways to compare"),
        ({"pbt": True, "trials": rates(RATES[:3])}, "needs 4 trials"),
        ({"test_seeds": [1, 2]}, "Seed 1 is a tuning seed and a test seed"),
        ({"test_seeds": [7, 7]}, "each of them once"),
        ({"test_seeds": []}, "one seed or more"),
        ({"metric": "returns"}, "Did you mean `return`"),
    ],
)
def test_an_edited_file_is_refused_with_a_sentence(edits, said):
    with pytest.raises(UsageError, match=said) as refused:
        parse_sweep(written(**edits), "`s/sweep.json`")
    assert str(refused.value).startswith("`s/sweep.json` is not a sweep that can go on: restore the file")


@pytest.mark.parametrize("rung", ["parallel", "sequential"])
def test_a_rung_that_trains_one_run_at_a_time_is_refused(rung):
    sweep = written()
    sweep["plan"]["rung"] = rung
    with pytest.raises(UsageError, match="trains one run at a time"):
        parse_sweep(sweep, "here")


def test_resume_ends_with_exit_code_2_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "sweep.json").write_text(json.dumps(written(halve=-1)))
    assert call("resume", str(tmp_path)) == 2
    assert "`--halve` is -1" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.json"]
    (tmp_path / "sweep.json").write_text("[" * 100)
    assert call("resume", str(tmp_path)) == 2 and "not valid JSON" in capsys.readouterr().err


def test_a_grid_has_as_many_trials_at_most_as_are_drawn():
    lists = {"learner.lr": [1e-9 * (i + 1) for i in range(200)], "learner.epsilon": [i / 1000 for i in range(200)]}
    with pytest.raises(UsageError, match="a grid of 40,000 trials"):
        swept(lists, "hypergrid")


def test_infinity_and_long_numbers_are_read_as_they_were_written():
    spaces = {"learner.clip": [10.0, float("inf")]}, {"learner.lr": Range("learner.lr", 0.00123456789, 0.01)}
    for workload, space in zip(("cartpole", "hypergrid"), spaces, strict=True):
        texts = {name: str(axis) if isinstance(axis, Range) else axis for name, axis in space.items()}
        sweep = swept(texts, workload, trials=2)
        assert parse_sweep(json.loads(to_json(describe_sweep(sweep))), "here") == sweep


def test_ends_of_a_range_that_an_earlier_version_rounded_are_no_edit():
    sweep = written(space={"learner.lr": "0.00123457..0.01"}, trials=rates([0.00123456789]))
    assert parse_sweep(sweep, "here").trials[0].values == {"learner.lr": 0.00123456789}


def test_a_value_twice_is_refused_from_python_too():
    sweep = swept({"learner.lr": RATES}, "hypergrid")
    with pytest.raises(UsageError, match="has a value twice"):
        make_sweep(sweep.plan, {"learner.lr": [0.1, 0.1]})
    assert parse_axis(sweep.plan.config, "learner.lr", [0.1]).values == (0.1,)
