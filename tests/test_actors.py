"""`actors`: the same algorithm in lock step, the right ratio without, and nothing learned is lost when a process is."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.conftest import TINY_CART, TINY_GYM, assert_trees_close, assert_trees_equal
from tests.in_process import InProcess
from tests.test_resume import slow
from tests.test_value_rungs import PONG, SEVERAL_STEPS, SEVERAL_UPDATES
from xladder.cli.main import main
from xladder.core.state import capture, restore
from xladder.distributed import asynchronous, health, workers
from xladder.distributed.actor import actor_epsilon
from xladder.distributed.workers import ActorLayout
from xladder.errors import PeerLost, UsageError
from xladder.families.value import summaries
from xladder.replay.history import History, Window
from xladder.replay.limiter import Limiter
from xladder.replay.shard import RowIds, Shard, apportion
from xladder.rungs import actors, sequential

SEED, TICKS = 3, 32
OF_ALL_RUNGS = ("returns", "length", "episodes", "loss", "epsilon", "updates")
CART = replace(TINY_CART, steps=4 * 400, evaluate_episodes=0, learner=replace(TINY_CART.learner, memory=400))
PACED = replace(TINY_GYM, learner=replace(TINY_GYM.learner, memory=400), steps=4 * 400)  # its world is soon imported
RATED_STEPS = replace(SEVERAL_STEPS, learner=replace(SEVERAL_STEPS.learner, prioritised=True, n_step=3))
RATED = replace(CART, learner=replace(CART.learner, prioritised=True, n_step=3))


def start(config, engine=None, **options):
    return actors.start(config, [SEED], jax.devices("cpu")[0], engine=engine or InProcess(), **options)


# ---- the parts, each alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quicker", ["actors", "learner", "neither"])
def test_the_limiter_holds_the_ratio(quicker):
    rng = np.random.default_rng(0)
    limiter, flying = Limiter(ratio=8.0, begins=100, slack=60), []
    speeds = {"actors": (9, 1), "learner": (1, 9), "neither": (1, 1)}[quicker]
    for _ in range(40_000):
        if rng.random() < speeds[0] / 10 and limiter.may_act(16):
            limiter.granted += 16
            flying.append(16)
        if flying and rng.random() < 0.5:
            limiter.inserted += flying.pop(rng.integers(len(flying)))
        if rng.random() < speeds[1] / 10 and limiter.may_sample(64):
            limiter.sampled += 64
        assert limiter.sampled <= limiter.ratio * max(0, limiter.inserted - limiter.begins)
        if limiter.inserted - limiter.begins > 100 * limiter.slack:
            assert abs(limiter.measured() / limiter.ratio - 1) < 0.01
    assert limiter.inserted > 200 * limiter.slack


def test_the_limiter_stops_players_until_something_is_learned():
    limiter = Limiter(ratio=4.0, begins=32, slack=16)
    assert np.isnan(limiter.measured()) and not limiter.may_sample(1)
    while limiter.may_act(8):
        limiter.granted += 8
        limiter.inserted += 8
    assert limiter.inserted == 48 and limiter.may_sample(64) and not limiter.may_sample(65)


def test_players_explore_less_and_less():
    rates = [actor_epsilon(0.4, actor, 8) for actor in range(8)]
    np.testing.assert_allclose(rates, 0.4 ** (1 + np.arange(8)))  # 7i / (8 − 1) = i
    assert actor_epsilon(0.3, 0, 1) == 0.3 and actor_epsilon(1.0, 3, 5) == 1.0 and actor_epsilon(0.0, 1, 2) == 0.0
    assert actor_epsilon(0.05, 0, 2) == 0.4  # a ladder down from 0.05 would be none


def test_copies_are_shared_out_evenly_and_in_order():
    layout = ActorLayout.of(7, 3, 2)
    assert layout.envs == ((0, 1, 2), (3, 4), (5, 6)) and layout.actors == ((0, 1), (2,))
    assert layout.envs_of_shard(0) == (0, 1, 2, 3, 4) and layout.envs_of_shard(1) == (5, 6)
    assert [layout.shard_of(actor) for actor in range(3)] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize(("given", "said"), [((4, 5, 1), "4 envs"), ((4, 2, 3), "every shard"), ((1, 1, 2), "is 1:")])
def test_more_of_them_than_there_is_to_do_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        ActorLayout.of(*given)


def test_numbers_are_shared_out_in_proportion():
    uniforms = ((np.arange(1000) + 0.5) / 1000).astype(np.float32)[:, None]
    place, apart = apportion(uniforms, np.array([1.0, 0.0, 3.0]))
    assert np.bincount(place).tolist() == [250, 0, 750]
    for part in (0, 2):
        np.testing.assert_allclose(
            np.sort(apart[place == part, 0]), np.linspace(0, 1, (place == part).sum()), atol=0.01
        )
    edges, _ = apportion(np.array([[0.0], [1.0]], np.float32), np.array([0.0, 1.0, 0.0]))
    assert edges.tolist() == [1, 1]


def rows(envs, steps, begin=0):
    """Rows whose rewards say which they are."""
    number = begin + np.arange(steps)[None, :] + 1000 * np.arange(envs)[:, None]
    no = np.zeros((envs, steps), bool)
    frames = np.zeros((envs, steps, 2), np.float32)
    return History(frames, np.zeros((envs, steps), np.int8), number.astype(np.float32), no, no, no)


def test_a_shard_draws_evenly_from_groups_of_any_size():
    shard = Shard([1, 3], Window(1, 1, 50), (2,), np.float32)
    assert shard.sample(np.zeros((4, 4, 2), np.float32), 0.9) is None
    shard.add(0, 0, 21, rows(1, 21))
    held = shard.add(1, 0, 11, rows(3, 11))
    assert held.starts == held.mass == 20 + 30  # of each env the newest row is no start
    sample = shard.sample(np.random.default_rng(0).random((20_000, 4, 2), np.float32), 0.9)
    shares = np.bincount(sample.rows.group) / 20_000
    np.testing.assert_allclose(shares, [0.4, 0.6], atol=0.02)
    counts = np.unique(np.stack([sample.rows.group, sample.batch.returns]), axis=1, return_counts=True)[1]
    assert len(counts) == 50 and counts.min() > 300
    for group, width in ((0, 21), (1, 11)):
        mine = sample.rows.group == group
        np.testing.assert_array_equal(sample.age[mine], width - 1 - sample.batch.returns[mine] % 1000)
        np.testing.assert_array_equal(sample.rows.number[mine], sample.batch.returns[mine] % 1000)


def test_a_shard_draws_by_priority_and_says_how_likely_it_was():
    shard = Shard([1, 2], Window(1, 1, 20), (2,), np.float32, prioritised=True, alpha=1.0)
    shard.add(0, 0, 6, rows(1, 6))
    shard.add(1, 0, 6, rows(2, 6))
    every = RowIds(np.array([0, 1]), np.array([0, 1]), np.array([2, 3]), np.array([2, 3]))
    shard.update_priorities(every, np.array([9.0, 4.0], np.float32))
    mass = 13 + 9.0 + 4.0  # of 15 starts two are rated
    assert shard.held().mass == pytest.approx(mass, rel=1e-5)
    sample = shard.sample(np.random.default_rng(0).random((20_000, 2), np.float32), 0.9)
    drawn = (sample.rows.group == 0) & (sample.rows.slot == 2)
    assert drawn.mean() == pytest.approx(9 / mass, abs=0.01)
    np.testing.assert_allclose(sample.probability[drawn], 9 / mass, rtol=1e-5)


def test_rows_that_were_overwritten_are_not_rated():
    shard = Shard([1], Window(1, 1, 8), (2,), np.float32, prioritised=True)
    shard.add(0, 0, 8, rows(1, 8))
    old = RowIds(*(np.array([x]) for x in (0, 0, 1, 1)))
    shard.add(0, 0, 4, rows(1, 4, begin=8))
    before = shard.held()
    shard.update_priorities(old, np.array([1e6], np.float32))
    assert shard.held() == before


def test_what_a_shard_holds_can_be_moved():
    shards = [Shard([2, 1], Window(2, 1, 10), (2,), np.float32, prioritised=True) for _ in range(2)]
    shards[0].add(0, 0, 7, rows(2, 7))
    shards[0].add(1, 0, 12, rows(1, 12))
    shards[1].load(shards[0].save())
    uniforms = np.random.default_rng(1).random((50, 2), np.float32)
    assert_trees_equal(shards[0].sample(uniforms, 0.9), shards[1].sample(uniforms, 0.9))


# ---- lock step -----------------------------------------------------------------------------------------------------


def assert_same_run(run, metrics, config, atol):
    """As the rung below it makes; bit by bit where the same programs run."""
    usual = sequential.start(config, [SEED], jax.devices("cpu")[0])
    expected = usual.advance(TICKS)
    assert np.isfinite(expected["loss"]).sum() > TICKS / 2 and expected["episodes"].sum() > 0
    for name in OF_ALL_RUNGS:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=0, atol=atol, err_msg=name)
    assert_trees_close(run.params(), usual.params(), atol)


@pytest.mark.slow
def test_in_lock_step_it_is_the_synchronous_algorithm():
    run = start(SEVERAL_STEPS, actors=3, shards=2, lock_step=True)
    assert_same_run(run, run.advance(TICKS), SEVERAL_STEPS, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "actors", "shards"), [(RATED_STEPS, 2, 1), slow(SEVERAL_UPDATES, 4, 1), slow(PONG, 2, 2)]
)
def test_in_lock_step_priorities_and_pictures_are_the_same_too(config, actors, shards):
    run = start(config, actors=actors, shards=shards, lock_step=True)
    assert_same_run(run, run.advance(TICKS), config, atol=1e-5)


def test_in_lock_step_losing_anybody_changes_nothing():
    config = replace(RATED_STEPS, learner=replace(RATED_STEPS.learner, memory=48))
    whole, broken = (start(config, actors=2, lock_step=True) for _ in range(2))
    for logged in broken.loop.shards:
        logged.most = 20  # so that some of it is told again and some is in a copy
    expected, rng, parts = whole.advance(60), np.random.default_rng(5), []
    for _ in range(60):
        if rng.random() < 0.4:
            broken.engine.remotes[rng.integers(3)].lose()
        parts.append(broken.advance(1))
    for name, values in expected.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts], axis=1), values, err_msg=name)
    assert_trees_equal(capture(broken.state()), capture(whole.state()))
    told = broken.news()
    assert any("Actor 0 was lost" in line for line in told) and any("Shard 0 was lost" in line for line in told)


def saved(run):
    return {name: np.array(array) for name, array in capture(run.state()).items()}


def test_in_lock_step_half_and_half_is_the_whole():
    whole, first, second = (start(SEVERAL_STEPS, actors=2, shards=2, lock_step=True) for _ in range(3))
    whole.advance(16)
    first.advance(16)
    second.take_state(restore(second.state(), saved(first)))
    assert_trees_equal(second.advance(16), whole.advance(16))
    assert_trees_equal(saved(second), saved(whole))


# ---- each at its own pace ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [pytest.param(CART, id="uniform"), pytest.param(RATED, id="prioritised", marks=pytest.mark.slow)]
)
def test_at_their_own_pace_the_ratio_holds_and_is_reported(config, monkeypatch):
    monkeypatch.setattr(asynchronous, "CHUNK_STEPS", 2)
    run = start(config, actors=2, shards=2)
    begun, metrics = run.params(), run.advance(config.ticks)
    assert metrics["updates"].sum() == config.updates_per_tick * np.isfinite(metrics["loss"]).sum()
    first = -(-config.learning_begins // config.per_tick)
    assert np.isfinite(metrics["loss"][0, first:]).all() and np.isnan(metrics["loss"][0, :first]).all()
    target = config.updates_per_tick * config.learner.batch_size / config.per_tick
    limiter = run.loop.limiter  # the run is short: that it is 1 % in longer ones, the limiter's own test shows
    within = limiter.slack / (config.agent_steps - limiter.begins)
    assert target * (1 - within) <= metrics["ratio"][0, -1] <= target and within < 0.05
    shown = summaries.columns(config, metrics)
    assert set(summaries.OF_ACTORS) < set(shown) and shown["return"].shape == (1, config.ticks)
    assert np.nanmax(metrics["staleness"]) < config.learner.memory / config.per_tick
    assert np.nanmean(metrics["lag"]) > 0 and metrics["queue_chunks"].max() > 0 and metrics["queue_batches"].max() > 0
    assert np.nansum(metrics["episodes"]) > 10
    assert np.ptp(run.loop.steps) <= 2 * run.loop.chunk  # nobody is left out
    moved = jax.tree.map(lambda old, new: np.abs(new - old).max(), begun, run.params())
    assert min(jax.tree.leaves(moved)) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2])
def test_at_their_own_pace_whoever_is_lost_is_replaced(shards, monkeypatch):
    monkeypatch.setattr(health, "PATIENCE", 0.0)
    run = start(CART, actors=2, shards=shards)
    run.advance(100)
    run.engine.remotes[0].lose()
    between = run.advance(100)
    run.engine.remotes[2].lose()
    after = run.advance(100)
    for part in (between, after):
        assert np.isfinite(part["loss"]).all() and part["updates"].sum() == 100 * CART.updates_per_tick
    told = "\n".join(run.news())
    for line in ("Actor 0 was lost", "Actor 0 is back", "Shard 0 was lost", "rows are lost", "Shard 0 is back"):
        assert line in told
    assert not run.news()
    (count,) = np.asarray(run.loop.learner.agent.opt_state.count)
    assert count == (300 - -(-CART.learning_begins // CART.per_tick)) * CART.updates_per_tick  # each was made once


@pytest.mark.parametrize("who", [0, 2], ids=["actor", "shard"])
def test_at_their_own_pace_whoever_does_not_answer_is_named(who, monkeypatch):
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(workers, "SILENT_SECONDS", 0.3)
    run = start(CART, actors=2, shards=1)
    run.advance(50)
    run.engine.remotes[who].stopped = True
    with pytest.raises(PeerLost, match=f"{run.engine.remotes[who].name} has not answered for"):
        run.advance(400)
    with pytest.raises(PeerLost, match="has not answered for"):
        run.state()


def test_at_their_own_pace_a_stopped_actor_is_not_taken_for_its_shard(monkeypatch):
    """The shard's answer is older and arrives late, as one does that Ray has to fetch."""
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.0)
    run = start(CART, actors=1, shards=1)
    run.advance(50)
    watch, (actor, shard) = run.loop.health, run.engine.remotes
    watch.owed.clear()
    for remote in (shard, actor):
        remote.stopped = True
        watch.call(remote, "held")
    watch.watched += 1.0
    with pytest.raises(PeerLost, match="Actor 0 has not answered"):
        watch.check()
    del watch.owed[next(f for f, (remote, _) in watch.owed.items() if remote is actor)]
    (late,) = watch.owed
    ready = run.engine.ready
    monkeypatch.setattr(run.engine, "ready", lambda futures, seconds: list(futures) if seconds else ready(futures, 0.0))
    watch.check()
    assert late not in watch.owed


