"""Worlds with actions that are not always available, and with absent agents: whatever learns or acts in them."""

import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

import xladder
from tests import own_worlds
from tests.in_process import InProcess
from xladder import user_code
from xladder.core.compiling import compiled
from xladder.distributed.actor import Actor
from xladder.families.value import pqn
from xladder.families.value.program import Program
from xladder.rungs import actors, sequential
from xladder.worlds.envs import available

RAILED, PICTURE, RACE = (f"{kind}/tests.own_worlds:{name}" for kind, name in (
    ("jax", "Railed"), ("jax", "RailedPicture"), ("marl", "Race"),
))  # fmt: skip
SMALL = {"batch_size": 8, "learning_starts": 16, "memory": 256, "hidden": (8,), "width": 8, "steps_per_update": 4}
ALWAYS = {"epsilon": 1.0, "epsilon_end": 1.0}
WORLDS = [(RAILED, {}), (PICTURE, {}), (RACE, {}), (RACE, {"shared": True})]


@pytest.fixture(autouse=True)
def allowed():
    user_code.allow("tests.own_worlds")


def planned(workload, preset="default", rung="fused", learner=(), **fields):
    torso = {"torso": "minatar"} if workload == PICTURE else {}
    world = {"num_envs": 4, **fields.pop("world", {})}
    given = {"learner": {**torso, **dict(learner)}, "world": world, "steps": 4096, "evaluate_episodes": 0, **fields}
    return xladder.plan(workload, rung, preset=preset, **given).config


def assert_possible(spec, frames, actions, idle):
    """Actions are whole numbers, those that were available, and more than one of them."""
    assert np.issubdtype(actions.dtype, np.integer)
    allowed = np.take_along_axis(np.asarray(available(spec, frames)), actions[..., None].astype(int), -1)[..., 0]
    assert allowed[~idle].all() and len(np.unique(actions[~idle])) > 1


@pytest.mark.parametrize(("workload", "world"), WORLDS)
def test_pqn_explores_with_available_actions_and_learns_nothing_from_absent_agents(workload, world):
    config = planned(workload, "pqn", learner={"hidden": (8,), "width": 8, **ALWAYS}, world=world, pqn={"rollout": 32})
    program = pqn.Program.for_platform(config, "cpu")
    runs = jax.tree.map(lambda x: x[None], jax.jit(program.init)(np.int32(0)))
    rollout = jax.device_get(jax.jit(program.rollout_only)(program.init_counters(), runs))
    newest = rollout.states[..., -1, *(slice(None),) * len(program.spec.shape)]
    assert_possible(program.spec, newest, rollout.actions, rollout.idle)
    absent = rollout.terminated & rollout.truncated
    assert absent.any() == (workload == RACE) and rollout.idle[absent].all()
    for row in range(len(rollout.idle)):
        one = jax.tree.map(lambda x, row=row: x[row], rollout)
        weights = program.pqn.prepare(program.hyperparams(), one).weights
        np.testing.assert_array_equal(weights, ~one.idle.ravel())


@pytest.mark.parametrize(("workload", "world"), WORLDS)
def test_replay_memories_hold_available_actions(workload, world):
    config = planned(workload, learner={**SMALL, **ALWAYS}, world=world)
    program = Program.for_platform(config, "cpu")
    counters, run = program.init_counters(), jax.jit(program.init)(np.int32(0))
    runs, tick = jax.tree.map(lambda x: x[None], run), jax.jit(program.tick)
    for _ in range(24):
        counters, runs, _ = tick(counters, runs)
    memory = jax.device_get(program.as_rows(runs).memory)
    written = int(counters.cursor.size)
    frames, actions, ends, cuts = (
        x[..., :written, *(slice(None),) * (x.ndim - 3)]
        for x in (memory.frames, memory.actions, memory.terminated, memory.truncated)
    )
    # The step after the last one of an episode, and those of an absent agent, ignore their action.
    over = ends | cuts
    idle = np.concatenate([np.zeros_like(over[..., :1]), over[..., :-1]], -1) | (ends & cuts)
    assert_possible(program.spec, frames, actions, idle)


def test_actors_explore_with_available_actions():
    config = planned(RAILED, rung="actors", learner={**SMALL, **ALWAYS})
    actor = Actor(config, 0, 0, 4, compiled)
    params = Program(config).fresh_params(np.int32(0))
    rows, _ = actor.rollout(params, 1.0, 0, 30)
    over = rows.terminated | rows.truncated
    idle = np.concatenate([np.zeros_like(over[:, :1]), over[:, :-1]], 1)
    assert_possible(Program(config).spec, rows.frames, rows.actions, idle)


@pytest.mark.slow
def test_in_lock_step_actors_play_as_sequential_does():
    config = planned(RAILED, rung="actors", learner={**SMALL, "epsilon": 0.5, "epsilon_end": 0.5})
    cpu = jax.devices("cpu")[0]
    run = actors.start(config, [3], cpu, engine=InProcess(), actors=2, shards=1, lock_step=True)
    found, expected = run.advance(24), sequential.start(config, [3], cpu).advance(24)
    assert np.isfinite(expected["loss"]).any() and expected["episodes"].sum() > 0
    for name in ("returns", "length", "episodes", "loss"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("workload", [RAILED, PICTURE])
def test_in_gymnasiums_api_the_mask_is_in_info(workload):
    env = xladder.make(workload, "gymnasium")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env, skip_render_check=True)
    seen, info = env.reset(seed=0)
    for _ in range(30):
        assert env.observation_space.contains(seen) and info["action_mask"].shape == (2,)
        assert info["action_mask"][1] == 1
        seen, _, ended, cut, info = env.step(env.action_space.sample(info["action_mask"]))
        if ended or cut:
            seen, info = env.reset()
    assert isinstance(env, gymnasium.Env)


@pytest.mark.parametrize("workload", [RAILED, PICTURE, RACE])
def test_in_pettingzoos_api_observation_and_mask_fit_their_spaces(workload):
    env = xladder.make(workload, "pettingzoo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parallel_api_test(env, 40)
    seen, _ = env.reset(seed=0)
    for agent in env.agents:
        assert env.observation_space(agent).contains(seen[agent])


@pytest.mark.parametrize(("workload", "shape"), [(RAILED, (7,)), (PICTURE, (4, 4, 1))])
def test_in_jax_apis_observations_have_no_mask(workload, shape):
    key = jax.random.key(0)
    one = xladder.make(workload, "gymnax")
    seen, state = one.reset_env(key, None)
    assert seen.shape == one.observation_space().shape == shape
    first = np.asarray(one.get_avail_actions(state))
    several = xladder.make(workload, "jaxmarl")
    (agent,) = several.agents
    seen, state = several.reset(key)
    assert seen[agent].shape == several.observation_space(agent).shape == shape
    assert several.get_avail_actions(state)[agent].shape == first.shape == (2,) and first[1]
    allowed = [np.asarray(several.get_avail_actions(several.reset(jax.random.key(k))[1])[agent]) for k in range(8)]
    assert np.all(allowed)  # at the start nobody stands at the hole


def test_a_world_made_with_gymnaxs_api_can_be_trained_again():
    world = xladder.make(RAILED, "gymnax")
    state = world.reset_env(jax.random.key(0), None)[1]
    places = []
    for _ in range(2):  # to the left, until one could fall
        places.append(np.asarray(world.get_avail_actions(state)))
        _, state, *_ = world.step_env(jax.random.key(1), state, 0, None)
    assert not np.asarray(world.get_avail_actions(state))[0] or not places[-1][0]
    assert own_worlds.Railed.cells == 6
