"""User code that fails or breaks its contract: a sentence that names it, before a run begins or when it ends there."""

import asyncio
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xladder
from tests import bad_worlds
from tests.own_worlds import State
from tests.test_own_gflownet import Strings
from xladder import user_code
from xladder.cli.main import format_error, main
from xladder.cli.parity import first_difference
from xladder.errors import UsageError, UserCodeFailed, XladderError, brief, raised_in_callback, untraceable
from xladder.families.gflownet.check import check_world
from xladder.families.gflownet.twin_check import twin_faults
from xladder.parity.levels import Level
from xladder.trainer import Observer, Trial
from xladder.worlds import contract, contract_jax, findings, gymnax_world, host_calls, marl_world, names, zoo_host
from xladder.worlds.flow_jitted import JittedHost
from xladder.worlds.flow_own import OwnWorld, bind
from xladder.worlds.jax_checks import require_unchanged

HERE = "tests.bad_worlds"
FORBIDS = (
    "forbids red every action in its `action_mask` from `step` although its episode goes on: allow one, or end it."
)
LATE = "ValueError: out of time (bad_worlds.py, line 136)"


@pytest.fixture(autouse=True)
def allowed():
    for module in (HERE, "tests.own_worlds", "tests.test_own_gflownet"):
        user_code.allow(module)


REFUSED = {
    "jax": {
        "ResetBranches": r"cannot be traced by `jit` in its `reset_env`: Tracer.* \(bad_worlds.py, line \d+\)",
        "LimitRaises": "fails in its `is_truncated`: TypeError: no limit.",
        "LimitWithoutParams": "fails in its `is_truncated`: TypeError: .*positional arguments",
        "LimitBranches": "cannot be traced by `jit` in its `is_truncated`: TracerBool",
        "LimitOfTwo": r"returns bool \[2\] as its flag from `is_truncated`: it has to be one flag.",
        "LimitIsNone": "returns None as its flag from `is_truncated`",
        "LimitMisspelt": "fails in its `is_truncated`: AttributeError: .*tme",
        "NoActions": r"has 0 as the number of actions \(`n` of its `action_space`\), but it has to be a whole number",
        "TextActions": "has 'x' as the number of actions",
        "HalfAnAction": "has 2.5 as the number of actions",
        "KeyShown": r"returns key<fry> \[\] as its observation, but networks need numbers",
        "TextShown": "returns a str as its observation from `reset_env`: it has to be an array or a number",
        "TextInState": "returns a str as `name` of its state from `reset_env`",
        "ResetIsNone": "returns None from `reset_env`, but there have to be two: observation and state",
        "Exits": "fails in its `step_env`: SystemExit: 0",
        "SixValues": "returns 6 values from `step_env`, but there have to be five: observation, state, reward",
        "TextReward": "returns a str as its reward from `step_env`",
        "ComplexReward": r"returns complex64 \[\] as its reward from `step_env`: it has to be one real number",
        "NoReward": "returns None as its reward from `step_env`",
        "ListShown": "in `step_env`, the observation changes from a dict with place, time to a list of 2",
        "NothingAllowed": "leaves its agent without an action: `get_avail_actions` never allows one",
        "VectorChanges": r"in `step_env`, the observation changes from float32 \[3\] to float32 \[4\]",
    },
    "marl": {
        "ResetOfAllBranches": r"cannot be traced by `jit` in its `reset`: Tracer.* \(bad_worlds.py, line \d+\)",
        "AgentsAreNone": "has no agents: its `agents` has to be a list of their names",
        "AgentsAreText": "has the agents 'ab': its `agents` has to be a list",
        "AllOfTwo": r"""returns bool \[2\] as `dones\["__all__"\]` from `step_env`: it has to be one flag""",
        "CutOfFour": r"""returns bool \[4\] as `infos\["truncated"\]` from `step_env`: .* one flag, 2 flags in the""",
        "CutIsNone": r"""returns None as `infos\["truncated"\]`""",
        "MaskRaises": f"`marl/{HERE}:MaskRaises` fails in its `get_avail_actions`: TypeError: no mask",
        "MaskOfOne": "returns no mask for tortoise from `get_avail_actions`",
        "MaskIsAList": "returns no mask for hare from `get_avail_actions`: it has to be a dict",
        "MaskTooLong": r"returns float32 \[7\] for hare from `get_avail_actions`, but .* each of its 3 actions",
        "MaskTooShort": r"returns float32 \[2\] for hare from `get_avail_actions`",
        "MaskOfNothing": "leaves hare without an action: `get_avail_actions` never allows one",
        "MaskRunsOut": "returns a list of 2 for tortoise from `get_avail_actions`",
        "OneWithoutActions": "has 0 as the number of actions for tortoise",
        "KeysShown": r"returns key<fry> \[\] as hare's observation",
        "ChangesOne": r"in `step_env`, hare's observation changes from float32 \[3\] to float32 \[9\]",
    },
    "zoo": {
        "ResetReturnsNone": "returns None from `reset`, but there have to be 2: observations and infos",
        "FourValues": "returns 4 values from `step`, but there have to be 5",
        "SpaceRaises": "fails in its `observation_space`: KeyError: 'red'",
        "SpaceExits": "fails in its `action_space`: SystemExit: 0",
        "AgentsRaise": "fails in its `possible_agents`: RuntimeError: nobody",
        "LargerShown": r"returns float64 \[9\] as the observation of red from `step`: .* size of its",
        "TextIsShown": "as the observation of red from `step`",
        "RewardIsNone": "returns None as the reward of red from `step`: it has to be one number",
        "RewardMissing": "returns no reward for red from `step`",
        "NamedTwice": r"names an agent twice in its `possible_agents`: \['red', 'red'\]",
    },
}
LOADED = {"jax": gymnax_world.load, "marl": marl_world.load, "zoo": zoo_host.layout}