def test_at_their_own_pace_an_answer_that_nobody_has_read_yet_is_no_silence(monkeypatch):
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.0)
    run = start(RATED, actors=2, shards=2)
    run.advance(100)
    assert not run.news()


def test_at_their_own_pace_time_in_which_nobody_looks_does_not_count(monkeypatch):
    for name in ("STALL_SECONDS", "SILENT_SECONDS"):
        monkeypatch.setattr(health, name, 5.0)
    monkeypatch.setattr(health, "GLANCE", 0.1)
    monkeypatch.setattr(health, "PATIENCE", 0.0)
    run = start(CART, actors=1, shards=1)
    run.advance(50)
    run.engine.remotes[0].lose()
    for _ in range(20):  # as if the learner had saved for an hour
        run.loop.health.looked -= 3600
        run.advance(1)
    assert "Actor 0 is back" in "".join(run.news())


@pytest.mark.parametrize("n_step", [1, 3])
def test_what_was_cut_off_with_its_actor_is_not_joined_to_what_follows(n_step):
    """Eight steps worth one each, then another game, worth a thousand each: no return may have some of both."""
    shard = Shard([1], Window(1, n_step, 50), (2,), np.float32)
    for reward in (1.0, 1000.0):
        played, began = rows(1, 8), np.zeros((1, 8), bool)
        began[:, 0] = True
        shard.add(0, 0, 8, played._replace(rewards=np.full((1, 8), reward, np.float32), is_first=began))
    sample = shard.sample(np.random.default_rng(0).random((500, 4, 2), np.float32), 1.0)
    returns = sample.batch.returns[sample.batch.valid > 0]
    assert set(returns) == {*range(1, n_step + 1), 1000.0 * n_step}


