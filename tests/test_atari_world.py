"""Copies of Atari games: what ends a game, what only costs a life, and the same games on the host and inside XLA."""

import os
import sys
from itertools import pairwise
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_equal
from xladder.errors import UsageError
from xladder.families.value.stepping import Stepper
from xladder.worlds.atari import AtariState, AtariXla
from xladder.worlds.atari_host import (
    AtariEnvs,
    action_names,
    frames_before,
    minimal_actions,
    open_emulator,
    play_rgb,
    screen_size,
)
from xladder.worlds.envs import Step, env_seeds

FIRE = 1


def random_actions(steps, num_envs, actions=4, seed=0):
    return np.random.default_rng(seed).integers(0, actions, (steps, num_envs), np.int32)


def play(envs, actions):
    """First frames, and the answers to actions [T, N] as one `Step` of arrays [T, N, …]."""
    frames, answers = envs.reset(), []
    for chosen in actions:
        envs.send(chosen)
        answers.append(envs.recv())
    return frames, Step(*map(np.stack, zip(*answers, strict=True)))


def played(game, num_envs, seed, actions, **options):
    envs = AtariEnvs(game, num_envs, seed, num_threads=options.pop("num_threads", 1), **options)
    try:
        return play(envs, actions)
    finally:
        envs.close()


def lost_lives(steps, seed=0):
    """Breakout with an idle paddle, which loses a ball in about 25 steps: with and without lives that count."""
    actions = np.full((steps, 1), FIRE)
    return (played("breakout", 1, seed, actions, life_loss=life_loss)[1] for life_loss in (True, False))


def test_frames_and_answers_have_their_shapes_and_types():
    envs = AtariEnvs("atari/Breakout", 2, 0, num_threads=1)
    assert envs.spec[:4] == ((84, 84), np.uint8, 4, 255)
    frames, steps = play(envs, random_actions(3, 2))
    envs.close()
    assert (frames.shape, frames.dtype) == ((2, 84, 84), np.uint8)
    assert (steps.frame.shape, steps.frame.dtype) == ((3, 2, 84, 84), np.uint8)
    for values, kind in zip(steps[1:], (np.float32, bool, bool, bool), strict=True):
        assert (values.shape, values.dtype) == ((3, 2), kind)


def test_a_life_lost_is_terminal_while_the_game_goes_on():
    with_lives, without = lost_lives(210)
    assert with_lives.terminated.sum() >= 5
    # The games are the same: what counts as an end is all that differs.
    np.testing.assert_array_equal(with_lives.frame, without.frame)
    np.testing.assert_array_equal(with_lives.is_first, without.is_first)
    (over,) = np.nonzero(without.terminated[:, 0])
    assert len(over) == 1 and with_lives.terminated[over[0], 0]
    assert with_lives.terminated[: over[0], 0].sum() == 4  # of five lives
    np.testing.assert_array_equal(np.nonzero(with_lives.is_first[:, 0])[0], over + 1)
    assert not with_lives.truncated.any()


def test_the_step_after_a_game_ignores_its_action():
    actions = np.full((210, 1), FIRE)
    _, steps = played("breakout", 1, 0, actions)
    (first,) = np.nonzero(steps.is_first[:, 0])
    other = actions.copy()
    other[first] = 3
    assert_trees_equal(played("breakout", 1, 0, other)[1], steps)
    assert not steps.reward[first].any() and not steps.terminated[first].any()
    other[first + 1] = 3
    assert np.any(played("breakout", 1, 0, other)[1].frame != steps.frame)


IDLE = np.zeros(1, np.int32)
FIRES = {"life_loss": True, "fire_after_life": True, "num_threads": 1}


def idle(envs, steps):
    """What is recorded when the policy does nothing in Breakout, where a ball has to be served with FIRE."""
    stepper, made = Stepper(envs, 1), []
    for _ in range(steps):
        stepper.send([IDLE])
        made.append(stepper.recv())
    return [(int(m.actions[0]), bool(m.step.terminated[0]), bool(m.step.is_first[0])) for m in made]


