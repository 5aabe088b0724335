"""Gymnasium environments of the user's own: spaces, arguments, wrappers, objects, masks, processes and faults."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import xladder
from tests import gym_worlds
from tests.conftest import TINY_GYM
from xladder import user_code
from xladder.cli.main import main
from xladder.core.compiling import compiled
from xladder.distributed.actor import Actor
from xladder.errors import UsageError, UserCodeFailed
from xladder.families.value import presets as named
from xladder.learners import masks, masks_torch
from xladder.registry import RUNGS
from xladder.worlds import names
from xladder.worlds.arguments import arguments
from xladder.worlds.envs import available
from xladder.worlds.gym_host import GymEnvs
from xladder.worlds.host_calls import random_actions
from xladder.worlds.spaces_host import MOST_CATEGORIES, bounds_of, lay_flat, parts_of

HERE = "tests.gym_worlds"
TINY = {"steps": 96, "evaluate_episodes": 0, "world": {"num_envs": 2}}
LEARNER = {"batch_size": 8, "learning_starts": 16, "hidden": (8,), "width": 8}


@pytest.fixture(autouse=True)
def allowed():
    user_code.allow(HERE)


def stepped(steps=6, num_envs=2, **given):
    """First frames and steps with random available actions."""
    envs = GymEnvs(f"gym/{HERE}:TestCorridor-v0", num_envs, 0, **given)
    rng, frames, made = np.random.default_rng(0), [envs.reset()], []
    for _ in range(steps):
        envs.send(random_actions(envs.spec, frames[-1], rng))
        made.append(envs.recv())
        frames.append(made[-1].frame)
    envs.close()
    return envs.spec, np.stack(frames), made


def test_numbers_out_of_a_range_become_one_hot():
    """Held against Gymnasium's own `flatten`, which orders the keys of dicts likewise."""
    space = Dict(
        {
            "a": Discrete(4, start=-1),
            "b": Tuple([MultiDiscrete([2, 3]), MultiBinary(2)]),
            "c": MultiDiscrete([[2, 2], [3, 2]]),
        }
    )
    space.seed(0)
    parts = parts_of(space)
    assert [part.size for part in parts] == [4, 5, 2, 9]
    for _ in range(5):
        seen = space.sample()
        flat = lay_flat(parts, gymnasium.vector.utils.concatenate(space, [seen], _empty(space)), 1)[0]
        np.testing.assert_array_equal(flat, gymnasium.spaces.flatten(space, seen))
    (large,) = parts_of(Discrete(MOST_CATEGORIES + 1))
    np.testing.assert_array_equal(lay_flat((large,), np.array([7]), 1), [[7]])
    with pytest.raises(ValueError, match="4 is not one of 0 … 3"):
        lay_flat(parts_of(Discrete(4)), np.array([4]), 1)


def _empty(space):
    return gymnasium.vector.utils.create_empty_array(space, 1)


def test_published_toy_worlds_can_be_stepped():
    for world, shape, actions in (("Taxi-v4", (506,), 6), ("FrozenLake-v1", (16,), 4), ("Blackjack-v1", (45,), 2)):
        spec = named.presets(f"gym/{world}")["default"].world.spec()
        assert (spec.shape, spec.actions, spec.masked) == (shape, actions, world == "Taxi-v4")


@pytest.mark.parametrize("given", [{}, {"kwargs": ("in_dict=True",)}, {"kwargs": ("picture=True",)}])
def test_masks_are_read_wherever_they_are(given):
    spec, frames, made = stepped(**given)
    assert spec.masked and spec.seen == ((8, 8, 3) if "picture=True" in str(given) else (5,))
    shown = available(spec, frames)  # [T, N, A]
    places = frames[..., 0, 0, 0] if len(spec.shape) == 3 else frames[..., :5].argmax(-1)
    over = np.stack([step.terminated for step in made])
    np.testing.assert_array_equal(shown[..., 0], (places > 0) | np.pad(over, ((1, 0), (0, 0))))
    assert shown[..., 1].all()  # also at the end, where the world forbids everything