@pytest.mark.parametrize("prioritised", [False, True])
def test_states_whose_frames_were_lost_with_a_shard_are_not_learned_from(prioritised):
    """A ring that begins in the middle of a game: its first states miss frames."""
    shard = Shard([1], Window(3, 1, 50), (2,), np.float32, prioritised)
    shard.add(0, 0, 8, rows(1, 8))
    uniforms = np.random.default_rng(0).random((200, 4, 2), np.float32)
    sample = shard.sample(uniforms[:, 0] if prioritised else uniforms, 1.0)
    assert set(sample.rows.slot) == {2, 3, 4, 5, 6}


def test_at_their_own_pace_a_run_can_be_taken_up_again():
    first, second = (start(CART, actors=2, shards=2) for _ in range(2))
    first.advance(60)
    arrays = saved(first)
    assert any(".worlds." in name for name in arrays)
    second.take_state(restore(second.state(), arrays))
    assert_trees_equal(saved(second), arrays)
    assert second.loop.tick == 60 and sum(held.starts for held in second.loop.prefetcher.held) > 0
    assert np.isfinite(second.advance(20)["loss"]).all()


@pytest.mark.slow
def test_games_that_cannot_be_carried_begin_anew():
    first, second = (start(TINY_GYM, actors=2, lock_step=True) for _ in range(2))
    first.advance(8)
    second.take_state(restore(second.state(), saved(first)))
    assert second.advance(4)["updates"].sum() == 4