@pytest.mark.parametrize(("source", "name"), [(source, name) for source, all_of in REFUSED.items() for name in all_of])
def test_a_fault_is_found_before_a_run_by_train_and_check_alike(source, name):
    """Both load the world first: nothing is compiled, and nothing written."""
    with pytest.raises(UsageError, match=REFUSED[source][name]) as refused:
        LOADED[source](f"{source}/{HERE}:{name}")
    assert str(refused.value).startswith(f"`{source}/{HERE}:{name}` ")


def test_train_and_check_say_so_with_the_same_exit_code(tmp_path, capsys):
    name, said = f"jax/{HERE}:Exits", "fails in its `step_env`: SystemExit: 0 (bad_worlds.py, line 31)."
    assert main(["train", name, "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main(["check", name]) == 2
    out, err = capsys.readouterr()
    assert f"WRONG `{name}` {said}" in out
    assert err == f"xladder: `{name}` breaks its contract: see what is marked WRONG above.\n"


def test_a_mask_that_never_changes_may_stand_beside_a_key_in_the_state():
    found = marl_world.load(f"marl/{HERE}:KeyInState")
    assert found.asks and found.masked


def test_a_static_field_that_changes_is_named():
    static = jax.tree_util.register_dataclass(
        type("Static", (), {"__init__": lambda self, n: setattr(self, "n", n)}), data_fields=[], meta_fields=["n"]
    )
    with pytest.raises(UsageError, match=r"`there` has fields that are not arrays \(a Static\) and change"):
        require_unchanged("jax/m:W", "step_env", "its state", {"there": static(1)}, {"there": static(2)})


@pytest.mark.parametrize("name", ["DrawsElsewhere", "DrawsInsideJit", "Counts"])
def test_a_draw_or_a_count_without_a_key_is_found_although_it_never_changes_once_compiled(name):
    said = contract_jax._draws_elsewhere(gymnax_world.load(f"jax/{HERE}:{name}"), several=False)
    assert said.startswith("`step_env` draws random numbers without its key")
    assert "or changes something outside, such as a counter in `self`" in said
    assert not contract_jax._draws_elsewhere(gymnax_world.load("jax/tests.own_worlds:Corridor"), several=False)
    assert not contract_jax._draws_elsewhere(marl_world.load("marl/tests.own_worlds:Race"), several=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"marl/{HERE}:StuckLater", "agent hare has no available action after 2 steps, although its episode goes on"),
        (f"jax/{HERE}:StuckInTime", "the agent has no available action after 2 steps, although its episode goes on"),
        (f"zoo/{HERE}:ForbidsAll", f"`zoo/{HERE}:ForbidsAll` {FORBIDS}"),
        (f"zoo/{HERE}:RewardIsNan", "`step` returns a reward that is not a finite number"),
        (f"zoo/{HERE}:FailsLater", f"`zoo/{HERE}:FailsLater` fails in its `step`: {LATE}."),
    ],
)
def test_check_finds_what_shows_only_on_the_way(name, said):
    found = list(contract.check_world(names.locate(name).source, name))
    assert said in [finding.sentence for finding in found if finding.kind == "broken"]


