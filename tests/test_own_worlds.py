"""Worlds of one's own, by name and as objects: on every rung, in child processes, and everything that is wrong."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import xladder
from tests import own_worlds
from xladder import user_code
from xladder.cli.main import main
from xladder.core.keys import reset_keys, root, step_keys
from xladder.errors import UsageError
from xladder.families.value.program import Program
from xladder.registry import RungOptions
from xladder.worlds import contract, gymnax_world, marl_world, names, twin_check
from xladder.worlds.envs import available
from xladder.worlds.gymnax_world import GymnaxEnvs
from xladder.worlds.hosted import HostedEnvs
from xladder.worlds.marl_world import MarlEnvs, SharedEnvs
from xladder.worlds.zoo_host import ZooEnvs

SMALL = {"batch_size": 16, "learning_starts": 64, "memory": 512, "hidden": (8,), "width": 8, "n_step": 2}
CORRIDOR, RACE = "jax/tests.own_worlds:Corridor", "marl/tests.own_worlds:Race"


@pytest.fixture(autouse=True)
def allowed():
    user_code.allow("tests.own_worlds")


def trained(workload, rung, **fields):
    options = {"steps": 512, "evaluate_episodes": 0, "learner": SMALL, **fields}
    return xladder.train(workload, rung, **options)


def walk(envs, seed, steps, actions):
    state, frames = envs.reset(reset_keys(root(seed), envs.num_envs))
    step = jax.jit(envs.step)
    found = []
    for t in range(steps):
        state, one = step(step_keys(root(seed), t, envs.num_envs), state, actions(t, frames.shape[: frames.ndim - 1]))
        found.append(jax.device_get(one))
    return np.asarray(frames), found


@pytest.mark.slow
def test_an_observation_of_several_parts_becomes_a_vector_in_the_order_of_names():
    spec = GymnaxEnvs(CORRIDOR, 3).spec
    assert (spec.shape, spec.dtype, spec.actions) == ((7,), np.float32, 2)
    assert spec.fields == (("place", (6,), "float32"), ("time", (), "int32"))
    frames, steps = walk(GymnaxEnvs(CORRIDOR, 3), 0, 4, lambda t, lead: np.ones(lead, np.int32))
    assert frames[:, :6].sum() == 3 and not frames[:, 6].any()
    assert [one.frame[0, 6] for one in steps[:2]] == [1, 2]


def test_a_time_limit_is_a_truncation_and_a_hole_a_termination():
    limited = lambda t, lead: np.full(lead, t % 2, np.int32)  # noqa: E731 - back and forth
    _, steps = walk(GymnaxEnvs(CORRIDOR, 2), 0, 25, lambda t, lead: 1 - limited(t, lead))
    ends = [(bool(s.terminated[0]), bool(s.truncated[0])) for s in steps]
    assert ends.index((False, True)) == 19 and (True, False) not in ends[:20]
    _, steps = walk(GymnaxEnvs(CORRIDOR, 2), 0, 5, lambda t, lead: np.zeros(lead, np.int32))
    assert any(s.terminated[0] and s.reward[0] == -1 for s in steps)


def test_an_agent_that_is_done_first_is_absent_until_all_are():
    jump = lambda t, lead: np.array([[2] * lead[1], [1] * lead[1]], np.int32)  # noqa: E731
    _, steps = walk(MarlEnvs(RACE, 2), 0, 8, jump)
    hare = [(bool(s.terminated[0, 0]), bool(s.truncated[0, 0]), float(s.reward[0, 0])) for s in steps]
    assert hare[1] == (True, False, 1.0)  # two jumps of three cells
    assert hare[2] == (True, True, 0.0) == hare[4]  # it waits, and is paid no more
    assert [bool(s.is_first[1, 0]) for s in steps].index(True) == 6  # the tortoise needs six steps
    assert steps[5].terminated[1, 0] and not steps[5].truncated[1, 0]


def test_frames_are_padded_and_end_with_the_actions_that_are_available():
    envs = MarlEnvs(RACE, 2)
    assert envs.spec.shape == (6,) and envs.spec.masked and envs.spec.agents == ("hare", "tortoise")
    frames, steps = walk(envs, 0, 1, lambda t, lead: np.ones(lead, np.int32))
    np.testing.assert_array_equal(frames[:, 0, 3:], [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_allclose(steps[0].frame[:, 0], [[1 / 6, 1 / 6, 1 / 12, 1, 1, 0], [1 / 6, 0, 0, 1, 1, 0]])


def test_zoo_shows_dicts_and_tuples_as_vectors_in_the_order_of_names():
    envs = ZooEnvs("zoo/tests.own_worlds:TreeDuel", 1, 0)
    assert envs.spec.shape == (3 + 2 + 4 + 3,), "flags, two numbers, one of four, and a mask of three actions"
    frames = envs.reset()
    np.testing.assert_array_equal(frames[0, 0, [0, 1, 2, 3, 5, 6, 7, 8]], [1, 0, 1, 0, 1, 0, 0, 0])
    envs.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Railed", "RailedPicture"])
def test_an_agent_alone_takes_only_what_is_available(name):
    """Left is not available at the start of a corridor with rails: nobody falls, whatever is drawn."""
    envs = GymnaxEnvs(f"jax/tests.own_worlds:{name}", 4)
    assert envs.spec.masked and envs.spec.seen == ((4, 4, 1) if name == "RailedPicture" else (7,))
    _, frames = envs.reset(reset_keys(root(0), 4))
    np.testing.assert_array_equal(available(envs.spec, frames)[:, 1], True)
    learner = SMALL | {"batch_size": 8, "learning_starts": 32}
    result = trained(f"jax/tests.own_worlds:{name}", "parallel", steps=256, learner=learner)
    assert np.nanmin(result.metrics["return"]) >= 0


def test_flags_that_are_not_one_for_each_action_are_named():
    with pytest.raises(UsageError, match=r"returns bool \[3\] from `get_avail_actions`, but .* each of its 2 actions"):
        gymnax_world.load("jax/tests.own_worlds:MisRailed")


@pytest.mark.slow
def test_sharing_a_network_makes_every_agent_a_copy_that_knows_who_it_is():
    shared, apart = SharedEnvs(MarlEnvs(RACE, 2)), MarlEnvs(RACE, 2)
    assert shared.num_envs == 4 and shared.spec.shape == (8,) and not shared.spec.agents
    actions = np.array([2, 1, 1, 0], np.int32)
    state, frames = shared.reset(reset_keys(root(0), 4))
    np.testing.assert_array_equal(frames[:, :2], [[1, 0], [0, 1]] * 2)
    _, step = shared.step(step_keys(root(0), 0, 4), state, actions)
    state, _ = apart.reset(reset_keys(root(0), 4)[::2])
    _, other = apart.step(step_keys(root(0), 0, 4)[::2], state, actions.reshape(2, 2).T)
    np.testing.assert_allclose(step.frame[:, 2:], np.moveaxis(other.frame, 0, 1).reshape(4, 6))


@pytest.mark.slow
def test_only_available_actions_are_taken_with_and_without_exploring():
    config = xladder.plan(RACE, "fused", learner=SMALL).config
    program = Program.for_platform(config, "cpu")
    run = jax.jit(program.init)(np.int32(0))
    stack = np.array(run.seen.stack[0])
    stack[:, -1, -3:] = [1, 0, 0]
    draws = jax.jit(program.draw_act)(run.key[0], 0)
    assert not np.asarray(program.explore(np.ones(len(stack), np.int32), stack, draws, np.float32(2))).any()
    assert not np.asarray(
        program.greedy(jax.tree.map(lambda x: x[0], run.agent.params), stack, (), draws).actions
    ).any()


@pytest.mark.slow
@pytest.mark.parametrize("workload", [CORRIDOR, RACE])
def test_all_jax_rungs_train_the_same(workload):
    fused, parallel, sequential = (trained(workload, rung) for rung in ("fused", "parallel", "sequential"))
    for other in (parallel, sequential):
        np.testing.assert_allclose(fused.metrics["loss"], other.metrics["loss"], rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(fused.metrics["return"], other.metrics["return"], rtol=1e-5)
    assert np.isfinite(fused.metrics["loss"]).any() and np.isfinite(fused.metrics["return"]).any()


@pytest.mark.parametrize("rung", ["torch", "hybrid"])
def test_pytorch_trains_in_them(rung):
    result = trained(RACE, rung, options=RungOptions(threads=1))
    assert np.isfinite(result.metrics["loss"]).any()
    assert jax.tree.leaves(result.params)[0].shape[:2] == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["rainbow", "iqn", "c51", "qrdqn", "munchausen", "pqn"])
def test_every_member_of_the_family_learns_in_a_shared_world(preset):
    small = {k: v for k, v in SMALL.items() if preset != "pqn" or k in ("hidden", "width")}
    steps = 32 * 64 * 2 if preset == "pqn" else 512
    result = trained(RACE, "fused", preset=preset, learner=small, steps=steps, seeds=2)
    assert np.isfinite(result.metrics["loss"]).any() and result.metrics["return"].shape[0] == 2


@pytest.mark.slow
def test_a_shared_network_is_one(tmp_path):
    result = trained(RACE, "fused", world={"shared": True})
    assert jax.tree.leaves(result.params)[0].shape[0] == 1 and not result.config.agent_axis
    assert len(result.evaluate(4)["per_agent"]) == 2


@pytest.mark.slow
def test_more_actions_than_a_byte_holds():
    result = trained("jax/tests.own_worlds:ManyActions", "fused", learner=SMALL | {"epsilon_end": 1.0})
    assert result.config.world.spec().actions == 300
    program = Program.for_platform(result.config, "cpu")
    assert program.init(np.int32(0)).memory.actions.dtype == np.int16
    assert result.metrics["return"][np.isfinite(result.metrics["return"])].max() > 0


@pytest.mark.slow
def test_agents_that_learn_beat_random_play():
    result = trained(RACE, "fused", steps=6000, learner=SMALL | {"lr": 3e-3}, seeds=2)
    score = result.evaluate(20)
    assert score["mean_return"] > score["random_return"] + 0.3
    assert len(score["per_agent"]) == len(score["against_random"]) == 2


def test_objects_go_in_as_they_are():
    world = own_worlds.Corridor()
    assert names.name_of(world) == "jax/tests.own_worlds:Corridor" == names.name_of(world)
    assert names.name_of(own_worlds.Race) == "marl/tests.own_worlds:Race"
    assert names.name_of("cartpole") == "cartpole"
    with pytest.raises(UsageError, match="none of the APIs"):
        names.name_of(object())


def test_a_name_without_a_prefix_is_placed_by_its_api():
    assert names.locate("tests.own_worlds:Corridor").name == CORRIDOR
    assert names.locate("tests.own_worlds:Race").name == RACE


BAD = {
    "ChangesShape": r"changes the type of its observation: in `step_env`, `place` changes from float32 \[6\] to",
    "ChangesDtype": r"changes the type of its state: in `step_env`, `place` changes from int32 \[\] to float32 \[\]",
    "PythonFloat": r"cannot be traced by `jit` in its `step_env`",
    "Continuous": r"has the actions object \(its `action_space`\)",
    "Raises": r"fails in its `step_env`: RuntimeError: no more steps today",
    "NeedsArguments": r"cannot be created: TypeError.* Its arguments are `--world.kwargs`",
    "Missing": r"`tests.own_worlds` has no `Missing`",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_world_is_refused_in_a_sentence_before_anything_is_written(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    assert main(["train", f"jax/tests.own_worlds:{name}", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert f"tests.own_worlds:{name}" in said or name == "Missing"
    with pytest.raises(UsageError, match=BAD[name]):
        raise UsageError(said)
    assert not (tmp_path / "run").exists()


def test_an_agent_without_a_reward_is_named():
    with pytest.raises(UsageError, match="returns no reward for tortoise from `step_env`"):
        xladder.plan("marl/tests.own_worlds:ForgetsAnAgent")


CHECKED = {
    "jax/tests.own_worlds:NeverEnds": "no episode ended within 10,240 steps",
    "jax/tests.own_worlds:NotANumber": "returns a reward that is not a finite number",
    "jax/tests.own_worlds:WithWrongTwin": "the world and its twin differ at step",
    "jax/tests.own_worlds:ChangesShape": "changes the type of its observation",
}


@pytest.mark.parametrize("name", CHECKED)
def test_check_finds_what_is_wrong(name):
    wrong = [f.sentence for f in contract.check_world(names.locate(name).source, name) if f.kind == "broken"]
    assert wrong and CHECKED[name] in wrong[0]


def test_check_finds_nothing_wrong_with_good_worlds(capsys):
    assert main(["check", "tests.own_worlds:WithTwin"]) == 0
    said = capsys.readouterr().out
    assert "its twin returns the same for 200 steps" in said and "fulfils its contract" in said
    assert main(["check", RACE]) == 0


def test_a_module_that_is_not_there_or_does_not_import(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "jax/no_such_module:Maze"]) == 2
    assert "There is no module `no_such_module`" in capsys.readouterr().err
    (tmp_path / "broken_module.py").write_text("import a_package_nobody_has\n")
    assert main(["train", "jax/broken_module:Maze"]) == 2
    assert "it needs `a_package_nobody_has`, which is not installed" in capsys.readouterr().err


WORLD = """
from tests.own_worlds import Corridor