def test_each_actor_explores_at_its_own_rate():
    run = start(replace(CART, learner=replace(CART.learner, epsilon=0.5, epsilon_end=0.5)), actors=2)
    asked = []
    for remote in run.workers.actors:
        play = remote.call
        remote.call = lambda method, *given, play=play, **more: (
            asked.append((method, given)),
            play(method, *given, **more),
        )[1]
    run.advance(4)
    assert {given[1] for method, given in asked if method == "rollout"} == {0.5, 0.5**8}


def test_a_batch_that_was_taken_still_counts_as_drawn():
    """The limiter allows one tick less than a further request needs, before and after a batch is taken."""
    run = start(PACED, actors=2)
    run.advance(40)
    prefetcher, limiter = run.loop.prefetcher, run.loop.limiter
    drawn, ahead = prefetcher.drawn, prefetcher.waiting()
    assert ahead and prefetcher.tick_batches
    allowed = limiter.sampled + (ahead + prefetcher.ticks - 1) * prefetcher.rows
    limiter.inserted = limiter.begins + allowed / limiter.ratio
    run.loop.next_tick_batch()
    assert prefetcher.drawn == drawn and limiter.sampled + prefetcher.waiting() * prefetcher.rows <= allowed
    limiter.inserted += prefetcher.rows / limiter.ratio
    prefetcher.order()
    assert prefetcher.drawn == drawn + prefetcher.ticks
    run.close()