def test_the_checker_of_pettingzoo_is_asked_in_silence(monkeypatch, capsys):
    monkeypatch.setattr("pettingzoo.test.parallel_api_test", lambda made, num_cycles: print("Passed"))
    for finding in contract.check_world("zoo", "zoo/tests.own_worlds:Duel"):
        print(finding.kind)
    assert capsys.readouterr().out == "kept\n" * 3 + "noted\n" + "kept\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"jax/{HERE}:Missing", "has no `Missing`, so there is no world"),
        (f"zoo/{HERE}:Missing", "has no `Missing`, so there is no world"),
        ("marl/a_missing_module:Race", "There is no module `a_missing_module`"),
        ("flow/bitts", "There is no world `flow/bitts`"),
        ("gym/CartPol-v1", "Gymnasium has no world `CartPol-v1`. The nearest are `gym/CartPole-v1`"),
        (f"gym/{HERE}:Hoper-v5", f"Importing `{HERE}` registers no world `Hoper-v5` with Gymnasium"),
        ("gym/:", "`gym/:` does not name a world: it has to be `gym/ID` or `gym/module:ID`."),
        ("atari/pong", "`atari/pong` is built into xladder"),
    ],
)
def test_a_world_that_does_not_exist_breaks_no_contract(name, said, capsys):
    assert main(["check", name]) == 2
    out, err = capsys.readouterr()
    assert said in err and "contract" not in err and not out and "nearest are `gym/Hopper" not in err


def test_gymnasiums_warnings_are_shown_without_colours(capsys):
    assert main(["check", "gym/CartPole-v1"]) == 0
    out = capsys.readouterr().out
    assert "Gymnasium says: A Box observation space" in out and "[33m" not in out and "WARN" not in out


FLOWS = {
    "StatesRaise": "`states` fails: ValueError: cannot list.",
    "StatesAreANumber": "`states` gives int64 [], but it has to be all states, stacked along a first axis, or None.",
    "ActionsRaise": "`num_actions` fails: RuntimeError: not yet (bad_worlds.py, line 31).",
    "StepExits": "`forward` fails inside `jit`: SystemExit: 0 (bad_worlds.py, line 31). It has to be pure JAX",
    "TwinIsANumber": "`host_twin` gives an object of type int without `state_size`: it has to be a `HostWorld`",
    "DrawsReward": "`log_reward` draws random numbers, such as by `np.random`, or changes something outside, such as",
    "CountsSteps": "`forward` draws random numbers, such as by `np.random`, or changes something outside, such as a",
}


@pytest.mark.parametrize("name", FLOWS)
def test_faults_of_gflownet_worlds_are_sentences(name):
    faults = check_world(user_code.instantiate(user_code.find(f"{HERE}:{name}", "world"), name))
    assert len(faults) == 1 and faults[0].startswith(FLOWS[name])