def test_masks_can_be_ignored():
    assert not GymEnvs(f"gym/{HERE}:TestCorridor-v0", 1, 0, masks=False).spec.masked
    assert not GymEnvs(f"gym/{HERE}:TestCorridor-v0", 1, 0, kwargs=("masked=False",)).spec.masked


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_mask_is_split_off_frames_of_any_shape(axes):
    rng = np.random.default_rng(0)
    states = rng.integers(1, 9, (5, 2, *(4,) * (axes - 1), 6)).astype(np.float32)  # B 5, F 2, the last axis 4 + 2
    flags = rng.integers(0, 2, (5, 2))
    states[:, -1, ..., -2:] = flags.reshape(5, *(1,) * (axes - 1), 2)
    seen, mask = masks.split_mask(jnp.array(states), 2, axes)
    np.testing.assert_array_equal(mask, flags > 0)
    np.testing.assert_array_equal(seen, states[..., :-2])
    theirs, their_mask = masks_torch.split_mask(torch.tensor(states), 2, axes)
    np.testing.assert_array_equal(theirs, seen)
    np.testing.assert_array_equal(their_mask, mask)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "torso"),
    [
        ("torch", "mlp"),
        ("torch", "minatar"),
        ("parallel", "minatar"),
        pytest.param("parallel", "mlp", marks=pytest.mark.slow),
    ],
)
def test_forbidden_actions_are_never_taken(rung, torso):
    """The world raises where one is."""
    world = TINY["world"] | {"kwargs": {"picture": torso == "minatar"}}
    changes = TINY | {"world": world, "learner": LEARNER | {"torso": torso}}
    result = xladder.train(f"gym/{HERE}:TestCorridor-v0", rung, **changes)
    assert result.metrics["updates"].sum() > 0


def test_arguments_are_python_literals_or_texts():
    pairs = ("a=False", "b=false", "c=None", "d=-1.5", "e=(2, 3)", "f=blue", "g='4'", "h=x=y")
    expected = {"a": False, "b": False, "c": None, "d": -1.5, "e": (2, 3), "f": "blue", "g": "4", "h": "x=y"}
    assert arguments(pairs) == expected
    for wrong in ("length", "=3", "a b=3"):
        with pytest.raises(UsageError, match=r"it has to be name=value, such as continuous=False"):
            arguments((wrong,))


def test_arguments_may_change_what_a_world_shows():
    config = named.presets("gym/CartPole-v1")["default"]
    plan = xladder.plan("gym/FrozenLake-v1", world={"kwargs": {"map_name": "8x8"}})
    assert plan.config.world.spec().shape == (64,) and plan.config.world.kwargs == ("map_name='8x8'",)
    assert config.world.kwargs == ()
    with pytest.raises(UsageError, match=r"fails when it is made: TypeError: .*colour.* Its arguments are `--world"):
        xladder.plan(f"gym/{HERE}:Corridor", world={"kwargs": {"colour": 3}})


def test_wrappers_are_gymnasiums_or_the_users():
    wrapped = ("TimeLimit(max_episode_steps=3)", f"{HERE}:shifted")
    _, _, made = stepped(5, wrappers=wrapped)
    ends = np.stack([step.terminated | step.truncated for step in made])
    assert ends[2].all() and np.stack([step.reward for step in made])[0].max() <= 0
    for wrapper, said in [
        ("TimeLimt", "There is no wrapper of Gymnasium `TimeLimt`. Did you mean `TimeLimit`?"),
        ("TimeLimit(", "it has to be `Name`, `Name"),
        ("TimeLimit(max_episode_steps=3, x=1)", "The wrapper `TimeLimit.* cannot wrap `gym/.*: TypeError"),
        (f"{HERE}:missing", "has no `missing`, so there is no wrapper"),
    ]:
        with pytest.raises(UsageError, match=said):
            stepped(wrappers=(wrapper,))


@pytest.mark.parametrize(
    ("thing", "name", "size"),
    [
        (gym_worlds.Corridor, f"gym/{HERE}:Corridor", 5),
        (gym_worlds.short_corridor, f"gym/{HERE}:short_corridor", 3),
        (gym_worlds.long_corridor, f"gym/{HERE}:long_corridor", 7),
        (gym_worlds.Corridor(), f"gym/{HERE}:Corridor", 5),
        (gymnasium.make("TestCorridor-v0"), "gym/TestCorridor-v0", 5),
        (gymnasium.make("TestCorridor-v0").spec, "gym/TestCorridor-v0", 5),
        (gymnasium.make("CartPole-v1", render_mode="rgb_array"), "gym/CartPole-v1", 4),
    ],
)
def test_objects_have_the_name_that_leads_to_them(thing, name, size):
    assert names.name_of(thing) == name
    assert named.presets(name)["default"].world.spec().seen == (size,)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: gym_worlds.Corridor(9), 10),
        (lambda: gymnasium.make("TestCorridor-v0", length=8), 9),
        (lambda: gymnasium.make("TestCorridor-v0", length=8).spec, 9),
        (lambda: gymnasium.wrappers.FlattenObservation(gym_worlds.Corridor(7)), 8),
    ],
)
def test_objects_with_arguments_or_wrappers_of_their_own_are_trained(make, size):
    plan = xladder.plan(make(), **TINY)
    assert plan.workload.name.startswith("gym/") and "@" in plan.workload.name
    assert plan.config.world.spec().seen == (size,)