# ---- on Ray --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray():
    """One Ray for all tests here."""
    from xladder.distributed.ray_engine import connect

    module, folder = connect(None)
    yield module
    module.shutdown()
    shutil.rmtree(folder)


def on_ray(config, **options):
    return actors.start(config, [SEED], jax.devices("cpu")[0], **options)


def kill(ray, remote):
    os.kill(ray.get(remote.handle.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)


@pytest.mark.slow
def test_on_ray_killed_processes_leave_lock_step_as_it_was(ray):
    run = on_ray(SEVERAL_STEPS, actors=2, lock_step=True)
    try:
        parts = [run.advance(12)]
        kill(ray, run.workers.actors[1])
        kill(ray, run.workers.shards[0])
        parts.append(run.advance(TICKS - 12))
        metrics = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
        assert_same_run(run, metrics, SEVERAL_STEPS, atol=1e-5)
        assert [line for line in run.news() if "Actor 1 was lost in tick 12" in line]
    finally:
        run.close()
    assert ray.is_initialized()  # it was not this run that began it


@pytest.mark.slow
def test_on_ray_training_goes_on_without_whoever_was_killed(ray):
    run = on_ray(PACED, actors=2)
    try:
        done = run.advance(50)["updates"].sum()
        for remote in (run.workers.actors[0], run.workers.shards[0]):
            kill(ray, remote)
            part = run.advance(50)
            done += part["updates"].sum()
            assert np.isfinite(part["loss"]).all()
        begun = time.monotonic()
        while run.loop.health.absent and time.monotonic() - begun < 60:
            done += run.advance(1)["updates"].sum()
        told = "\n".join(run.news())
        for line in ("Actor 0 was lost", "Actor 0 is back", "Shard 0 was lost", "Shard 0 is back"):
            assert line in told
        opt_state = run.loop.learner.agent.opt_state
        assert int(np.asarray(opt_state.count)[0]) == done  # no update was lost
    finally:
        run.close()


# ---- as a user has it ----------------------------------------------------------------------------------------------

TRAIN = ["train", "cartpole", "--device", "cpu", "--eval-episodes", "0", "--evaluate-episodes", "0"]
WORDS = [*TRAIN, "--rung", "actors", "--actors", "2", "--learner.memory", "4000", "--learner.learning-starts", "200"]


def descendants(parent):
    """Id → command of all processes that a process has begun, and that those have."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    table = [line.split(None, 2) for line in listed.splitlines()[1:]]
    found, size = {str(parent)}, 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, ppid, _ in table if ppid in found}
    return {int(pid): command for pid, _, command in table if pid in found and int(pid) != parent}


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_learner_that_was_ended_is_taken_up_again(number, tmp_path):
    words = [*WORDS, "--steps", "24000", "--checkpoint-every", "200", "--out", str(tmp_path / "run")]
    command = [sys.executable, "-m", "xladder.cli.main"]
    process = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL)
    try:
        while not list((tmp_path / "run/checkpoints").glob("tick-?????????")):
            assert process.poll() is None
            time.sleep(0.05)
        begun = descendants(process.pid)
        process.send_signal(number)
        assert process.wait(timeout=60) == (-9 if number == signal.SIGKILL else 143)
    finally:
        process.kill()
    ours = [pid for pid, command in begun.items() if "RayWorker" in command]
    patience = time.monotonic() + 20
    while any(map(lives, ours)) and time.monotonic() < patience:
        time.sleep(0.2)
    assert len(ours) == 3 and not any(map(lives, ours))
    for pid in filter(lives, begun):  # after SIGKILL two helpers of Ray's own stay for a minute
        os.kill(pid, signal.SIGKILL)
    again = subprocess.run([*command, "resume", str(tmp_path / "run")], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "Resuming from tick-" in again.stdout and "own pace" in again.stdout
    table = list(csv.DictReader((tmp_path / "run/metrics.csv").open(newline="")))
    assert [int(row["tick"]) for row in table] == list(range(3000))
    assert sum(int(row["updates"]) for row in table) == 3000 - 25
    assert float(table[-1]["ratio"]) == pytest.approx(16, rel=0.02)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rung", "actors", "--actors", "9"], "8 envs"),
        (["--rung", "actors", "--actors", "0"], "has to lie in 1"),
        (["--rung", "actors", "--actors", "2", "--shards", "3"], "every shard"),
        (
            ["--rung", "actors", "--actors", "2", "--shards", "2", "--lock-step", "--preset", "rainbow"],
            "prioritised replay in lock step needs a single shard",
        ),
        (
            ["--rung", "actors", "--preset", "pqn", "--learner.memory", "100000", "--learner.learning-starts", "1000"],
            "no replay memory",
        ),
        (["--rung", "actors", "--ray", "127.0.0.1:1"], "No Ray answers"),
        (["--rung", "actors", "--ray", "nowhere"], "HOST:PORT"),
        (["--rung", "parallel", "--actors", "2"], "is for `actors`"),
    ],
)
def test_what_cannot_be_is_refused_at_once(words, said, tmp_path, capsys):
    begun = time.monotonic()
    assert main([*TRAIN, *words, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err and time.monotonic() - begun < 10
    assert not (tmp_path / "run").exists()


def test_without_ray_it_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*WORDS, "--out", str(tmp_path / "run")]) == 2
    assert "[ray]'" in capsys.readouterr().err


@pytest.mark.parametrize("workload", ["treasurehunt", "hypergrid"])
def test_other_workloads_say_why_not(workload, capsys):
    assert main(["train", workload, "--rung", "actors"]) == 2
    assert "has no `actors` rung" in capsys.readouterr().err