def test_fire_is_pressed_after_a_lost_life_and_recorded_as_what_was_done():
    envs = AtariEnvs("breakout", 1, 0, **FIRES)
    made = idle(envs, 250)
    lost = [after for (_, ended, _), after in pairwise(made) if ended and not after[2]]
    assert len(lost) >= 4 and all(action == FIRE for action, _, _ in lost)
    assert sum(action == FIRE and not is_first for action, _, is_first in made) == len(lost)  # and nowhere else
    assert any(is_first for _, _, is_first in made)  # the game comes to its end, all lives being played
    envs.close()
    without = AtariEnvs("breakout", 1, 0, **FIRES | {"fire_after_life": False})
    assert without.forced is None
    assert not any(action or is_first for action, _, is_first in idle(without, 250))  # it waits for ever
    without.close()
    freeway = AtariEnvs("freeway", 1, 0, **FIRES)  # it has no such button
    assert freeway.forced is None
    freeway.close()


@pytest.mark.slow
def test_a_resumed_game_still_presses_fire_and_a_program_does_too():
    envs, other = (AtariEnvs("breakout", 1, 0, **FIRES) for _ in range(2))
    stepper = Stepper(envs, 1)
    while not (envs.forced >= 0).any():
        stepper.send([IDLE])
        stepper.recv()
    other.take_state(envs.state())
    assert other.forced.tolist() == envs.forced.tolist() == [FIRE]
    inside, steps = AtariXla("breakout", 1, 0, **FIRES), int(envs.place().steps[0])

    def step(state, _):
        return inside.step(None, state, inside.force(state, jnp.asarray(IDLE)))

    state, answers = jax.jit(lambda state: jax.lax.scan(step, state, None, steps))(inside.reset(None)[0])
    assert bool(state.lost[0]) and bool(answers.terminated[-1, 0])
    assert inside.force(state, jnp.asarray(IDLE)).tolist() == [FIRE]
    for one in (envs, other, inside):
        one.close()


def test_rewards_are_as_the_game_gives_them():
    _, steps = played("space_invaders", 2, 0, random_actions(150, 2, 6))
    assert steps.reward.max() >= 5 and set(np.unique(steps.reward % 5)) == {0}


@pytest.mark.parametrize("life_loss", [False, True])
def test_a_game_is_cut_after_its_frames(life_loss):
    """200 frames are 50 steps; the frames in which nothing is done before are not counted."""
    _, steps = played("pong", 2, 0, random_actions(103, 2, 6), cap_frames=200, life_loss=life_loss)
    np.testing.assert_array_equal(np.nonzero(steps.truncated.all(1))[0], [49, 100])
    np.testing.assert_array_equal(np.nonzero(steps.is_first.all(1))[0], [50, 101])
    assert steps.truncated.sum() == steps.is_first.sum() == 4 and not steps.terminated.any()


def test_an_end_at_the_limit_is_an_end():
    class Emulator:
        """Says that every step is an end and a limit."""

        def answer(self, *given):
            yes, zero = np.ones(1, bool), np.zeros(1, np.int32)
            info = {"frame_number": zero, "episode_frame_number": zero, "lives": zero}
            return np.zeros((1, 1, 84, 84), np.uint8), zero, yes, yes, info

    host, inside = AtariEnvs("pong", 1, 0), AtariXla("pong", 1, 0)
    host.reset()
    host.send(np.zeros(1, int))
    host.recv()
    host._emulator = SimpleNamespace(recv=Emulator().answer)
    inside._step = lambda handle, actions: (handle, Emulator().answer())
    nothing = np.zeros(1, np.int32)
    state = AtariState(np.zeros(8, np.uint8), nothing, nothing, np.zeros(1, bool))
    _, step = inside.step(None, state, nothing)
    for answer in (host.recv(), step):
        assert answer.terminated.all() and not answer.truncated.any()


@pytest.mark.slow
def test_games_begin_with_fewer_frames_of_nothing_than_asked_for():
    """Frames, as in the papers, and not steps."""
    emulator = open_emulator("pong", 64, noops=6, fire=False)
    begun = emulator.reset(seed=np.arange(64))[1]["episode_frame_number"]
    assert set(begun) == set(range(6))


