"""Sets: torchgfn's rules, closed forms against enumeration, the twin, and rewards of one's own."""

from itertools import combinations
from math import comb

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from tests.test_cli import call
from xladder.errors import UsageError
from xladder.families.gflownet.check import check_world
from xladder.pictures.objects import draw_objects
from xladder.plans import plan
from xladder.worlds.flow_own import OwnWorld
from xladder.worlds.sets import Sets
from xladder.worlds.sets_settings import WorldConfig


@pytest.mark.parametrize(("full", "objects"), [(False, 26), (True, 10)])
def test_sets_are_those_of_torchgfn(full, objects):
    """`SetAddition(n_items=5, max_items=3)` has 26 terminating states, and 10 if `fixed_length`."""
    world = Sets(5, 3, full)
    known = OwnWorld(world).enumeration()
    assert len(known.states) == 26 == sum(comb(5, size) for size in range(4))
    assert known.terminal.sum() == objects
    assert check_world(world) == []
    two = jnp.array([1, 0, 1, 0, 0])
    assert np.asarray(world.forward_mask(two)).tolist() == [False, True, False, True, True, not full]
    three = world.forward(two, jnp.int32(4))
    assert np.asarray(world.forward_mask(three)).tolist() == [False] * 5 + [True]
    assert np.asarray(world.backward_mask(three)).tolist() == [True, False, True, False, True]
    assert np.asarray(world.backward(three, jnp.int32(0))).tolist() == [0, 0, 1, 0, 1]


@pytest.mark.parametrize("full", [False, True])
def test_log_z_and_inclusion_probabilities_are_sums_over_all_sets(full):
    world = Sets(7, 4, full, seed=1)
    rewards = {
        chosen: np.exp(-world.energies[list(chosen)].sum())
        for size in ([4] if full else range(5))
        for chosen in combinations(range(7), size)
    }
    total = sum(rewards.values())
    assert world.known_log_z() == pytest.approx(np.log(total), rel=1e-12)
    included = [sum(reward for chosen, reward in rewards.items() if item in chosen) / total for item in range(7)]
    np.testing.assert_allclose(world.known_chart()[0], included, rtol=1e-10)
    bound = OwnWorld(world)
    np.testing.assert_allclose(bound.target_picture(True)[0], included, rtol=1e-5)
    assert bound.enumeration().log_z == pytest.approx(np.log(total), abs=1e-5)


def test_a_large_set_has_a_log_z():
    world = Sets(100, 80, full=True)
    assert world.states() is None and WorldConfig(100, 80).states > 2**20
    assert np.isfinite(world.known_log_z())
    assert world.known_chart().sum() == pytest.approx(80, rel=1e-9)


def pairs(chosen):
    return jnp.where(chosen.sum() == 2, 1.0, -2.0)


def test_a_reward_of_ones_own():
    made = plan("sets", world={"reward": pairs, "items": 4, "most": 3})
    world = made.config.world.build()
    assert world.log_z() == pytest.approx(np.log(6 * np.e + (1 + 4 + 4) * np.exp(-2)), abs=1e-6)
    with pytest.raises(UsageError, match="returns nan"):
        plan("sets", world={"reward": lambda chosen: jnp.log(-1.0 * chosen.sum() - 1), "items": 4, "most": 3})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"items": 0}, "`--world.items` is 0"),
        ({"most": 11}, "`--world.most` is 11, but a set has 1 to 10 items"),
        ({"reward": "nothing"}, "`--world.reward` is nothing, but it has to be energies, or your own function"),
    ],
)
def test_bad_settings_are_named(changes, said):
    with pytest.raises(UsageError, match=said):
        plan("sets", world=changes)


@pytest.mark.slow
def test_train_eval_and_sample_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--world.items", "4", "--world.most", "2", "--learner.width", "16", "--learner.batch-size", "8"]
    assert call("train", "sets", *flags, "--iterations", "20", "--seeds", "1", "--out", "run") == 0
    said = capsys.readouterr().out
    assert "total variation" in said and (tmp_path / "run/media/objects.png").stat().st_size > 1000
    assert call("sample", "run", "-n", "5", "--out", "sets.csv") == 0
    assert len((tmp_path / "sets.csv").read_text().splitlines()) == 6
    assert call("train", "sets", "--world.most", "11", "--out", "bad") == 2
    assert "`--world.most` is 11" in capsys.readouterr().err and not (tmp_path / "bad").exists()


def test_objects_are_drawn_side_by_side(tmp_path):
    images = np.array([Sets(5, 3).image(np.array(chosen)) for chosen in ([0, 0, 0, 0, 0], [1, 0, 1, 0, 1])])
    assert images.shape == (2, 1, 5)
    draw_objects(tmp_path / "objects.png", images, ["empty", "three"], "sets", "2 samples")
    with Image.open(tmp_path / "objects.png") as drawn:
        dark = np.asarray(drawn.convert("L")) < 20
    assert drawn.size[0] == 1600 and dark[:, 200:400].any() and dark.mean() < 0.1