def test_a_twin_that_differs_is_told_apart_from_one_that_does_not():
    class Host(JittedHost):
        shift = 0.0

        def log_reward(self, states):
            return super().log_reward(states) + self.shift

    class World(Strings):
        pass

    world = World()
    host, states = Host(OwnWorld(world)), np.zeros((1, 4), np.int32)
    world.host_twin = lambda: host
    assert list(twin_faults(world, JittedHost(OwnWorld(world)), states)) == []
    host.shift = 0.1
    assert list(twin_faults(world, JittedHost(OwnWorld(world)), states)) == [
        "`log_reward` of its `host_twin` gives other numbers than the world."
    ]
    host.max_steps = 99
    assert "`max_steps` is 99 in its `host_twin`" in next(twin_faults(world, JittedHost(OwnWorld(world)), states))
    world.host_twin = bad_worlds.raising(ValueError("no twin"))
    assert list(twin_faults(world, host, states)) == ["`host_twin` fails: ValueError: no twin."]


def test_a_gflownet_world_need_not_be_hashable():
    one, other = (
        type("Unhashable", (Strings,), {"__eq__": lambda self, other: True, "__hash__": None})() for _ in "ab"
    )
    assert bind(one) is bind(one) is not bind(other)


def test_a_reward_that_exits_ends_in_a_sentence(tmp_path, capsys):
    assert main(["train", "hypergrid", "--world.reward", f"{HERE}:exits", "--out", str(tmp_path / "run")]) == 2
    assert (
        "fails inside `jit`, given coordinates int32 [2]: SystemExit: 0 (bad_worlds.py, line" in capsys.readouterr().err
    )


def called_back():
    def fail(x):
        raise ValueError("the engine has stalled.\nIt is cold.")

    number = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.jit(lambda x: jax.pure_callback(fail, number, x))(1.0).block_until_ready()


def test_an_error_in_a_callback_is_the_users():
    with pytest.raises(jax.errors.JaxRuntimeError) as found:
        called_back()
    assert raised_in_callback(found.value) == "ValueError: the engine has stalled."
    assert brief(found.value) == "ValueError: the engine has stalled"
    assert not raised_in_callback(ValueError("Traceback (most recent call last):\nKeyError"))


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no words")


@pytest.mark.parametrize("error", [Unspeakable(), asyncio.CancelledError(), GeneratorExit(), SystemExit(0)])
def test_whatever_a_world_on_the_host_raises_is_its_own(error):
    def step():
        raise error

    with pytest.raises(UserCodeFailed, match=rf"`maze` fails in its `step`: {type(error).__name__}\b.*test_bad_worlds"):
        host_calls.call("maze", "step", step)
    with pytest.raises(KeyboardInterrupt):  # somebody wants to stop
        host_calls.call("maze", "step", lambda: exec("raise KeyboardInterrupt"))
    assert brief(error).startswith(type(error).__name__) and not raised_in_callback(error)
    assert type(error).__name__ in format_error(error)[0]


def test_a_sentence_does_not_end_at_a_colon():
    assert brief(TypeError("types differ:\n  a is int\n  b is float")) == "TypeError: types differ: a is int"
    assert brief(TypeError("types differ:")) == "TypeError: types differ"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (called_back, "`maze` fails in a function of its own: ValueError: the engine has stalled."),
        (lambda: exec("raise SystemExit(0)"), "`maze` fails in a function of its own: SystemExit: 0."),
    ],
)
def test_user_code_that_fails_during_a_run_is_named(call, said):
    with ThreadPoolExecutor(1) as thread:
        plan = SimpleNamespace(workload=SimpleNamespace(name="maze", tick="tick"))
        trial = SimpleNamespace(thread=thread, observer=Observer(), plan=plan, done=3, phases=defaultdict(float))
        with pytest.raises(UserCodeFailed) as failed:
            Trial.wait(trial, "training", call)
    assert str(failed.value) == f"{said} The run ended at tick 3." and failed.value.exit_code == 1


