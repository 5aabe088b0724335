"""Observations of several parts: the torso `by_key` and its twin, its choice by default, and pictures with masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xladder
from xladder import user_code
from xladder.errors import UsageError
from xladder.families.value import acting, own_torsos, parity, torso_twins_torch
from xladder.families.value import presets as named
from xladder.families.value.gymnax_presets import LEAST_MEMORY
from xladder.families.value.learner_config import LearnerConfig
from xladder.families.value.torch_backend import make_learner, make_net
from xladder.learners.value_torch import TorchLearner
from xladder.nets.fields import Parts, unflatten
from xladder.worlds.envs import EnvSpec, available
from xladder.worlds.gym_host import GymEnvs
from xladder.worlds.host_calls import random_actions
from xladder.worlds.zoo_host import ZooEnvs

SMALL = {"width": 8, "batch_size": 4, "memory": 200, "learning_starts": 16, "steps_per_update": 4}
TINY = {"steps": 48, "evaluate_episodes": 0, "learner": SMALL, "world": {"num_envs": 2}}
CAMERA, FILMED = "gym/tests.gym_worlds:Camera", "jax/tests.own_worlds:Filmed"
RACE, DUEL = "marl/tests.own_worlds:FilmedRace", "zoo/tests.own_worlds:FilmedDuel"
# Two pictures of one size, a grey one, a large one, a number, flags and a matrix.
FIELDS = (
    ("left.eye", (6, 6, 2), "uint8"),
    ("right/eye", (6, 6, 2), "uint8"),
    ("grey", (36, 40), "float32"),
    ("large", (37, 36, 3), "uint8"),
    ("time", (), "int32"),
    ("flags", (5,), "bool"),
    ("matrix", (3, 2), "float32"),
)
TREE = EnvSpec((2 * 72 + 1440 + 3996 + 1 + 5 + 6,), np.dtype(np.float32), 3, fields=FIELDS)


@pytest.fixture(autouse=True)
def allowed():
    for module in ("tests.gym_worlds", "tests.own_worlds"):
        user_code.allow(module)


@pytest.mark.slow
def test_parts_of_all_kinds_are_the_same_in_both():
    config = LearnerConfig(**{**SMALL, "torso": "by_key"})
    features = own_torsos.check(config.torso, TREE, 2, "somewhere")
    assert features == 2 * 16 * 4 * 4 + 64 * 1 * 1 + 64 * 1 * 1 + 128
    learner = acting.build(config, TREE, 2)
    rng = np.random.default_rng(0)
    states = np.concatenate(
        [rng.integers(0, 2 if dtype == "bool" else 200, (3, 2, int(np.prod(shape)))) for _, shape, dtype in FIELDS], -1
    ).astype(np.float32)
    params = jax.jit(learner.net.init)(jax.random.key(0), states)["params"]
    assert params["torso"]["numbers"]["hidden_0"]["kernel"].shape == (2 * (1 + 5 + 6), 128)
    values = jax.jit(lambda params, states: learner.values(params, states, None, None))(params, states)
    twin = torso_twins_torch.make_twin(config.torso, TREE, 2)
    names = torso_twins_torch.torso_names(config.torso, TREE, 2)
    other = TorchLearner(config, make_net(config, twin, TREE, 2), torso_names=names)
    other.load(jax.tree.map(np.asarray, params))
    np.testing.assert_allclose(values, other.values(states), rtol=1e-5, atol=1e-5)


def test_parts_know_their_shapes_through_transformations():
    fields = (("b", (2, 2), "float32"), ("a", (), "int32"))
    parts = jax.vmap(lambda states: jax.tree.map(lambda x: x + 1, unflatten(states, fields)))(jnp.zeros((3, 4, 5)))
    assert isinstance(parts, Parts) and list(parts) == ["b", "a"] and parts.shapes == {"b": (2, 2), "a": ()}
    assert parts["b"].shape == (3, 4, 2, 2) and parts["a"].shape == (3, 4)


def test_a_picture_among_other_parts_is_seen_by_convolutions_unless_told_otherwise():
    for world in (CAMERA, FILMED):
        found = named.presets(world)
        assert {found[name].learner.torso for name in ("default", "rainbow", "r2d2")} == {"by_key"}
    assert named.presets(f"{CAMERA}")["default"].learner.memory == 100_000
    assert named.presets("jax/tests.own_worlds:Corridor")["default"].learner.torso == "mlp"
    assert xladder.plan(CAMERA, learner={"torso": "mlp"}).config.learner.torso == "mlp"
    with pytest.raises(UsageError, match=r"`by_key` torso cannot take the frames of `cartpole` \(4\): use `.* mlp`"):
        xladder.plan("cartpole", learner={"torso": "by_key"})


def test_a_large_picture_has_a_wide_head_and_a_small_memory():
    """Its numbers are kept as float32."""
    learner = named.presets("gym/tests.gym_worlds:Driving")["default"].learner
    assert (learner.torso, learner.width, learner.memory) == ("by_key", 512, LEAST_MEMORY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "rung"),
    [(CAMERA, rung) for rung in ("torch", "compiled", "hybrid", "sequential", "parallel")]
    + [(FILMED, rung) for rung in ("torch", "sequential", "parallel", "fused", "mesh")],
)
def test_it_trains_on_every_rung(world, rung):
    result = xladder.train(world, rung, **TINY, **({"mesh": "data=2"} if rung == "mesh" else {}))
    assert np.isfinite(result.metrics["loss"][0, -1])


@pytest.mark.slow
def test_every_level_of_parity_passes():
    levels = parity.levels(xladder.plan(CAMERA, **TINY).config, 3)
    assert all(level.passed for level in levels), levels


def test_parameters_cross_to_pytorch_and_back_bit_by_bit():
    config = xladder.plan(FILMED, **TINY).config
    params = jax.device_get(jax.jit(acting.ActingProgram(config).init_params)(jax.random.key(0)))
    other = make_learner(config)
    other.load(params)
    returned = other.to_jax(other.net.state_dict())
    assert jax.tree.structure(returned) == jax.tree.structure(params)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(returned), strict=True))


def test_bounds_scale_parts_that_were_whole_numbers_too():
    plain, scaled = GymEnvs(CAMERA, 1, 0), GymEnvs(CAMERA, 1, 0, scaled=True)
    assert [dtype for *_, dtype in plain.spec.fields] == ["uint8", "float32", "float32"]
    assert [dtype for *_, dtype in scaled.spec.fields] == ["float32"] * 3
    camera = np.asarray(unflatten(scaled.reset(), scaled.spec.fields)["camera"])
    np.testing.assert_allclose(np.unique(camera), [-1, 1])
    np.testing.assert_array_equal(np.unique(unflatten(plain.reset(), plain.spec.fields)["camera"]), [0, 255])


# ---- several agents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tree", "tells"), [(False, True), (True, True), (False, False), (True, False)])
def test_agents_with_masks_or_different_actions_keep_their_pictures(tree, tells):
    envs = ZooEnvs(DUEL, 2, 0, kwargs=(f"tree={tree}", f"tells={tells}"))
    spec = envs.spec
    assert spec.masked and spec.seen == ((5 * 5 * 3 + 2,) if tree else (5, 5, 3))
    assert [name for name, *_ in spec.fields] == (["camera", "own"] if tree else [])
    assert (spec.dtype, spec.max_value) == ((np.float32, 1) if tree else (np.uint8, 255))
    frames = envs.reset()
    shown = available(spec, frames)[:, 0]
    np.testing.assert_array_equal(shown, [[not tells, True, True], [not tells, True, False]])
    envs.send(random_actions(spec, frames, np.random.default_rng(0)))
    seen = envs.recv().frame[..., :-3]
    assert (seen[0, 0, ..., : None if not tree else 75] == 1).all()
    envs.close()


@pytest.mark.parametrize("world", [RACE, DUEL])
def test_presets_of_several_agents_follow_what_they_see(world):
    assert named.presets(world)["default"].learner.torso == "minatar"
    config = xladder.plan(world, world={"kwargs": {"tree": True}}, learner={"torso": "by_key"}).config
    assert config.world.spec().masked and config.world.spec().fields


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "rung", "changes"),
    [
        *((DUEL, rung, {}) for rung in ("torch", "sequential", "parallel")),
        *((RACE, rung, {}) for rung in ("torch", "sequential", "fused")),
        (RACE, "fused", {"shared": True}),
        (RACE, "fused", {"team": True}),
    ],
)
@pytest.mark.parametrize("tree", [False, True])
def test_several_agents_train_on_pictures_with_masks(world, rung, changes, tree):
    settings = {"num_envs": 2, "kwargs": {"tree": tree}, **changes}
    learner = SMALL | {"torso": "by_key" if tree else "minatar"}
    result = xladder.train(world, rung, **TINY | {"world": settings, "learner": learner})
    assert np.isfinite(result.metrics["loss"][..., -1]).all()


def test_an_agents_number_is_a_part_like_any_other():
    world = {"kwargs": {"tree": True}, "shared": True}
    spec = xladder.plan(RACE, world=world, learner={"torso": "by_key"}).config.world.spec()
    assert [(name, shape) for name, shape, _ in spec.fields] == [("agent_", (2,)), ("agent", (4, 4, 2)), ("time", ())]
    assert spec.seen == (2 + 32 + 1,)