def test_a_short_game_is_known_to_be_over_where_its_frame_number_does_not_fall():
    """A game of one step is shorter than what may precede the next."""
    _, steps = played("pong", 4, 0, random_actions(8, 4, 6), cap_frames=4)
    np.testing.assert_array_equal(steps.truncated, np.tile([[True], [False]], (4, 4)))
    np.testing.assert_array_equal(steps.is_first, np.tile([[False], [True]], (4, 4)))
    info = {"frame_number": np.array([30, 30]), "episode_frame_number": np.array([30, 20])}
    np.testing.assert_array_equal(frames_before(info), [0, 10])


def test_games_are_their_seeds():
    actions = random_actions(100, 2)
    rules = dict(sticky=0.25, life_loss=True)
    once = played("breakout", 2, 7, actions, **rules)
    assert_trees_equal(played("breakout", 2, 7, actions, num_threads=2, **rules), once)
    assert np.any(played("breakout", 2, 8, actions, **rules)[1].frame != once[1].frame)
    assert np.any(played("breakout", 2, 7, actions, life_loss=True)[1].frame != once[1].frame)  # sticky matters
    alone = played("breakout", 1, 7, actions[:, :1], **rules)[1]
    assert_trees_equal(alone, Step(*(leaf[:, :1] for leaf in once[1])))
    envs = AtariEnvs("breakout", 2, 7, num_threads=1, **rules)
    for _ in range(2):  # beginning anew begins the same
        assert_trees_equal(play(envs, actions[:40])[1], Step(*(leaf[:40] for leaf in once[1])))
    envs.close()


def test_neighbouring_seeds_share_no_copy():
    seeds = [env_seeds(seed, 8) for seed in range(8)]
    assert len(np.unique(seeds)) == 64
    assert np.min(seeds) >= 0 and np.max(seeds) < 2**31
    np.testing.assert_array_equal(env_seeds(3, 2), env_seeds(3, 8)[:2])


def test_the_frame_is_the_newest_of_the_emulators_own_stack():
    from ale_py.vector_env import AtariVectorEnv

    actions = random_actions(120, 2)
    stacked = AtariVectorEnv("breakout", 2, num_threads=1, reward_clipping=False)
    theirs = [stacked.reset(seed=env_seeds(1, 2))[0]]
    theirs += [stacked.step(chosen)[0] for chosen in actions]
    frames, steps = played("breakout", 2, 1, actions)
    np.testing.assert_array_equal(np.array(theirs)[:, :, -1], np.concatenate([frames[None], steps.frame]))


def test_all_actions_or_those_that_the_game_knows():
    assert minimal_actions("breakout") == 4 and minimal_actions("atari/SpaceInvaders") == 6
    assert action_names("breakout") == ("NOOP", "FIRE", "RIGHT", "LEFT")
    assert len(action_names("breakout", full_actions=True)) == 18
    envs = AtariEnvs("breakout", 1, 0, num_threads=1, full_actions=True)
    assert envs.spec.actions == 18
    envs.close()


def scanned(envs, actions):
    """The same as `play`, in one program that may overwrite the state it is given."""
    steps = jax.jit(
        lambda state, actions: jax.lax.scan(lambda s, a: envs.step(None, s, a), state, actions), donate_argnums=0
    )
    state, frames = jax.jit(envs.reset)(None)
    halves = []
    for half in np.split(actions, 2):
        state, answers = steps(state, half)
        halves.append(jax.device_get(answers))
    return np.asarray(frames), Step(*map(np.concatenate, zip(*halves, strict=True)))


@pytest.mark.slow
def test_inside_a_program_the_games_are_the_same():
    actions, rules = random_actions(200, 3), dict(sticky=0.25, life_loss=True, num_threads=2, cap_frames=400)
    envs = AtariXla("breakout", 3, 5, **rules)
    expected = played("breakout", 3, 5, actions, **rules)
    assert expected[1].is_first.any() and expected[1].terminated.any() and expected[1].truncated.any()
    assert envs.spec[:4] == ((84, 84), np.uint8, 4, 255)
    for _ in range(2):  # beginning anew begins the same
        assert_trees_equal(scanned(envs, actions), expected)
    envs.close()