class Maze(Corridor):
    pass
"""


def run_xladder(folder, *words):
    code = "import sys; from xladder.cli.main import main; sys.exit(main(sys.argv[1:]))"
    root_folder = str(Path(__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({root_folder!r}); " + code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_run_directory_imports_nothing_by_itself_and_a_changed_world_is_noticed(tmp_path):
    (tmp_path / "mazes.py").write_text(WORLD)
    short = ("--steps", "256", "--eval-episodes", "0", "--evaluate-episodes", "0", "--learner.learning-starts", "1000")
    done = run_xladder(tmp_path, "train", "jax/mazes:Maze", *short, "--out", "run")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert set(config["code"]) == {"mazes"} and len(config["code"]["mazes"]) == 64
    done = run_xladder(tmp_path, "eval", "run", "--episodes", "2")
    assert done.returncode == 2 and "add `--import mazes`" in done.stderr
    done = run_xladder(tmp_path, "eval", "run", "--episodes", "2", "--import", "mazes")
    assert done.returncode == 0 and "mean return" in done.stdout, done.stderr
    (tmp_path / "mazes.py").write_text(WORLD + "\n# another maze\n")
    done = run_xladder(tmp_path, "eval", "run", "--episodes", "2", "--import", "mazes")
    assert done.returncode == 2 and "has changed since" in done.stderr and "--changed-code" in done.stderr
    now = hashlib.sha256((tmp_path / "mazes.py").read_bytes()).hexdigest()
    assert f"(SHA-256 then {config['code']['mazes'][:8]}…, now {now[:8]}…)" in done.stderr
    (tmp_path / "mazes.py").unlink()
    done = run_xladder(tmp_path, "eval", "run", "--import", "mazes")
    assert done.returncode == 2 and "There is no module `mazes`" in done.stderr


def test_a_host_stepper_and_a_program_see_the_same_episodes():
    from xladder.rungs.running import compiled

    envs = MarlEnvs(RACE, 3)
    host = HostedEnvs(envs, 5, compiled)
    actions = lambda t, lead: np.full(lead, t % 2, np.int32)  # noqa: E731
    frames, steps = walk(envs, 5, 6, actions)
    np.testing.assert_allclose(host.reset(), frames)
    for t, step in enumerate(steps):
        host.send(actions(t, (2, 3)))
        for ours, theirs in zip(host.recv(), step, strict=True):
            np.testing.assert_allclose(ours, theirs)


@pytest.mark.slow
def test_jaxmarl_steps_and_ours_are_the_same():
    jaxmarl = pytest.importorskip("jaxmarl")
    env, name = jaxmarl.make("switch_riddle"), "jaxmarl/switch_riddle"
    envs = MarlEnvs(name, 1)
    key = reset_keys(root(0), 1)
    state, _ = envs.reset(key)
    observations, theirs = env.reset(key[0])
    rng = np.random.default_rng(0)
    for t in range(12):
        actions = rng.integers(0, envs.spec.actions, (3, 1)).astype(np.int32)
        step_key = step_keys(root(0), t, 1)
        state, step = envs.step(step_key, state, actions)
        taken = {agent: actions[i, 0] for i, agent in enumerate(env.agents)}
        observations, theirs, rewards, dones, _ = env.step_env(step_key[0], theirs, taken)
        for i, agent in enumerate(env.agents):
            np.testing.assert_allclose(step.frame[i, 0], np.ravel(observations[agent]))
            assert step.reward[i, 0] == rewards[agent]
        if dones["__all__"]:
            assert step.terminated.all()
            return
    raise AssertionError("no episode ended")


def test_settings_of_a_shared_world_go_through_json():
    config = xladder.plan(RACE).config
    assert replace(config) == config and hash(config) == hash(replace(config))


@pytest.mark.slow
def test_worlds_of_an_installed_package_have_short_names_and_need_no_import(tmp_path):
    """As if `pip install corridors` had been run: a package with an entry point, in a folder on the path."""
    site = tmp_path / "site"
    about = site / "corridors-1.0.dist-info"
    about.mkdir(parents=True)
    source = Path(own_worlds.__file__).read_text()
    (site / "corridors.py").write_text(source)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: corridors\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[xladder.worlds]\nhallway = corridors:Corridor\n")
    run = [sys.executable, "-m", "xladder"]
    given = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    paths = os.pathsep.join([str(site), str(Path(xladder.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": paths}
    words = ["--steps", "200", "--learner.hidden", "8", "--learner.width", "8", "--out", "r", "--eval-episodes", "2"]
    done = subprocess.run([*run, "train", "hallway", *words], env=environment, **given)
    assert done.returncode == 0, done.stderr
    # An installed package was chosen by whoever installed it, so its runs open without `--import`.
    done = subprocess.run([*run, "eval", "r", "--episodes", "2"], env=environment, **given)
    assert done.returncode == 0, done.stderr
    (about / "entry_points.txt").write_text("[xladder.worlds]\nhallway = corridors:Missing\n")
    done = subprocess.run([*run, "train", "hallway", *words[:-4], "--out", "s"], env=environment, **given)
    assert done.returncode == 2 and "hallway" in done.stderr and not (tmp_path / "s").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name", "twin", "sentence"),
    [
        ("marl", "RaceWithHostTwin", None, "its twin returns the same for 200 steps"),
        ("marl", "Race", "HostRace", "its twin returns the same for 200 steps"),
        ("marl", "RaceWithHostTwin", "SlowHostRace", "the observation of hare at 0 is 0.5 here and 0.333333 there"),
        ("marl", "Race", "HostCorridor", "is for one agent, but the world has 2: hare, tortoise"),
        ("jax", "CorridorWithHostTwin", None, "its twin returns the same for 200 steps"),
        ("jax", "CorridorWithUnpreparedTwin", None, "differ after their resets: the observation at 0 is 0 here and 1"),
        ("jax", "Corridor", "HostRace", "`tests.own_worlds:HostRace` has 2 agents, but the world has 1"),
    ],
)
def test_a_world_in_jax_is_compared_with_one_on_the_host(source, name, twin, sentence):
    """A twin may have another API; what is random is laid out by the world's `prepare_twin`."""
    load = marl_world.load if source == "marl" else gymnax_world.load
    found = load(f"{source}/tests.own_worlds:{name}")
    other = found.env.twin if twin is None else getattr(own_worlds, twin)
    try:
        said = list(twin_check.compare(found, source == "marl", other, f"tests.own_worlds:{twin}"))
    except UsageError as error:
        said = [("broken", str(error))]
    assert len(said) == 1 and sentence in said[0][1]
    assert said[0][0] == ("kept" if "the same" in sentence else "broken")