def test_a_run_that_fails_in_user_code_before_it_has_trained_leaves_nothing(tmp_path, monkeypatch, capsys):
    def execute(*_, **__):
        raise UserCodeFailed("`maze` fails in its `step`: ValueError: no.")

    monkeypatch.setattr("xladder.training.execute", execute)
    with pytest.raises(XladderError, match="fails in its `step`"):
        xladder.train("cartpole", out=tmp_path / "run", progress=False)
    assert main(["train", "cartpole", "--out", str(tmp_path / "run")]) == 1
    assert "xladder: `maze` fails in its `step`: ValueError: no." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def leak(world):
    """Step a world in two traces, as the checks and a rung do."""
    key, action = jax.random.key(0), jnp.int32(0)
    for _ in range(2):
        jax.jit(lambda state: world.step_env(key, state, action, None)[2])(State(jnp.int32(2), jnp.int32(0)))


def test_what_jax_cannot_trace_of_the_users_is_told_apart_from_our_own():
    def leaked():
        kept = []
        jax.vmap(lambda x: kept.append(x) or x)(jnp.ones(2))
        return kept[0] + 1

    with pytest.raises(jax.errors.UnexpectedTracerError) as found:
        leaked()
    said = untraceable(found.value)
    assert said.startswith(
        "keeps a traced value from one call to another, such as in `self` (UnexpectedTracerError; test_b"
    )
    assert said.endswith("): return it as part of the state")
    with pytest.raises(jax.errors.UnexpectedTracerError) as found:
        leak(bad_worlds.Keeps())
    found.value.__traceback__ = None  # code of ours was the first to read it, and JAX says where it was made
    assert " (UnexpectedTracerError; own_worlds.py, line " in untraceable(found.value)
    with pytest.raises(jax.errors.TracerBoolConversionError) as found:
        jax.eval_shape(lambda x: 1 if x > 0 else 2, 1.0)
    assert untraceable(found.value).startswith("cannot be traced by `jit`: TracerBoolConversionError: ")
    found.value.__traceback__ = None  # no code of the user's own
    assert untraceable(found.value) == untraceable(ValueError("no")) == ""


@pytest.mark.parametrize(
    ("name", "who"), [(f"jax/{HERE}:Keeps", f"`jax/{HERE}:Keeps`"), ("cartpole", "A function of your own")]
)
def test_a_leak_that_shows_only_when_a_rung_compiles_is_the_users(name, who):
    with ThreadPoolExecutor(1) as thread:
        plan = SimpleNamespace(workload=SimpleNamespace(name=name, tick="tick"))
        trial = SimpleNamespace(thread=thread, observer=Observer(), plan=plan, done=0, phases=defaultdict(float))
        with pytest.raises(UserCodeFailed, match=r"bad_worlds\.py, line") as failed:
            Trial.wait(trial, "starting", leak, bad_worlds.Keeps())
    assert str(failed.value).startswith(f"{who} keeps a traced value from one call to another")
    assert str(failed.value).endswith("return it as part of the state. The run ended at tick 0.")


def test_check_takes_the_arguments_of_a_world(capsys, monkeypatch):
    def loaded(name, twin, kwargs):
        yield findings.kept(f"{gymnax_world.load(name, kwargs).layout.shape} {twin}")

    monkeypatch.setattr(contract, "check_jittable", loaded)
    name = f"jax/{HERE}:Sized"
    assert main(["check", name]) == 2
    assert "Its arguments are `--world.kwargs`." in capsys.readouterr().out
    assert main(["check", name, "--world.kwargs", "cells=4", "--twin", f"{HERE}:SizedTwin"]) == 0
    assert f"(5,) {HERE}:SizedTwin" in capsys.readouterr().out
    assert main(["check", name, "--world.kwargs", "cells"]) == 2
    out, err = capsys.readouterr()
    assert not out and "`--world.kwargs` has `cells`, but it has to be name=value" in err
    assert main(["check", f"flow/{HERE}:DrawsReward", "--world.kwargs", "size=4"]) == 2
    assert "`--world.kwargs` are not for `flow/" in capsys.readouterr().err


