"""Sequences with a table of rewards: read from CSV and NPZ, refused with a sentence if bad, learned and sampled."""

from itertools import product

import numpy as np
import pytest

import xladder
from tests.test_cli import call
from xladder.errors import UsageError
from xladder.families.gflownet.check import check_world
from xladder.worlds.sequence_table import made_up
from xladder.worlds.table_settings import WorldConfig

FULL = {"".join(letters): 1.0 + i for i, letters in enumerate(product("ab", repeat=3))}


def written(folder, table, name="table.csv"):
    path = folder / name
    path.write_text("sequence,value\n" + "".join(f"{one},{value}\n" for one, value in table.items()))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["append", "ends", "any"])
def test_worlds_keep_the_contract_with_the_rewards_of_the_table(order, tmp_path):
    config = WorldConfig(written(tmp_path, FULL), order=order, beta=2.0)
    config.check()
    world = config.make()
    assert check_world(world) == []  # compares the twin in NumPy, too
    known = config.build().enumeration()
    texts = world.describe(known.states[known.terminal])
    wanted = [2 * np.log(FULL[text]) for text in texts]
    np.testing.assert_allclose(known.log_rewards[known.terminal], wanted, rtol=1e-6)
    assert sorted(texts) == sorted(FULL)


def test_sequences_may_have_several_lengths_and_missing_ones_a_value(tmp_path):
    config = WorldConfig(written(tmp_path, {"a": 3.0, "ab": 2.0, "bb": 0.0}), missing=0.5, floor=0.1)
    config.check()
    world = config.build()
    known = world.enumeration()
    texts = world.world.describe(known.states[known.terminal])
    rewards = dict(zip(texts, np.exp(known.log_rewards[known.terminal]), strict=True))
    wanted = {"a": 3.0, "b": 0.5, "aa": 0.5, "ab": 2.0, "ba": 0.5, "bb": 0.1}
    assert rewards == pytest.approx(wanted, rel=1e-5)
    assert config.build().log_z() == pytest.approx(np.log(sum(wanted.values())), abs=1e-5)


def test_npz_and_csv_are_the_same(tmp_path):
    np.savez(tmp_path / "table.npz", sequence=np.array(list(FULL)), value=np.array(list(FULL.values())))
    ours, theirs = WorldConfig(str(tmp_path / "table.npz")), WorldConfig(written(tmp_path, FULL))
    np.testing.assert_array_equal(ours.log_rewards(), theirs.log_rewards())


BAD = {
    "sequence,value\naa,1\nab,nan\n": "`ab` is nan",
    "sequence,value\naa,1\nab,-2\n": "cannot be negative",
    "sequence,value\naa,1\naa,2\n": "`aa` is there twice",
    "sequence,value\naa,1\nab,x\n": "'x' is not a number",
    "sequence,value\naa,1\n,2\n": "the sequence is empty",
    "sequence,value\naa,1\nab,0\nba,1\nbb,1\n": "`--world.floor`",
    "sequence,value\naa,1\nab,1\nba,1\n": "3 of the 4 sequences",
    "sequence,value\naa,1\n": "single symbol `a`",
    "sequence,value\n": "no entries",
    "name,value\naa,1\n": "no column `sequence`",
    "": "no column `sequence`",
}


def test_a_sequence_of_a_thousand_letters_is_refused_with_the_size_of_its_table(tmp_path):
    path = written(tmp_path, {"ACGT" * 250: 1.0})
    with pytest.raises(UsageError, match=r"4 symbols at 1000 places need 5\^1000 entries, and 4,194,304 are possible"):
        WorldConfig(path).check()


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_ends_in_a_sentence(text, tmp_path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(UsageError) as error:
        WorldConfig(str(tmp_path / "bad.csv")).check()
    assert BAD[text] in str(error.value)


def test_bad_settings_end_in_a_sentence(tmp_path, capsys):
    path = written(tmp_path, FULL)
    long = written(tmp_path, {"abcdefgh" * 2: 1.0}, "long.csv")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    for flags, said in [
        (["--world.table", str(tmp_path / "nowhere.csv")], "not a file"),
        (["--world.table", str(tmp_path / "bad.npz")], "not an NPZ file"),
        (["--world.table", path, "--world.alphabet", "ac"], "`b`, not of `ac`"),
        (["--world.table", path, "--world.alphabet", "abb"], "twice"),
        (["--world.table", path, "--world.shortest", "4"], "longest sequence has 3"),
        (["--world.table", path, "--world.order", "any", "--world.shortest", "2"], "of one length"),
        (["--world.table", path, "--world.beta", "0"], "positive number"),
        (["--world.table", path, "--world.modes", "9"], "0 … 8"),
        (["--world.table", long, "--world.missing", "1"], "log_reward"),
    ]:
        assert call("train", "sequences", *flags) == 2
        assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_the_made_up_table_is_learned_and_sampled(tmp_path):
    """A tree of 341 states: its distribution is exact, and samples are written as sequences."""
    done = xladder.train(
        "sequences",
        iterations=400,
        evaluate_every=400,
        learner={"width": 64, "epsilon": 0.0, "lr": 5e-3},
        world={"modes": 2},
        out=tmp_path / "run",
    )
    assert done.metrics["tv"][0, -1] < 0.15 and done.metrics["spearman"][0, -1] > 0.8
    assert done.metrics["modes_found"][0, -1] == 2
    assert call("sample", str(tmp_path / "run"), "-n", "20", "--out", str(tmp_path / "objects.csv")) == 0
    head, *rows = (tmp_path / "objects.csv").read_text().splitlines()
    assert head.startswith("sequence,") and all(row.split(",")[0] in made_up() for row in rows)


def test_modes_are_counted_as_they_are_listed():
    # The best 100 are counted while training; an exact evaluation asks for the objects with the highest reward.
    world = WorldConfig(modes=100).build()
    assert world.modes_counted == 100
    assert world.num_modes() == world.enumeration().num_regions == world.enumeration().modes.sum() == 1
