"""Settings of the value worlds: presets are sound and as published, and wrong settings are answered with a way out."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from xladder.errors import UsageError
from xladder.families.value import atari_presets as atari
from xladder.families.value import config as value
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value import presets as named
from xladder.families.value.learner_config import MEMBERS, LearnerConfig
from xladder.families.value.program import Program
from xladder.plans import plan
from xladder.settings import to_dict, updated

WORLDS = ["cartpole", "minatar/breakout", "atari/pong", "gym/CartPole-v1"]
PRESETS = [(world, preset) for world in WORLDS for preset in named.presets(world)]


# ---- presets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "preset"), PRESETS, ids=map("-".join, PRESETS))
def test_every_preset_is_sound_and_survives_being_written_down(world, preset):
    config = named.presets(world)[preset]
    assert config.name == world
    named.check(config)
    named.check(value.compared(config))
    assert updated(config, to_dict(config)) == config
    other = updated(named.presets("cartpole" if world == "minatar/breakout" else world)["default"], {})
    written = json.loads(json.dumps(to_dict(config)))  # as a run directory holds it
    assert updated(other, written) == config
    assert hash(config) == hash(updated(other, written))


# The settings that decide whether CartPole and MinAtar are learned; docs/benchmarks/defaults.md says why.
DEFAULTS = {
    "cartpole": {
        "loss": "huber",
        "double": True,
        "n_step": 5,
        "lr": 1e-3,
        "clip": 10.0,
        "tau": 0.01,
        "target_update_period": 0,
        "batch_size": 128,
        "steps_per_update": 8,
        "epsilon_share": 0.3,
    },
    "minatar/breakout": {
        "loss": "huber",
        "double": False,
        "n_step": 1,
        "lr": 2.5e-4,
        "clip": 10.0,
        "tau": 0.0,
        "target_update_period": 4000,
        "batch_size": 32,
        "steps_per_update": 4,
        "epsilon_steps": 100_000,
    },
}


@pytest.mark.parametrize("world", DEFAULTS)
def test_the_defaults_are_those_that_were_chosen(world):
    learner = to_dict(named.presets(world)["default"])["learner"]
    assert {name: learner[name] for name in DEFAULTS[world]} == DEFAULTS[world]


def test_defaults_leave_published_presets_alone():
    """CleanRL's DQN has a copied target and the square, whatever our default has."""
    c = named.presets("cartpole", "cleanrl")["dqn"].learner
    assert (c.loss, c.tau, c.target_update_period, c.n_step, c.double) == ("squared", 0.0, 500, 1, False)
    assert named.presets("minatar/breakout", "minatar")["dqn"].learner.loss == "huber"


# Head, double, dueling, noisy, n, prioritised, Munchausen.
INGREDIENTS = {
    "dqn": ("scalar", False, False, False, 1, False, False),
    "double": ("scalar", True, False, False, 1, False, False),
    "dueling": ("scalar", True, True, False, 1, False, False),
    "c51": ("categorical", False, False, False, 1, False, False),
    "qrdqn": ("quantile", False, False, False, 1, False, False),
    "iqn": ("implicit", False, False, False, 1, False, False),
    "munchausen": ("scalar", False, False, False, 1, False, True),
    "rainbow": ("categorical", True, True, True, 3, True, False),
}


@pytest.mark.parametrize("world", [world for world in WORLDS if not world.startswith("atari/")])
def test_the_named_members_have_the_ingredients_they_are_named_for_and_a_worlds_own_settings_for_the_rest(world):
    found = named.presets(world)
    assert set(INGREDIENTS) == set(MEMBERS) <= set(found)
    for name, ingredients in INGREDIENTS.items():
        c = found[name].learner
        assert (c.head, c.double, c.dueling, c.noisy, c.n_step, c.prioritised, c.munchausen) == ingredients
        default = found["default"]
        target = gymnax.COPIED_TARGET if c.torso == "mlp" and c.head != "scalar" else {}
        assert found[name] == replace(default, learner=replace(default.learner, **MEMBERS[name], **target))
        assert (c.lr, c.batch_size, c.torso) == tuple(
            getattr(default.learner, x) for x in ("lr", "batch_size", "torso")
        )
    assert found["rainbow"].learner.epsilon == found["rainbow"].learner.epsilon_end == 0.0  # noise explores


def test_a_protocol_of_a_world_without_protocols_is_refused():
    for other in ("hypergrid", "treasurehunt", "bits"):
        with pytest.raises(UsageError, match=f"`{other}` has no protocols: leave out `--protocol`"):
            plan(other, protocol="dopamine")
    with pytest.raises(UsageError, match="`catch` has no protocols: leave out `--protocol`"):
        plan("catch", protocol="nature")
    with pytest.raises(UsageError, match="no protocol `nature`"):
        plan("cartpole", protocol="nature")