@pytest.mark.slow
def test_a_twin_is_made_with_the_arguments_of_its_world(capsys):
    words = ["--world.kwargs", "cells=4", "--twin", f"{HERE}:SizedTwin"]
    assert main(["check", f"jax/{HERE}:Sized", *words]) == 0
    assert "its twin returns the same for 200 steps" in capsys.readouterr().out


@pytest.mark.parametrize(("source", "made"), [("gym", "gym_host.GymEnvs"), ("zoo", "zoo_host.ZooEnvs")])
def test_worlds_on_the_host_are_checked_with_their_arguments(source, made, monkeypatch):
    def make(name, *_, kwargs):
        raise UsageError(f"made with {kwargs}")

    monkeypatch.setattr(f"xladder.worlds.{made}", make)
    found = list(contract.check_world(source, f"{source}/m:W", kwargs=("size=4",)))
    assert [finding.sentence for finding in found] == ["made with ('size=4',)"]


def test_a_reward_is_checked_by_itself_and_before_a_run(tmp_path, capsys):
    said = f"`--world.reward {HERE}:noisy` draws random numbers, such as by `np.random`, or changes something outside"
    assert main(["check", "hypergrid", "--world.reward", f"{HERE}:noisy"]) == 2
    out, err = capsys.readouterr()
    assert f"WRONG {said}" in out and err.startswith(f"xladder: `{HERE}:noisy` breaks its contract")
    assert main(["train", "hypergrid", "--world.reward", f"{HERE}:noisy", "--out", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main(["check", "hypergrid", f"--world.reward={HERE}:still"]) == 0
    assert f"`{HERE}:still` fulfils its contract." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hypergrid", "--world.reward", "corners"], "`--world.reward` is corners: `check` is for your own"),
        (["bits", "--world.reward", f"{HERE}:still"], "`--world.reward` is for hypergrid and sets"),
        (["sets", "--world.reward", f"{HERE}:still", "--world.kwargs", "a=1"], "`--world.kwargs` is for a world of"),
        (["sets", "--world.reward", f"{HERE}:missing"], f"`{HERE}` has no `missing`"),
    ],
)
def test_what_is_no_reward_of_ones_own_is_refused(words, said, capsys):
    assert main(["check", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and said in err


def test_parity_speaks_of_the_levels_before_only_if_there_are_any():
    def said(*passed):
        return first_difference([Level(name, 0.0, 0.0, ok) for name, ok in zip("abc", passed, strict=False)])

    assert said(False, True) == "The twins first differ at “a”."
    assert said(True, False) == "The twins first differ at “b”; the level before it agrees."
    assert said(True, True, False) == "The twins first differ at “c”; the levels before it agree."


@pytest.mark.slow
def test_a_world_that_leaks_ends_its_run_and_leaves_nothing(tmp_path, capsys):
    words = ["--steps", "2000", "--learner.hidden", "8", "--out", str(tmp_path / "run")]
    assert main(["train", f"jax/{HERE}:Keeps", *words]) == 1
    said = capsys.readouterr().err
    assert f"`jax/{HERE}:Keeps` keeps a traced value" in said and "bad_worlds.py, line" in said and "bug" not in said
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserCodeFailed, match="keeps a traced value"):
        xladder.train(f"jax/{HERE}:Keeps", steps=2000, learner={"hidden": (8,)}, progress=False)


@pytest.mark.slow
def test_a_world_on_the_host_that_fails_later_ends_its_run(tmp_path, capsys):
    words = ["--rung", "sequential", "--steps", "2000", "--learner.hidden", "8", "--out", str(tmp_path / "run")]
    assert main(["train", f"zoo/{HERE}:FailsLater", *words]) == 1
    said = capsys.readouterr().err
    assert f"fails in its `step`: {LATE}. The run ended at tick 0." in said and "bug" not in said
    assert not (tmp_path / "run").exists()
