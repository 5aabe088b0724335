"""Our worlds in other APIs: the APIs' own checkers pass, and the dynamics are those of training."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

import xladder
from tests.conftest import TINY
from xladder.apis import making
from xladder.apis.host_games import HostTurnGame
from xladder.apis.jax_games import TurnGame
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.multi_agent.presets import WORLDS
from xladder.worlds.gymnax_world import GymnaxEnvs
from xladder.worlds.hosted import HostedEnvs

SMALL = {"height": 6, "width": 6, "num_agents": 3, "radius": 1, "max_turns": 8, "spawn_prob": 0.2}
ALONE = {**SMALL, "num_agents": 1}


def hunt(api, **more):
    given = {"world": SMALL, **more}
    return xladder.make("treasurehunt", api, **given)


def draws_of(world, seed, turns):
    one, two = jax.random.split(jax.random.key(seed))
    return jax.tree.map(np.asarray, (world.draw_reset(one), world.draw_turns(two, turns)))


@pytest.mark.parametrize("observations", ["encoded", "codes"])
def test_the_parallel_environment_passes_pettingzoos_tests(observations):
    parallel_api_test(hunt("pettingzoo", observations=observations), 40)
    parallel_seed_test(lambda: hunt("pettingzoo", observations=observations), 10)


@pytest.mark.parametrize("observe", ["in_turn", "together"])
def test_the_aec_environment_passes_pettingzoos_tests(observe):
    api_test(hunt("pettingzoo-aec", world={**SMALL, "observe": observe}), 40)
    seed_test(lambda: hunt("pettingzoo-aec", world={**SMALL, "observe": observe}), 10)


def test_one_hunter_passes_gymnasiums_check_and_can_be_seen():
    env = hunt("gymnasium", world=ALONE, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env)
    env.reset(seed=0)
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.shape == (240, 240, 3)
    env.step(0)
    assert not np.array_equal(picture, env.render())
    assert hunt("pettingzoo").render() is None


@pytest.mark.slow
def test_a_parallel_epoch_is_the_epoch_of_training_in_which_agents_observe_together():
    """The same draws and actions as in JAX, turn by turn."""
    env = hunt("pettingzoo", observations="codes")
    settings = env._game.settings
    world, rng = settings.build(), np.random.default_rng(0)
    reset, turns = draws_of(world, 0, settings.max_turns)
    move_all, begin_turn = jax.jit(world.move_all), jax.jit(world.begin_turn)
    view = jax.jit(lambda state: jnp.stack([world.view(state, i) for i in range(world.num_agents)]))
    env.reset()
    seen, state = env._game.begin_with(reset, turns), world.reset(reset)
    seen = dict(zip(env.agents, seen, strict=True))
    rewarded = 0
    for turn in range(settings.max_turns):
        state = begin_turn(state, turns[turn])
        np.testing.assert_array_equal(np.stack(list(seen.values())), view(state))
        actions = rng.integers(0, 4, world.num_agents)
        state, events = move_all(state, jnp.asarray(actions))
        seen, rewards, ended, cut, _ = env.step(dict(zip(env.agents, actions, strict=True)))
        np.testing.assert_array_equal(list(rewards.values()), world.reward(events))
        assert not any(ended.values()) and all(over == (turn == settings.max_turns - 1) for over in cut.values())
        rewarded += bool(np.any(events))
    assert rewarded > 2 and not env.agents
    np.testing.assert_array_equal(np.stack(list(seen.values())), view(state))


def test_in_the_aec_environment_agents_see_the_moves_before_theirs():
    env = hunt("pettingzoo-aec", observations="codes")
    world = env._game.settings.on_host()
    reset, turns = draws_of(env._game.settings.build(), 1, 8)
    env.reset()
    env._game.begin_with(reset, turns)
    world.reset(reset)
    rng, earlier = np.random.default_rng(0), 0
    for turn in range(8):
        world.begin_turn(turns[turn])
        before = [world.view(i) for i in range(3)]
        for i, agent in enumerate(env.possible_agents):
            assert env.agent_selection == agent
            seen = env.last()[0]
            np.testing.assert_array_equal(seen, world.view(i))
            earlier += not np.array_equal(seen, before[i])
            action = int(rng.integers(4))
            event = world.move(i, action)
            env.step(action)
            assert env.rewards[agent] == world.reward(event)
    assert earlier, "no agent saw another's move, so nothing was tested"
    assert all(env.truncations.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["treasurehunt", *(pytest.param(n, marks=pytest.mark.slow) for n in list(WORLDS)[1:])])
def test_the_jax_environment_and_the_one_on_the_host_are_the_same_world(name):
    config = TINY if name == "treasurehunt" else xladder.plan(name, world={"num_agents": 2, "max_turns": 8}).config
    settings = making._world_of(config, "jaxmarl", {})[0]
    game, host = TurnGame(settings), HostTurnGame(settings)
    world, step = settings.build(), jax.jit(game.step)
    keys = jax.random.split(jax.random.key(3), settings.max_turns)
    key = jax.random.key(2)
    first = jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)  # streams RESET and SPAWN
    turns = [jax.device_get(world.draw_turns(one, 1)) for one in (first[1], *keys[:-1])]
    every = jax.tree.map(lambda *leaves: np.concatenate(leaves), *turns)
    seen = host.begin_with(jax.device_get(world.draw_reset(first[0])), every)
    state, theirs = game.reset(key)
    np.testing.assert_array_equal(seen, theirs)
    for t, one in enumerate(keys):
        actions = np.array([t, t + 1]) % world.num_actions
        ours = host.step(list(actions))
        state, made = step(one, state, jnp.asarray(actions))
        for a, b in zip(ours, made, strict=True):
            np.testing.assert_array_equal(a, b)
    assert ours.truncated.all()
    np.testing.assert_array_equal(host.picture(), game.picture(state))


def test_a_cart_is_stepped_as_in_training():
    env = xladder.make("cartpole", "gymnasium", render_mode="rgb_array")
    envs = HostedEnvs(GymnaxEnvs("cartpole", 1), 7, compiled)
    np.testing.assert_array_equal(env._game.begin_with(7), envs.reset())
    for t in range(30):
        envs.send(np.array([int(t > 2)]))
        ours, theirs = env.step(int(t > 2)), envs.recv()
        np.testing.assert_array_equal(ours[0], theirs.frame[0])
        assert ours[1:4] == (theirs.reward[0], theirs.terminated[0], theirs.truncated[0])
        if ours[2]:
            break
    else:
        raise AssertionError("the pole never fell")
    assert env.render().shape[2] == 3
    again = [env.reset(seed=3)[0] for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert not np.array_equal(again[0], env.reset()[0])


@pytest.mark.slow
def test_ids_of_gymnasium():
    gymnasium.register_envs(xladder.gym)
    env = gymnasium.make("xladder/Treasurehunt-v0", world={"max_turns": 3}, render_mode="rgb_array")
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    assert gymnasium.spec("xladder/MinAtar-Breakout-v0").kwargs == {"workload": "minatar/breakout"}
    code = "import gymnasium; print(gymnasium.make('xladder.gym:xladder/Treasurehunt-v0').observation_space.shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(150,)"


@pytest.mark.parametrize(
    ("workload", "api", "settings", "sentence"),
    [
        ("treasurehunt", "zoo", {}, "There is no API `zoo`: it is called `pettingzoo` here."),
        (
            "treasurehunt",
            "envpool",
            {},
            "There is no API `envpool`. There are: gymnasium, gymnax, jaxmarl, pettingzoo,",
        ),
        ("tag", "gymnasium", {}, "`tag` has 5 agents, and `gymnasium` is for one: use `pettingzoo`."),
        ("treasurehunt", "gymnasium", {}, "has 5 agents, and `gymnasium` is for one: set `world={'num_agents': 1}`"),
        ("treasurehunt", "pettingzoo", {"world": {"observe": "in_turn"}}, "use `pettingzoo-aec`"),
        ("treasurehunt", "pettingzoo", {"world": {"num_agents": 70}}, "has only 64 cells inside its wall"),
        ("treasurehunt", "pettingzoo", {"observations": "rgb"}, "has to be encoded or codes"),
        ("treasurehunt", "pettingzoo", {"render_mode": "human"}, "has to be rgb_array or None"),
        ("treasurehunt", "jaxmarl", {"render_mode": "rgb_array"}, "call `render(state)`"),
        ("treasurehunt", "pettingzoo", {"preset": "quick"}, "There is no preset `quick`"),
        ("hypergrid", "gymnasium", {}, "samples its objects in proportion to their reward"),
        ("gym/CartPole-v1", "gymnasium", {}, "use `gymnasium.make`"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(workload, api, settings, sentence):
    with pytest.raises(UsageError) as caught:
        xladder.make(workload, api, **settings)
    assert sentence in str(caught.value)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(making, "is_installed", lambda package: False)
    with pytest.raises(UsageError, match=r"`pettingzoo` is not installed.*\[zoo\]"):
        hunt("pettingzoo-aec")


def test_wrong_actions_are_refused_in_a_sentence():
    env = hunt("gymnasium", world=ALONE)
    env.reset(seed=0)
    with pytest.raises(UsageError, match="action is -1, but actions lie in 0 … 3"):
        env.step(-1)
    several = hunt("pettingzoo")
    several.reset(seed=0)
    with pytest.raises(UsageError, match="none for agent_1"):
        several.step({"agent_0": 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", list(xladder.gym.ids()))
def test_every_id_passes_gymnasiums_check(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(gymnasium.make(name, render_mode="rgb_array").unwrapped)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_every_world_with_turns_passes_pettingzoos_tests_and_can_be_seen(name):
    shorter = {"world": {"max_turns": 6}}
    env = xladder.make(name, "pettingzoo", render_mode="rgb_array", **shorter)
    parallel_api_test(env, 20)
    env.reset(seed=0)
    assert env.render().ndim == 3
    parallel_seed_test(lambda: xladder.make(name, "pettingzoo", **shorter), 10)
    api_test(xladder.make(name, "pettingzoo-aec", **shorter), 20)
    seed_test(lambda: xladder.make(name, "pettingzoo-aec", **shorter), 10)


@pytest.mark.slow
def test_a_world_of_jaxmarl_passes_pettingzoos_tests():
    """Masks, and agents that end before others, go through as well."""
    parallel_api_test(xladder.make("jaxmarl/MPE_simple_spread_v3", "pettingzoo"), 40)
    race = xladder.make("marl/tests.own_worlds:Race", "pettingzoo", imports=["tests.own_worlds"])
    parallel_api_test(race, 60)
    assert set(race.observation_space("hare").spaces) == {"observation", "action_mask"}


@pytest.mark.slow
def test_a_loop_in_jaxmarls_style_learns_on_our_world():
    """REINFORCE with a linear policy that all agents share: envs under `vmap`, steps under `scan`, in LogWrapper."""
    from jaxmarl.wrappers.baselines import LogWrapper

    items = {"item_names": ("gem",), "item_values": (1.0,), "wall_value": 0.0}
    env = LogWrapper(hunt("jaxmarl", world={**SMALL, **items}))
    envs, turns = 64, SMALL["max_turns"]
    inputs, actions = env.observation_space("agent_0").shape[0], env.action_space("agent_0").n

    def rollout(weights, key):
        def step(carry, key):
            observations, state = carry
            stacked = jnp.stack([observations[agent] for agent in env.agents])  # [A, E, D]
            logits = stacked @ weights
            chosen = jax.random.categorical(key, logits)
            taken = dict(zip(env.agents, chosen, strict=True))
            observations, state, rewards, _, info = jax.vmap(env.step)(jax.random.split(key, envs), state, taken)
            log_probs = jax.nn.log_softmax(logits)
            picked = jnp.take_along_axis(log_probs, chosen[..., None], axis=-1)[..., 0]
            return (observations, state), (picked, jnp.stack(list(rewards.values())), info["returned_episode"])

        begun = jax.vmap(env.reset)(jax.random.split(key, envs))
        return jax.lax.scan(step, begun, jax.random.split(key, turns))[1]

    def loss(weights, key):
        picked, rewards, ended = rollout(weights, key)
        to_go = jnp.flip(jnp.cumsum(jnp.flip(rewards, 0), 0), 0)
        advantages = to_go - to_go.mean(axis=(1, 2), keepdims=True)
        return -(picked * jax.lax.stop_gradient(advantages)).mean(), (rewards.sum(0).mean(), ended)

    @jax.jit
    def train(weights, keys):
        def update(weights, key):
            gradients, (score, ended) = jax.grad(loss, has_aux=True)(weights, key)
            return weights - 2.0 * gradients, (score, ended)

        return jax.lax.scan(update, weights, keys)

    _, (scores, ended) = train(jnp.zeros((inputs, actions)), jax.random.split(jax.random.key(0), 150))
    assert ended[:, -1].all() and not ended[:, :-1].any()
    assert scores[-10:].mean() > 1.5 * scores[:10].mean()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "world"), [("cartpole", {}), ("treasurehunt", ALONE)])
def test_a_rollout_in_gymnaxs_style(name, world):
    env = xladder.make(name, "gymnax", world=world)
    params, envs = env.default_params, 16

    def step(state, key):
        actions = jax.random.randint(key, (envs,), 0, env.action_space(params).n)
        made = jax.vmap(env.step, in_axes=(0, 0, 0, None))(jax.random.split(key, envs), state, actions, params)
        observations, state, rewards, terminated, truncated, _ = made
        return state, (observations, rewards, terminated, truncated)

    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(jax.random.key(0), envs), params)
    state, (seen, rewards, terminated, truncated) = jax.jit(lambda s, k: jax.lax.scan(step, s, k))(
        state, jax.random.split(jax.random.key(1), 100)
    )
    assert seen.shape == (100, envs, *env.observation_space(params).shape)
    assert bool(env.observation_space(params).contains(seen))
    if name == "cartpole":
        assert terminated.sum() > envs and not truncated.any() and (rewards == 1).all()
    else:
        assert not terminated.any() and truncated.sum() == envs * (100 // SMALL["max_turns"])
    assert env.render(jax.tree.map(lambda leaf: leaf[0], state)).dtype == np.uint8


@pytest.mark.slow
def test_our_worlds_train_through_the_apis():
    """There and back: an environment that `make` gives is a world that `train` takes."""
    shorter = {"steps": 600, "evaluate_episodes": 0}
    for api, rung in [("jaxmarl", "fused"), ("pettingzoo", "parallel")]:
        env = hunt(api)
        result = xladder.train(env if api == "jaxmarl" else (lambda: hunt("pettingzoo")), rung, **shorter)
        assert result.metrics["return"].shape[0] == 1 and "return_agent_2" in result.metrics