def test_a_program_may_reset_and_loop():
    def run(envs):
        def body(_, carry):
            state, score = carry
            state, step = envs.step(None, state, jnp.full((1,), FIRE))
            return state, score + step.reward

        state, _ = envs.reset(None)
        return jax.lax.fori_loop(0, 100, body, (state, jnp.zeros((1,))))[1]

    envs, other = (AtariXla("space_invaders", 1, 0, num_threads=1) for _ in range(2))
    score = float(jax.jit(run, static_argnums=0)(envs)[0])
    assert score == played("space_invaders", 1, 0, np.full((100, 1), FIRE))[1].reward.sum() > 0
    assert envs != other and len({envs, other}) == 2
    envs.close()
    other.close()


@pytest.mark.slow
def test_a_video_shows_the_game_that_the_policy_sees():
    seen = []

    def policy(state):
        seen.append(state)
        return int(state.sum()) % 4  # something that depends on every pixel

    game = play_rgb("breakout", policy, 3, most_steps=60, sticky=0.25)
    assert game.screens.shape == (61, 210, 160, 3) and game.screens.dtype == np.uint8
    assert len(np.unique(game.screens[0].reshape(-1, 3), axis=0)) > 5  # colours
    assert not game.over
    frames, steps = played("breakout", 1, 3, game.actions[:, None], sticky=0.25)
    for t in range(60):
        newest = [steps.frame[t - 1 - k, 0] if t > k else frames[0] for k in range(min(t + 1, 4))][::-1]
        np.testing.assert_array_equal(seen[t][4 - len(newest) :], newest)
        assert not seen[t][: 4 - len(newest)].any()
    np.testing.assert_array_equal(game.rewards, steps.reward[:, 0])
    again = play_rgb("breakout", policy, 3, most_steps=60, sticky=0.25)
    assert_trees_equal(again, game)
    # In grey and small, a screen is what was seen; how it is made small does not matter here.
    rows = game.screens[30].mean(-1).mean(1)
    resampled = np.interp(np.arange(84) * 210 / 84, np.arange(210), rows)
    assert np.corrcoef(resampled, seen[30][-1].mean(1))[0, 1] > 0.9


def test_a_video_ends_with_the_game_and_not_with_a_life():
    game = play_rgb("breakout", lambda state: FIRE, 0, life_loss=True)
    assert game.over and len(game.actions) == len(game.rewards) == len(game.screens) - 1
    _, steps = played("breakout", 1, 0, np.full((len(game.actions), 1), FIRE))
    np.testing.assert_array_equal(np.nonzero(steps.terminated[:, 0])[0], [len(game.actions) - 1])


def test_a_few_games_have_taller_screens():
    assert (screen_size("pong"), screen_size("pacman")) == ((210, 160), (250, 160))
    assert play_rgb("pacman", lambda state: 0, 0, most_steps=2).screens.shape == (3, 250, 160, 3)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are counted where Linux lists them")
def test_no_thread_outlives_close():
    def threads():
        return len(os.listdir("/proc/self/task"))

    jnp.zeros(1).block_until_ready()
    before = threads()
    envs = AtariEnvs("pong", 4, 0, num_threads=2)
    envs.reset()
    assert threads() > before
    envs.send(np.zeros(4, int))  # and is not waited for
    envs.close()
    envs.close()
    assert threads() == before
    inside = AtariXla("pong", 4, 0, num_threads=2)
    assert threads() > before
    inside.close()
    assert threads() == before
    play_rgb("pong", lambda state: 0, 0, most_steps=2)
    assert threads() == before


def test_errors_show_a_way_out(monkeypatch):
    with pytest.raises(UsageError, match="Did you mean `breakout`"):
        AtariEnvs("brekout", 1, 0)
    with pytest.raises(UsageError, match="needs two players"):
        minimal_actions("joust")  # the emulator would end the process
    monkeypatch.setitem(sys.modules, "ale_py", None)
    for call in (lambda: open_emulator("pong", 1), lambda: minimal_actions("pong")):
        with pytest.raises(UsageError, match=r"pip install .*\[atari\]'"):
            call()