@pytest.mark.slow
def test_an_environment_trains_with_a_list_of_seeds():
    result = xladder.train(gym_worlds.Corridor(3), "parallel", seeds=[4, 1], **TINY, learner=LEARNER)
    assert result.metrics["return"].shape[0] == 2


def test_vectorised_environments_are_refused():
    with pytest.raises(UsageError, match="is vectorised already: pass one environment"):
        xladder.plan(gymnasium.make_vec("CartPole-v1", 2))
    with pytest.raises(UsageError, match="makes Discrete, which is not an environment of Gymnasium"):
        GymEnvs(f"{HERE}:Discrete", 1, 0, kwargs=("n=2",))


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("Corridor", "fault=raise", r"fails in its `step`: RuntimeError: the floor is wet \(gym_worlds.py, line 2\d\)"),
        ("Corridor", "fault=reward", "returns a reward that is not a finite number from its `step`"),
        ("Corridor", "fault=flags", r"returns int8 \[3\] as `action_mask`, which has to be 2 flags, from its `reset`"),
        ("Corridor", "fault=stuck", "an `action_mask` that forbids every action although the episode goes on"),
        ("Corridor", "fault=outside", r"not in its `observation_space` \(99 is not one of 0 … 4\) from its `reset`"),
        ("Numbers", "second=nan", "returns an observation with nan at place 1 from its `step`"),
        ("Numbers", "second=1e999", "returns an observation with inf at place 1 from its `step`"),
    ],
)
def test_faults_are_named_where_they_are(name, kwargs, said):
    if kwargs == "second=nan":
        envs = GymEnvs(f"{HERE}:Numbers", 1, 0)
        for env in envs._envs.envs:
            env.second = float("nan")
    else:
        envs = GymEnvs(f"{HERE}:{name}", 1, 0, kwargs=(kwargs,))
    with pytest.raises(UserCodeFailed, match=said):
        envs.reset()
        for _ in range(3):
            envs.send(np.ones(1, int))
            envs.recv()


def test_spaces_that_cannot_be_handled_are_explained():
    with pytest.raises(UsageError, match="value learners need one discrete choice: wrap it so that every combination"):
        GymEnvs(f"{HERE}:Several", 1, 0)
    with pytest.raises(UsageError, match=r"shows Text.*, but networks need numbers: a `Box`, `Discrete`"):
        GymEnvs(f"{HERE}:Words", 1, 0)


def test_the_command_line_takes_arguments_and_ends_in_a_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", f"gym/{HERE}:TestCorridor-v0", "--world.kwargs", "fault=stuck", "--rung", "parallel"]) == 2
    assert "forbids every action" in capsys.readouterr().err
    assert main(["train", "gym/MountainCarContinuous-v0"]) == 2
    assert "Stable-Baselines3" in capsys.readouterr().err


@pytest.mark.slow
def test_every_env_in_its_own_process_steps_as_in_one():
    """The same frames and masks, and an error that names file and line."""
    for given in ({}, {"kwargs": ("picture=True",)}):
        (_, one, _), (_, each, _) = stepped(25, **given), stepped(25, asynchronous=True, **given)
        np.testing.assert_array_equal(one, each)
    with pytest.raises(UserCodeFailed, match=r"`gym/.*` fails in its `step`: RuntimeError: .* \(gym_worlds.py, line"):
        stepped(kwargs=("fault=raise",), asynchronous=True)
    elsewhere = names.name_of(gym_worlds.Corridor(3))
    envs = GymEnvs(elsewhere, 2, 0, asynchronous=True)
    np.testing.assert_array_equal(envs.reset()[:, :4], [[1, 0, 0, 0]] * 2)
    envs.close()


def test_large_colour_images_have_a_torso_and_a_memory_that_fits():
    """CarRacing's are 96 × 96 in three colours; its actions are continuous unless told otherwise."""
    config = named.presets(f"gym/{HERE}:Racing")["default"]
    assert (config.learner.torso, config.learner.width) == ("nature", 512)
    assert 2**29 < config.learner.memory * 96 * 96 * 3 <= 2**30
    with pytest.raises(UsageError, match="Continuous actions"):
        xladder.plan(f"gym/{HERE}:Racing")
    world = {"num_envs": 2, "kwargs": {"continuous": False}}
    learner = {"width": 8, "batch_size": 2, "learning_starts": 4, "memory": 64, "steps_per_update": 4}
    small = {"steps": 32, "evaluate_episodes": 0, "world": world, "learner": learner}
    assert np.isfinite(xladder.train(f"gym/{HERE}:Racing", "torch", **small).metrics["loss"][0, -1])