def test_the_twin_of_a_check_can_be_named(capsys):
    assert main(["check", "tests.own_worlds:Race", "--twin", "tests.own_worlds:HostRace"]) == 0
    assert "its twin returns the same" in capsys.readouterr().out
    assert main(["check", "gym/CartPole-v1", "--twin", "tests.own_worlds:HostRace"]) == 2
    assert "`--twin` is for worlds in JAX" in capsys.readouterr().err


@pytest.mark.slow
def test_a_world_of_ones_own_is_the_same_program_as_a_built_in_one():
    """So it is as fast: nothing is asked of the host, and nothing is computed twice."""

    def lowered(workload):
        config = xladder.plan(workload, steps=512, learner=SMALL).config
        program = config.family.program_for(config, "cpu", (0,))
        state = jax.eval_shape(jax.vmap(program.init), jax.ShapeDtypeStruct((1,), "int32"))
        return jax.jit(program.tick).lower(jax.eval_shape(program.init_counters), state).as_text()

    assert lowered("jax/tests.own_worlds:SameCartPole") == lowered("cartpole")
    assert lowered(CORRIDOR) != lowered("cartpole")


# ---- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "kwargs", "shape"),
    [
        ("jax/tests.own_worlds:NeedsArguments", {"size": 9}, (10,)),
        ("marl/tests.own_worlds:FilmedRace", {"length": 3}, (4, 4, 2 + 3)),
        ("zoo/tests.own_worlds:FilmedDuel", {"side": 7}, (7, 7, 3 + 3)),
        ("zoo/tests.own_worlds:make_filmed_duel", {"side": 4}, (4, 4, 3 + 3)),
        pytest.param(
            "jaxmarl/MPE_simple_spread_v3",
            {"num_agents": 4, "num_landmarks": 4},
            (4 + 2 * 4 + 4 * 3,),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_world_of_any_source_takes_arguments(world, kwargs, shape):
    config = xladder.plan(world, world={"kwargs": kwargs}).config
    assert config.world.spec().shape == shape
    assert config.world.kwargs == tuple(f"{name}={value!r}" for name, value in kwargs.items())


@pytest.mark.parametrize(
    "world",
    [
        "jax/tests.own_worlds:Corridor",
        "marl/tests.own_worlds:FilmedRace",
        "zoo/tests.own_worlds:FilmedDuel",
        pytest.param("jaxmarl/MPE_simple_spread_v3", marks=pytest.mark.slow),
    ],
)
def test_arguments_that_a_world_does_not_have_are_named(world):
    with pytest.raises(
        UsageError, match=rf"`{world}` cannot be created: TypeError.* Its arguments are `--world.kwargs`"
    ):
        xladder.plan(world, world={"kwargs": {"colour": 3}})
    with pytest.raises(UsageError, match=r"`--world.kwargs` has `colour`, but it has to be name=value"):
        xladder.plan(world, world={"kwargs": ["colour"]})


def test_arguments_of_a_strangers_run_import_nothing_and_allocate_nothing():
    for world in ("jax/tests.own_worlds:NeedsArguments", "zoo/tests.own_worlds:Lasting"):
        with pytest.raises(UsageError, match="`evil:X` is user code, and xladder does not import code just because"):
            xladder.plan(world, world={"kwargs": ["size=evil:X"]})
    with pytest.raises(UsageError, match="num_agents=1000000000, but sizes of JaxMARL's worlds go up to 256"):
        marl_world.load("jaxmarl/MPE_simple_spread_v3", ("max_steps=500", "num_agents=1000000000"))


def test_arguments_are_for_what_can_be_called():
    with pytest.raises(UsageError, match=r"nine_cells` is made already: `--world.kwargs` are for a class, a function"):
        xladder.plan("jax/tests.own_worlds:nine_cells", world={"kwargs": {"size": 3}})


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["torch", "hybrid", "sequential", "parallel", "fused", "mesh"])
def test_arguments_reach_every_rung(rung):
    """Agents that run six cells need at least two steps."""
    world, learner = {"num_envs": 2, "kwargs": {"length": 9}}, SMALL | {"n_step": 1}
    mesh = {"mesh": "data=2"} if rung == "mesh" else {}
    result = trained("marl/tests.own_worlds:FilmedRace", rung, steps=96, world=world, learner=learner, **mesh)
    assert np.nanmin(result.metrics["length"]) >= 3
    if rung not in ("fused", "mesh"):
        host = trained("zoo/tests.own_worlds:Lasting", rung, steps=96, world={"num_envs": 2, "kwargs": {"turns": 3}})
        assert np.nanmax(host.metrics["length"]) == 3