def test_games_may_be_spelled_as_their_papers_do():
    made = plan("atari/SpaceInvaders", "parallel")
    assert made.workload.name == made.config.name == made.config.world.name == "atari/space_invaders"
    assert made.config == plan("atari/space_invaders", "parallel").config
    assert plan("Breakout-MinAtar").config.world.name == "minatar/breakout"


# ---- what follows from them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envs", "steps_per_update", "steps", "updates", "words"),
    [
        (8, 8, 1, 1, "a tick is 1 step of 8 envs and 1 update"),
        (8, 2, 1, 4, "a tick is 1 step of 8 envs and 4 updates"),
        (8, 24, 3, 1, "a tick is 3 steps of 8 envs and 1 update"),
        (1, 4, 4, 1, "a tick is 4 steps of 1 env and 1 update"),
    ],
)
def test_a_tick_is_the_least_play_that_owes_whole_updates(envs, steps_per_update, steps, updates, words):
    config = gymnax.Config(gymnax.WorldConfig(num_envs=envs), LearnerConfig(steps_per_update=steps_per_update))
    assert (config.steps_per_tick, config.updates_per_tick, config.per_tick) == (steps, updates, steps * envs)
    assert config.per_tick == updates * steps_per_update
    assert config.tick_description == words
    frames = atari.Config(replace(atari.WorldConfig(), num_envs=envs), LearnerConfig(steps_per_update=steps_per_update))
    assert frames.units_per_tick == 4 * config.per_tick


def test_lengths_are_counted_in_what_they_are_given_in():
    config = replace(atari.PROTOCOLS["cleanrl"], frames=1_280_000, evaluate_every=12_800)
    assert (config.agent_steps, config.ticks) == (320_000, 10_000)
    assert config.interval == 100  # 12,800 frames are 3,200 steps of 32 envs
    assert replace(config, evaluate_every=0).interval == 1000
    assert replace(config, evaluate_every=4).interval == replace(config, evaluate_every=1).interval == 1
    assert replace(config, evaluate_episodes=0).interval == 0


def test_whole_numbers_may_be_written_with_an_exponent():
    config = updated(named.presets("cartpole")["default"], {"steps": 1e6, "learner": {"hidden": [64.0, 32]}})
    assert (config.steps, config.learner.hidden) == (1_000_000, (64, 32))
    assert type(config.steps) is int


