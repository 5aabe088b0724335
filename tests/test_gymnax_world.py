"""Copies of gymnax worlds: all keep the protocol, ends are told from limits, and the host sees the same games."""

import sys
from functools import cache

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_equal
from xladder.core.compiling import compiled
from xladder.core.keys import Stream, address, reset_keys, root, step_keys
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.worlds import gymnax_world
from xladder.worlds.envs import Step
from xladder.worlds.gymnax_world import GymnaxEnvs
from xladder.worlds.hosted import HostedEnvs
from xladder.worlds.names import GYMNAX

N, T = 2, 110  # long enough for worlds whose limit is 100


class BareEnvs(GymnaxEnvs):
    """The same, before observations are given the type that they are remembered in."""

    def _frame(self, observation):
        return observation.reshape(self.spec.shape) if observation.ndim else super()._frame(observation)


def play(envs, run, actions):
    """First frames, steps [T, N, …] and gymnax's clock after each, in one program."""
    state, frames = envs.reset(reset_keys(run, envs.num_envs))

    def body(state, inputs):
        tick, chosen = inputs
        state, step = envs.step(step_keys(run, tick, envs.num_envs), state, chosen)
        return state, (step, state.world.time)

    ticks = jnp.arange(actions.shape[0])
    _, (steps, clock) = jax.lax.scan(body, state, (ticks, actions))
    return frames, steps, clock


@cache
def played(name, seed=3):
    """Random games of a world, as NumPy arrays: first frames, steps and clock."""
    envs = BareEnvs(name, N)
    actions = np.random.default_rng(seed).integers(0, envs.spec.actions, (T, N), np.int32)
    # Another generator would do as well, and this one compiles sooner.
    run = jax.random.key(seed, impl="unsafe_rbg")
    with jax.numpy_dtype_promotion("strict"):
        return jax.device_get(jax.jit(play, static_argnums=0)(envs, run, actions))


# Worlds of each kind: those that end, those that only have a limit, and a picture. The others take long to compile.
SOON = {
    *("cartpole", "catch", "simplebandit", "discountingchain", "minatar/breakout"),
}


@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in GYMNAX]
)
def test_every_world_keeps_the_protocol(name):
    frames, steps, clock = played(name)
    shape, dtype, *_ = GymnaxEnvs(name, N).spec
    assert frames.shape == (N, *shape) and steps.frame.shape == (T, N, *shape)
    for seen in (frames, steps.frame):  # nothing is lost when they are remembered
        np.testing.assert_array_equal(seen.astype(dtype).astype(seen.dtype), seen)
        assert dtype != np.uint8 or set(np.unique(seen)) == {0, 1}
    for values, kind in zip(steps[1:], (np.float32, bool, bool, bool), strict=True):
        assert (values.shape, values.dtype) == ((T, N), kind)
    assert np.all(np.isfinite(steps.frame)) and np.all(np.isfinite(steps.reward))
    ended = steps.terminated | steps.truncated
    assert not np.any(steps.terminated & steps.truncated)
    assert not np.any(steps.is_first[0])
    np.testing.assert_array_equal(steps.is_first[1:], ended[:-1])
    assert not np.any(ended[steps.is_first]) and not np.any(steps.reward[steps.is_first])
    # gymnax counts a game's steps: they begin at 0 with its first frame, and every other step adds one.
    before = np.concatenate([np.zeros((1, N)), clock[:-1]])
    np.testing.assert_array_equal(clock, np.where(steps.is_first, 0, before + 1))