def test_numbers_are_scaled_by_their_bounds_if_wished():
    """MountainCar's are −1.2 … 0.6 and ±0.07; CartPole's speeds have none."""
    world = xladder.plan("gym/MountainCar-v0", world={"normalise": "bounds"}).config.world
    plain, scaled = GymEnvs("MountainCar-v0", 3, 0), world.on_host(3, 0, None)
    first = plain.reset()
    np.testing.assert_allclose(scaled.reset(), (first - [-0.3, 0.0]) / [0.9, 0.07], atol=1e-6)
    centre, half = bounds_of(gymnasium.make("CartPole-v1").observation_space)
    assert not centre.any() and half[1] == half[3] == 1.0
    np.testing.assert_allclose(half[[0, 2]], [4.8, 0.41887903], rtol=1e-6)
    mixed = Dict({"b": Discrete(3), "a": Tuple([gymnasium.spaces.Box(0, 4, (1,)), MultiBinary(1)])})
    np.testing.assert_array_equal(np.stack(bounds_of(mixed)), [[2, 0, 0, 0, 0], [2, 1, 1, 1, 1]])


# ---- closing -------------------------------------------------------------------------------------------------------

COUNTED = f"gym/{HERE}:TestCounted-v0"
COUNTING = replace(TINY_GYM, world=replace(TINY_GYM.world, name=COUNTED))
CLOSING = {"torch": {}, "hybrid": {}, "sequential": {}, "parallel": {}, "mesh": {"mesh": "data=1"}}


@pytest.mark.parametrize("rung", CLOSING)
def test_a_run_closes_its_envs(rung):
    """`running` is held here, so that none is closed by the garbage collector."""
    running = RUNGS[rung].start(COUNTING, [0], jax.devices("cpu")[0], **CLOSING[rung])
    assert gym_worlds.Counted.open == 2
    running.advance(1)
    running.close()
    assert gym_worlds.Counted.open == 0


@pytest.mark.parametrize("wet", [2, 20])  # steps of an env
def test_a_run_that_fails_closes_its_envs(wet):
    given = TINY | {"world": {"num_envs": 2, "kwargs": {"wet": wet}}, "learner": LEARNER, "evaluate_every": 8}
    with pytest.raises(UserCodeFailed, match="the floor is wet"):
        xladder.train(COUNTED, rung="torch", **given)
    assert gym_worlds.Counted.open == 0


def test_training_closes_the_envs_of_evaluations():
    given = TINY | {"steps": 16, "learner": LEARNER, "evaluate_every": 8, "evaluate_episodes": 2}
    result = xladder.train(COUNTED, rung="sequential", **given)
    result.evaluate(2)
    assert gym_worlds.Counted.open == 0


def test_a_restarted_actor_closes_its_earlier_envs():
    actor = Actor(COUNTING, 0, 0, 2, compiled)
    first = actor.games
    actor.begin(1)
    assert first.worlds._envs is None and gym_worlds.Counted.open == 2
    actor.games.close()


# ---- a module in the folder where one works ------------------------------------------------------------------------

MODULE = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Right(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.look(), {}

    def step(self, action):
        self.time += 1
        return self.look(), float(action), False, self.time >= 5, {}

    def look(self):
        return np.float32([self.time / 5])


gymnasium.register("Right-v0", Right)
"""
RIGHT = "gym/my_right_env:Right-v0"


def in_folder(folder, *words):
    """Run a command as a user would who works in a folder of their own."""
    ours = ("JAX_NUM_CPU_DEVICES", "JAX_NUMPY_RANK_PROMOTION", "PYTHONPATH")  # set for other tests
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    source = str(Path(xladder.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "xladder", *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": source, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_module_is_found_in_the_folder_where_one_works(tmp_path, monkeypatch):
    (tmp_path / "my_right_env.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_right_env", raising=False)
    try:
        assert xladder.plan(RIGHT).config.world.spec().shape == (1,)
    finally:
        gymnasium.registry.pop("Right-v0", None)
        sys.modules.pop("my_right_env", None)


@pytest.mark.slow
def test_a_world_of_the_folder_goes_through_train_compare_eval_and_resume(tmp_path):
    (tmp_path / "my_right_env.py").write_text(MODULE)
    learner = ("--learner.batch-size", "8", "--learner.learning-starts", "16", "--learner.hidden", "8")
    short = ("--steps", "96", "--evaluate-episodes", "0", "--world.num-envs", "2", *learner)

    def succeeds(*words):
        code, said = in_folder(tmp_path, *words)
        assert code == 0, said
        return said

    succeeds("train", RIGHT, *short, "--eval-episodes", "0", "--out", "run")
    assert "torch" in succeeds("compare", RIGHT, "--rungs", "torch,parallel", *learner, "--chart", "chart.png")
    for words in (("eval", "run", "--episodes", "2"), ("resume", "run", "--steps", "192")):
        code, said = in_folder(tmp_path, *words)
        assert code == 2 and "add `--import my_right_env`" in said, said
        succeeds(*words, "--import", "my_right_env")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert set(config["code"]) == {"my_right_env"}