def test_epsilon_begins_to_fall_when_it_is_told_to():
    """In the paper and in Dopamine, when learning starts."""
    program = Program(replace(atari.PROTOCOLS["nature"], frames=40_000_000))
    at = [float(program.epsilon(np.int32(steps // 32))) for steps in (0, 50_000, 550_000, 1_050_000, 2_000_000)]
    assert at == pytest.approx([1.0, 1.0, 0.55, 0.1, 0.1], abs=1e-4)
    at_once = Program(atari.PROTOCOLS["cleanrl"])
    assert at_once.epsilon(np.int32(0)) == 1.0 > at_once.epsilon(np.int32(1))


def test_a_run_that_is_over_before_learning_starts_says_so():
    config = replace(gymnax.VECTORS, steps=1000)  # its last tick begins after 992 steps
    assert "nothing will be learned: the first update comes after 1,000 agent steps" in value.note(config)
    large = replace(config, learner=replace(config.learner, batch_size=5000))
    assert value.note(large).endswith("(`--learner.batch-size` is 5000)")
    assert value.note(replace(config, steps=1008)) == ""
    short = value.note(replace(atari.PROTOCOLS["cleanrl"], frames=128_000))
    assert short.startswith("a tick is") and "protocol cleanrl; nothing will be learned" in short
    assert value.note(replace(named.presets("cartpole")["pqn"], steps=2048)) == ""


# ---- wrong settings ------------------------------------------------------------------------------------------------

FRESH = {"cartpole": "fused", "minatar/breakout": "fused", "atari/pong": "parallel", "gym/CartPole-v1": "sequential"}
WRONG = [
    ("cartpole", {"learner": {"torso": "nature"}}, "frames of `cartpole` (4): use `--learner.torso mlp`"),
    ("minatar/breakout", {"learner": {"torso": "mlp"}}, "(10 × 10 × 4): use `--learner.torso minatar`"),
    ("atari/pong", {"learner": {"torso": "minatar"}}, "(84 × 84): use `--learner.torso nature`"),
    ("gym/CartPole-v1", {"learner": {"torso": "nature"}}, "use `--learner.torso mlp`"),
    ("cartpole", {"steps": 0}, "`--steps` is 0, but it has to be 1 or more"),
    ("cartpole", {"steps": 2**31 - 1}, "`--steps` is 2147483648, but at most 2147483647 steps are possible"),
    ("cartpole", {"steps": 2**31}, "at most 2147483647 steps are possible"),
    ("atari/pong", {"frames": 2**33}, "at most 8589934588 frames are possible"),
    ("cartpole", {"learner": {"steps_per_update": 12}}, "with 8 envs it has to divide them"),
    ("cartpole", {"learner": {"steps_per_update": 0}}, "`--learner.steps-per-update` is 0"),
    ("cartpole", {"learner": {"munchausen": True, "head": "categorical"}}, "use scalar, quantile or implicit"),
    ("cartpole", {"learner": {"memory": 39, "n_step": 3}}, "1 deep and 3-step returns it has to be 40 or more"),
    ("atari/pong", {"learner": {"memory": 160}}, "`--world.num-envs 32`, frames stacked 4 deep and 1-step"),
    ("cartpole", {"learner": {"target_update_period": 0, "tau": 0.0}}, "`--learner.tau` has to be positive"),
    ("cartpole", {"learner": {"target_update_period": -1}}, "`--learner.target-update-period` is -1, but it cannot"),
    ("cartpole", {"learner": {"hidden": [16, 0]}}, "`--learner.hidden` is 0, but it has to be 1 or more"),
    ("cartpole", {"learner": {"lr": 0}}, "`--learner.lr` is 0.0, but it has to be a positive number"),
    ("cartpole", {"learner": {"lr": float("nan")}}, "`--learner.lr` is nan"),
    ("cartpole", {"learner": {"clip": 0.0}}, "inf for no clipping"),
    ("cartpole", {"learner": {"gamma": 1.01}}, "`--learner.gamma` is 1.01, but it has to lie in [0, 1]"),
    ("cartpole", {"learner": {"epsilon_end": -0.1}}, "`--learner.epsilon-end` is -0.1"),
    ("cartpole", {"learner": {"v_min": 3, "v_max": 3}}, "it has to be below `--learner.v-max` (3.0)"),
    ("cartpole", {"learner": {"head": "categorical", "atoms": 1}}, "a categorical head needs 2 or more"),
    ("cartpole", {"learner": {"munchausen_floor": 0.5}}, "`--learner.munchausen-floor` is 0.5"),
    ("cartpole", {"learner": {"head": "iqn"}}, "has to be one of scalar, categorical, quantile, implicit"),
    ("cartpole", {"learner": {"lerning_rate": 1}}, "no field `learner.lerning_rate`"),
    ("cartpole", {"world": {"num_envs": 0}}, "`--world.num-envs` is 0, but it has to be 1 or more"),
    ("cartpole", {"evaluate_every": -1}, "`--evaluate-every` is -1, but it cannot be negative"),
    ("cartpole", {"preset": "pqn", "learner": {"head": "quantile"}}, "PQN learns values: use scalar"),
    ("cartpole", {"preset": "pqn", "learner": {"noisy": True}}, "`--learner.noisy` is True, but PQN has no"),
    ("cartpole", {"algorithm": "pqn"}, "start from `--preset pqn` and leave it at False"),
    ("cartpole", {"preset": "pqn", "learner": {"memory": 1}}, "`--learner.memory` is 1, but PQN has no use for it"),
    ("cartpole", {"preset": "pqn", "learner": {"n_step": 3}}, "`--learner.n-step` is 3, but PQN has no use for it"),
    ("cartpole", {"preset": "pqn", "learner": {"target_update_period": 7}}, "`--learner.target-update-period` is 7"),
    ("cartpole", {"preset": "munchausen", "learner": {"double": True}}, "use `--learner.no-double`"),
    ("cartpole", {"learner": {"explore_from": -1}}, "`--learner.explore-from` is -1, but it cannot be negative"),
    ("cartpole", {"preset": "pqn", "pqn": {"minibatches": 7}}, "64 steps of 32 envs has 2048 transitions"),
    ("atari/pong", {"algorithm": "pqn"}, "`algorithm` is 'pqn', but it has to be one of replay"),
    ("atari/pong", {"world": {"sticky": 1.0}}, "`--world.sticky` is 1.0, but it has to lie in [0, 1)"),
    ("atari/pong", {"world": {"cap_frames": 8}}, "`--world.cap-frames` is 8"),
    ("atari/pong", {"world": {"name": "atari/pongg"}}, "Did you mean `pong`?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("world", "changes", "length", "said"),
    [
        ("cartpole", {"steps": 1001}, 1008, "1,001 steps are rounded up to 1,008: a tick is 1 step of 8 envs and 1 "),
        ("cartpole", {"steps": 5}, 8, "5 steps are rounded up to 8"),
        ("cartpole", {"preset": "pqn", "steps": 10_000_000}, 10_000_384, "and 64 updates, 2,048 steps."),
        ("atari/pong", {"frames": 1}, 128, "1 frames are rounded up to 128"),
        ("atari/pong", {"frames": 129}, 256, "129 frames are rounded up to 256: a tick is 1 step of 32 envs"),
        (
            "gym/CartPole-v1",
            {"world": {"num_envs": 3}, "learner": {"steps_per_update": 3}, "steps": 10},
            12,
            "10 steps",
        ),
    ],
)
def test_lengths_that_do_not_divide_are_rounded_up_and_a_warning_says_so(world, changes, length, said):
    with pytest.warns(UserWarning, match=re.escape(said)) as warned:
        found = plan(world, FRESH[world], **changes)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert getattr(found.config, found.workload.length) == length
    assert length == found.config.ticks * found.config.units_per_tick


@pytest.mark.parametrize(("world", "changes", "said"), WRONG, ids=[said[-40:] for *_, said in WRONG])
def test_wrong_settings_are_answered_with_a_way_out(world, changes, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        plan(world, FRESH[world], **changes)


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ("cartpol", "no world `cartpol`. Did you mean `cartpole`?"),
        ("atari/brekout", "no Atari game `brekout`. Did you mean `breakout`?"),
        ("breakout", "There are `atari/breakout` and `minatar/breakout`."),
        ("pendulum", "continuous actions, but value learners need discrete ones"),
        ("gym/Pendulum-v1", "value learners need discrete ones. Continuous actions are learned by other libraries"),
        ("gym/CartPol-v1", "The nearest are `gym/CartPole-v1`"),
    ],
)
def test_worlds_that_are_not_there_or_cannot_be_played_are_answered_with_a_way_out(world, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        plan(world, "sequential")


@pytest.mark.parametrize(
    ("world", "rung", "options", "said"),
    [
        ("cartpole", "torch", {"preset": "pqn"}, "`torch` cannot run this: PQN learns from many envs at once"),
        ("cartpole", "sequential", {"preset": "pqn"}, "Use `fused`."),
        ("cartpole", "torch", {"learner": {"precision": "bfloat16"}}, "the PyTorch twin computes in float32. Use `seq"),
        ("cartpole", "hybrid", {"learner": {"precision": "bfloat16"}}, "`hybrid` cannot run this"),
        ("tag", "torch", {"learner": {"precision": "bfloat16"}}, "the PyTorch twin computes in float32. Use `seq"),
        ("gym/CartPole-v1", "fused", {}, "Use `parallel`."),
        ("cartpole", "fused", {"preset": "rainbo"}, "no preset `rainbo`. Did you mean `rainbow`?"),
    ],
)
def test_rungs_say_what_they_cannot_run_and_which_can(world, rung, options, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        plan(world, rung, **options)


def test_what_is_just_right_is_accepted():
    for changes in [
        {"learner": {"memory": 40, "n_step": 3}},
        {"learner": {"target_update_period": 0, "tau": 0.005}},
        {"learner": {"clip": float("inf"), "hidden": []}},
        {"learner": {"munchausen": True, "head": "implicit", "double": False}},
        {"learner": {"steps_per_update": 24}, "steps": 2400},
        {"learner": {"precision": "bfloat16"}},
    ]:
        assert plan("cartpole", "parallel", **changes).config.ticks > 0


# ---- what is not right yet -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [2.0, -0.1, float("nan")])
@pytest.mark.parametrize("world", ["cartpole", "atari/pong"])
def test_epsilon_of_evaluations_has_to_be_a_probability(world, epsilon):
    with pytest.raises(UsageError, match=r"evaluate-epsilon.*\[0, 1\]"):
        plan(world, FRESH[world], evaluate_epsilon=epsilon)


def test_pqn_is_not_held_to_settings_of_a_memory_it_does_not_have():
    plan("cartpole", preset="pqn", world={"num_envs": 100}, pqn={"minibatches": 10}, steps=64_000)


def test_the_nearest_steps_per_update_may_be_a_divisor():
    with pytest.raises(UsageError, match=r": (2|4) is the nearest|2 or 4"):
        plan("cartpole", learner={"steps_per_update": 3})