@pytest.mark.parametrize("name", GYMNAX)
def test_frames_have_the_type_they_are_said_to_have_and_states_keep_theirs(name):
    envs = GymnaxEnvs(name, N)
    keys = jax.eval_shape(lambda: reset_keys(root(0), N))
    state, frames = jax.eval_shape(envs.reset, keys)
    after, step = jax.eval_shape(envs.step, keys, state, jax.ShapeDtypeStruct((N,), jnp.int32))
    for seen in (frames, step.frame):
        assert (seen.shape, seen.dtype) == ((N, *envs.spec.shape), envs.spec.dtype)

    def types(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)

    assert types(state) == types(after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize(
    ("name", "terminated", "truncated"),
    [
        ("cartpole", True, False),  # random steps let it fall long before 500
        ("deepsea", True, False),  # the bottom and the limit are reached together
        ("catch", True, False),
        ("simplebandit", True, False),
        ("frozenlake", True, False),
        ("discountingchain", False, True),
        ("bernoullibandit", False, True),
        ("gaussianbandit", False, True),
    ],
)
def test_ends_are_terminations_and_limits_truncations(name, terminated, truncated):
    _, steps, _ = played(name)
    assert (steps.terminated.any(), steps.truncated.any()) == (terminated, truncated)
    if truncated:  # step 100 is the 99th from 0, and the same game is over for both copies
        np.testing.assert_array_equal(np.nonzero(steps.truncated.any(1))[0], [99])


def test_a_balanced_pole_is_cut_at_500_and_a_fallen_one_ends():
    """Copy 0 is balanced, copy 1 pushed to one side."""
    envs = GymnaxEnvs("cartpole", 2)

    def act(frames):
        balance = frames[0] @ jnp.array([0.1, 0.3, 3.0, 1.0]) > 0
        return jnp.array([balance, True]).astype(jnp.int32)

    def run(key):
        state, frames = envs.reset(reset_keys(key, 2))

        def body(carry, tick):
            state, step = envs.step(step_keys(key, tick, 2), carry[0], act(carry[1]))
            return (state, step.frame), step

        return jax.lax.scan(body, (state, frames), jnp.arange(502))[1]

    steps = jax.device_get(jax.jit(run)(root(0)))
    assert not steps.terminated[:, 0].any()
    np.testing.assert_array_equal(np.nonzero(steps.truncated[:, 0])[0], [499])
    np.testing.assert_array_equal(np.nonzero(steps.is_first[:, 0])[0], [500])
    np.testing.assert_array_equal(steps.reward[498:502, 0], [1, 1, 0, 1])
    assert steps.terminated[:, 1].sum() > 40 and not steps.truncated[:, 1].any()
    last = steps.frame[steps.terminated[:, 1], 1]
    assert np.all(np.abs(last[:, 2]) > np.deg2rad(12))  # the fallen pole is seen
    assert np.all(np.abs(steps.frame[steps.is_first[:, 1], 1]) <= 0.05)


@pytest.mark.slow
def test_the_first_frame_does_not_depend_on_the_ignored_action():
    envs = GymnaxEnvs("cartpole", N)
    state, _ = jax.jit(envs.reset)(reset_keys(root(1), N))
    state = state._replace(over=jnp.array([True, False]))
    keys = step_keys(root(1), 0, N)
    step = jax.jit(envs.step)
    (_, left), (_, right) = (step(keys, state, jnp.full((N,), action)) for action in (0, 1))
    np.testing.assert_array_equal(left.is_first, [True, False])
    np.testing.assert_array_equal(left.frame[0], right.frame[0])
    assert np.any(left.frame[1] != right.frame[1])


@pytest.mark.parametrize("name", ["cartpole", "catch"])
def test_gymnax_itself_answers_the_same(name):
    """Each step of ours against `environment.step`, which resets in the step that ends a game."""
    environment, params = gymnax.make(GYMNAX[name].id)
    envs = GymnaxEnvs(name, 1)
    actions = np.random.default_rng(0).integers(0, envs.spec.actions, T, np.int32)

    def run(key):
        state, _ = envs.reset(reset_keys(key, 1))

        def body(state, inputs):
            tick, action = inputs
            both = jax.random.fold_in(key, tick)
            world = jax.tree.map(lambda leaf: leaf[0], state.world)
            _, _, reward, terminated, truncated, info = environment.step(both, world, action, params)
            after, step = envs.step(jax.random.split(both)[:1], state, action[None])
            return after, (step, (info["final_observation"], reward, terminated, truncated))

        return jax.lax.scan(body, state, (jnp.arange(T), actions))[1]

    ours, theirs = jax.device_get(jax.jit(run)(root(0)))
    played_on = ~ours.is_first[:, 0]
    assert 0 < played_on.sum() < T
    for mine, their in zip(ours[:4], theirs, strict=True):
        # Each is compiled by itself, so the last bit may differ.
        np.testing.assert_allclose(
            mine[played_on, 0].reshape(their[played_on].shape), their[played_on], rtol=1e-6, atol=2e-7
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole", "frozenlake"])
def test_the_host_sees_the_games_of_a_fused_program_bit_for_bit(name):
    envs = GymnaxEnvs(name, N)
    actions = np.random.default_rng(0).integers(0, envs.spec.actions, (T, N), np.int32)
    frames, steps, _ = jax.device_get(jax.jit(lambda run: play(envs, run, actions))(root(3)))
    assert steps.is_first.any()
    host = HostedEnvs(GymnaxEnvs(name, N), 3, compiled)
    for _ in range(2):  # beginning anew begins the same
        np.testing.assert_array_equal(host.reset(), frames)
        answers = []
        for chosen in actions:
            host.send(chosen)
            answers.append(host.recv())
        assert all(isinstance(leaf, np.ndarray) for leaf in answers[0])
        assert_trees_equal(Step(*map(np.stack, zip(*answers, strict=True))), steps)
    host.close()
    host.close()
    np.testing.assert_array_equal(HostedEnvs(GymnaxEnvs(name, N), root(3), compiled).reset(), frames)
    if name == "cartpole":  # the lake always begins the same
        assert np.any(HostedEnvs(GymnaxEnvs(name, N), 4, compiled).reset() != frames)


def test_keys_are_addresses_of_step_and_copy():
    run = root(5)

    def numbers(keys):
        return np.asarray(jax.random.key_data(keys))

    for copy in range(3):
        expected = address(run, 7, copy, Stream.SPAWN)
        np.testing.assert_array_equal(numbers(step_keys(run, 7, 3))[copy], numbers(expected))
        expected = address(run, 0, copy, Stream.RESET)
        np.testing.assert_array_equal(numbers(reset_keys(run, 3))[copy], numbers(expected))


def test_equal_worlds_are_equal_whatever_they_are_called():
    assert GymnaxEnvs("CartPole-v1", 2) == GymnaxEnvs("cartpole", 2)
    assert hash(GymnaxEnvs("CartPole-v1", 2)) == hash(GymnaxEnvs("cartpole", 2))
    assert GymnaxEnvs("cartpole", 2) != GymnaxEnvs("cartpole", 3)
    with pytest.raises(UsageError, match="Did you mean `cartpole`"):
        GymnaxEnvs("cartpol", 2)


def test_without_gymnax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(UsageError, match=r"pip install .*\[gymnax\]'"):
        gymnax_world.load.__wrapped__("cartpole")


def test_gymnaxs_worlds_take_arguments_and_params():
    small = ("maze_size=5", "max_steps_in_episode=3", "reward=1.0")
    world = plan("metamaze", world={"kwargs": small}).config.world
    envs = world.inside(0)
    found = gymnax_world.load("metamaze", small)
    assert found.env.maze_size == 5 and (found.params.max_steps_in_episode, found.params.reward) == (3, 1.0)
    assert envs.spec == GymnaxEnvs("metamaze", 8).spec
    assert GymnaxEnvs("metamaze", 8, ("rf_size=5",)).spec.shape == (31,)
    with pytest.raises(UsageError, match=r"cannot be made with `--world.kwargs colour=3`.*Its params are max_steps"):
        plan("metamaze", world={"kwargs": ("colour=3",)})


class Lights:
    """As small as a world can be: see README.md."""

    def reset_env(self, key, params):
        lit = jax.random.randint(key, (), 0, 4)
        return jax.nn.one_hot(lit, 4), (lit, jnp.int32(0))

    def step_env(self, key, state, action, params):
        observation, (lit, _) = self.reset_env(key, params)
        return observation, (lit, state[1] + 1), jnp.float32(action == state[0]), state[1] == 7, {}


@pytest.mark.parametrize(
    ("given", "said"),
    [({"num_actions": 4}, None), ({}, "lacks `action_space`"), ({"num_actions": 0}, "has 0 as the number of actions")],
)
def test_a_world_may_say_only_how_many_actions_there_are(given, said):
    world = type("Lights", (Lights,), given)()
    if said is None:
        assert gymnax_world.load(plan(world, "fused").config.world.name).actions == 4
    else:
        with pytest.raises(UsageError, match=said):
            plan(world, "fused")
