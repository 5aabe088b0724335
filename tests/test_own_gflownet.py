"""Worlds and rewards of one's own for GFlowNets: equal on every rung, exactly evaluated, and refused if bad."""

import re
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_close, assert_trees_equal
from tests.test_cli import call
from xladder import plan, user_code
from xladder.core.mapping import pick
from xladder.errors import UsageError
from xladder.families.gflownet import evaluation, exact
from xladder.families.gflownet.check import check_world, remarks_on
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.own_presets import Config, WorldConfig
from xladder.families.gflownet.parity import levels
from xladder.families.gflownet.program import Program
from xladder.learners.gflownet import GFlowNetLearner
from xladder.rungs import fused, hybrid, mesh, parallel, sequential
from xladder.rungs import torch as torch_rung
from xladder.rungs.running import compiled
from xladder.worlds.bit_strings import BitStrings
from xladder.worlds.flow import FlowWorld, for_object
from xladder.worlds.flow_jitted import JittedHost
from xladder.worlds.flow_own import OwnWorld
from xladder.worlds.hypergrid_settings import WorldConfig as Grid

ROOT = Path(__file__).parent.parent


class Strings(FlowWorld):
    """Strings of up to three letters of two, longer at the left or at the right: one state has several parents, several
    actions lead from one parent to the same state, and it may stop at any time. A state is a pytree."""

    num_actions, max_steps, size = 5, 4, 3

    def initial(self):
        return {"letters": jnp.zeros(self.size, jnp.int8), "length": jnp.int32(0)}

    def forward_mask(self, state):
        return jnp.append(jnp.full(4, state["length"] < self.size), True)

    def backward_mask(self, state):
        left, right = state["letters"][0], state["letters"][jnp.maximum(state["length"] - 1, 0)]
        return (state["length"] > 0) & jnp.stack([left == 0, left == 1, right == 0, right == 1])

    def forward(self, state, action):
        letter, letters = (action % 2).astype(jnp.int8), state["letters"]
        left, right = jnp.roll(letters, 1).at[0].set(letter), letters.at[state["length"]].set(letter)
        return {"letters": jnp.where(action < 2, left, right), "length": state["length"] + 1}

    def backward(self, state, action):
        letters = state["letters"]
        left, right = jnp.roll(letters, -1).at[-1].set(0), letters.at[state["length"] - 1].set(0)
        return {"letters": jnp.where(action < 2, left, right), "length": state["length"] - 1}

    def log_reward(self, state):
        return 0.5 * state["letters"].sum() - 0.3 * state["length"].astype(jnp.float32)


STRINGS = for_object(Strings())
SMALL = LearnerConfig(batch_size=6, width=16, memory=8, epsilon=0.3, explore_until=0.5)
CONFIGS = {
    "bits": Config(WorldConfig("flow/bits"), SMALL, iterations=20),
    "strings": Config(WorldConfig(STRINGS), replace(SMALL, replay="prioritised"), loss="subtb", iterations=20),
}
RUNGS = {"sequential": sequential, "parallel": parallel, "fused": fused, "torch": torch_rung, "hybrid": hybrid}
TICKS = 4


@cache
def trained(rung, name):
    with pytest.MonkeyPatch.context() as patch:
        for module in (torch_rung, hybrid):
            patch.setattr(module, "choose_threads", lambda config, threads=None: "")
        run = RUNGS[rung].start(CONFIGS[name], [3])
    begun = jax.tree.map(np.array, run.params())
    return begun, run.advance(TICKS), run.params()


# ---- rungs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["strings", pytest.param("bits", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("fused", "sequential", marks=pytest.mark.slow),
        ("hybrid", "torch"),
        pytest.param("parallel", "sequential", marks=pytest.mark.slow),
    ],
)
def test_rungs_make_the_same_run(one, other, name):
    (begun, metrics, params), (other_begun, other_metrics, other_params) = trained(one, name), trained(other, name)
    assert_trees_equal(begun, other_begun)
    for column in ("length", "reward"):
        np.testing.assert_allclose(metrics[column], other_metrics[column], rtol=1e-6)
    np.testing.assert_allclose(metrics["loss"], other_metrics["loss"], rtol=1e-4, atol=1e-5)
    assert_trees_close(params, other_params, 1e-5)
    assert np.abs(params["forward_head"]["kernel"] - begun["forward_head"]["kernel"]).max() > 1e-4


@pytest.mark.slow
def test_over_a_mesh_it_is_the_same_run():
    config = replace(CONFIGS["strings"], learner=replace(CONFIGS["strings"].learner, batch_size=8))
    run = mesh.start(config, [3], mesh="data=2")
    alone = fused.start(config, [3])
    np.testing.assert_allclose(run.advance(TICKS)["loss"], alone.advance(TICKS)["loss"], rtol=1e-4)
    assert_trees_close(run.params(), alone.params(), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["strings", "bits"])
def test_parity_holds_on_every_level(name):
    found = levels(CONFIGS[name], updates=3)
    assert [level.level for level in found][:3] == ["world twins", "memory twins", "forward"]
    assert all(level.passed for level in found), found


# ---- exact answers ---------------------------------------------------------------------------------------------------


def all_strings():
    return ["".join(letters) for size in range(4) for letters in product("01", repeat=size)]


def as_state(text):
    return np.array([*map(int, text.ljust(3, "0")), len(text)])[[3, 0, 1, 2]]  # leaves in the order of their names


def test_all_states_and_edges_are_found():
    world = CONFIGS["strings"].world.build()
    known = world.enumeration()
    expected = {tuple(as_state(text).tolist()) for text in all_strings()}
    # "length" comes before "letters".
    assert {tuple(state) for state in known.states.tolist()} == expected
    assert known.terminal.all() and len(known.levels) == world.max_steps
    for text in all_strings():
        here = known.place(as_state(text)[None])[0]
        after = [f"0{text}", f"1{text}", f"{text}0", f"{text}1"] if len(text) < 3 else []
        assert known.children[here].tolist() == [known.place(as_state(t)[None])[0] for t in after] or not after
        before = [(text[1:], text[:1] == str(b)) for b in (0, 1)] + [(text[:-1], text[-1:] == str(b)) for b in (0, 1)]
        for action, (parent, there) in enumerate(before):
            number = known.place(as_state(parent)[None])[0] if there else len(known.states)
            assert known.parents[here, action] == number
    rewards = [0.5 * t.count("1") - 0.3 * len(t) for t in all_strings()]
    assert world.log_z() == pytest.approx(np.logaddexp.reduce(rewards), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["subtb", pytest.param("fm", marks=pytest.mark.slow)])
def test_the_distribution_is_the_sum_over_all_trajectories(loss):
    config = replace(CONFIGS["strings"], loss=loss)
    world, learner = config.world.build(), GFlowNetLearner(config)
    known = world.enumeration()
    params = learner.init(jax.random.key(0)).params
    log_pf = np.asarray(jax.jit(learner.log_policies)(params, known.states)[0], float)
    chance = np.zeros(len(known.states))

    def onward(state, log_p):
        chance[state] += np.exp(log_p + log_pf[state, -1])
        for action, child in enumerate(known.children[state]):
            if child < len(known.states):
                onward(child, log_p + log_pf[state, action])

    onward(0, 0.0)
    assert chance.sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(np.exp(evaluation.distribution(config, params, compiled)), chance, rtol=1e-4)
    found = evaluation.measure(config, jax.tree.map(lambda x: x[None], params), 0, compiled).columns
    target = np.exp(known.log_target)
    assert found["tv"] == pytest.approx(np.abs(chance - target).sum() / 2, abs=1e-5)
    assert found["elbo"] <= world.log_z() + 1e-5 <= found["eubo"] + 2e-5
    table = evaluation.draw_objects(config, params, 50, 0, compiled)
    places = known.place(np.stack([table[f"state_{i}"] for i in range(1, 5)], axis=1))
    np.testing.assert_allclose(np.exp(table["log_probability"]), chance[places], rtol=1e-4)


@pytest.mark.slow
def test_only_complete_objects_are_in_the_target_of_a_world_that_has_to_finish():
    world = OwnWorld(BitStrings(length=3, hidden=2))
    known = world.enumeration()
    assert len(known.states) == 27 and known.terminal.sum() == 8 and len(known.levels) == 4
    rewards = [-1.5 * np.min((1 + np.array(bits) != world.world.hidden).sum(1)) for bits in product((0, 1), repeat=3)]
    assert world.log_z() == pytest.approx(np.logaddexp.reduce(rewards), abs=1e-6)
    drawn = np.asarray(world.draw_target(jax.random.key(0), 500))
    assert (drawn > 0).all()


@pytest.mark.slow
def test_a_target_that_is_not_known_is_judged_by_how_probability_and_reward_go_together():
    config = replace(CONFIGS["strings"], evaluation="sampled", eval_samples=300)
    params = GFlowNetLearner(config).init(jax.random.key(0)).params
    found = evaluation.measure(config, jax.tree.map(lambda x: x[None], params), 0, compiled).columns
    # So few strings can be counted: their log Z is known although the rest is sampled.
    assert set(found) == set(config.family.measured(config)) == {"correlation", "elbo", "mean_return", "logz_error"}
    exactly = evaluation.measure(
        replace(config, evaluation="exact"), jax.tree.map(lambda x: x[None], params), 0, compiled
    )
    assert found["elbo"] == pytest.approx(exactly.columns["elbo"], abs=0.3)
    assert found["mean_return"] == pytest.approx(exactly.columns["mean_return"], rel=0.2)
    assert -1 <= found["correlation"] <= 1


@pytest.mark.slow
def test_the_target_of_a_world_of_ones_own_is_learned():
    config = replace(CONFIGS["strings"], loss="tb", learner=LearnerConfig(width=64), iterations=1500)
    run = fused.start(config, [0])
    run.advance(1500)
    assert evaluation.measure(config, run.params(), 0, compiled).columns["tv"] < 0.03


# ---- bad worlds ------------------------------------------------------------------------------------------------------


def altered(**changes):
    return type("Altered", (Strings,), changes)()


BAD = {
    "nothing is allowed": (
        dict(forward_mask=lambda self, s: jnp.zeros(5, bool)),
        "`forward_mask` allows nothing in state [0, 0, 0, 0]",
    ),
    "a mask of another size": (
        dict(forward_mask=lambda self, s: jnp.ones(4, bool)),
        "bool [4], but it has to be bool [5]",
    ),
    "a step to another type": (
        dict(forward=lambda self, s, a: {**Strings.forward(self, s, a), "length": jnp.float32(1)}),
        "`forward` gives float32 [], int8 [3] where a state is int32 [], int8 [3]",
    ),
    "no way back": (
        dict(backward=lambda self, s, a: {**s, "length": s["length"] - 1}),
        "`backward` is not the inverse of `forward`",
    ),
    "too short": (dict(min_steps=2), "a trajectory can have 1 steps, stop included, but `min_steps` is 2"),
    "too long": (dict(max_steps=3), "a trajectory can have 4 steps, stop included, but `max_steps` is 3"),
    "not a number": (
        dict(log_reward=lambda self, s: jnp.log(s["length"] - 1.0)),
        "`log_reward` gives nan for the object",
    ),
    "no reward": (dict(log_reward=lambda self, s: jnp.log(s["length"] * 1.0)), "-inf for the object [0, 0, 0, 0]"),
    "no reward anywhere": (dict(log_reward=lambda self, s: -jnp.inf), "and nothing finite for every object tried"),
    "not jittable": (dict(log_reward=lambda self, s: float(s["length"])), "`log_reward` fails inside `jit`"),
    "no number of actions": (dict(num_actions=None), "`num_actions` is None"),
    "whole numbers": (dict(encode=lambda self, s: s["letters"]), "`num_inputs` has to say how many"),
    "a state of floats": (dict(initial=lambda self: jnp.zeros(2)), "`initial` gives float32 [2]"),
    "infinite": (
        dict(log_reward=lambda self, s: jnp.where(s["length"] == 2, jnp.inf, 0.0)),
        "gives inf for the object",
    ),
    "not a logarithm": (
        dict(log_reward=lambda self, s: 1e25 * s["length"]),
        "`log_reward` goes up to 3e+25 in size, and 1e+18 is possible",
    ),
    "too large a number": (dict(initial=lambda self: np.full(2, 2**40)), "outside [−2³¹, 2³¹)"),
    "no terms": (dict(num_terms=2), "`num_terms` is 2, but there is no `log_terms`"),
    "no modes": (dict(modes_counted=2), "`modes_counted` is 2, but there is no `near_modes`"),
    "fewer modes": (
        dict(modes_counted=2, near_modes=lambda self, s: s["letters"] > 0),
        "`near_modes` gives bool [3] for one state, but it has to be bool [2]",
    ),
    "no metrics": (dict(metric_texts={"size": "letters"}), "but there is no `metrics`"),
    "a metric is lacking": (
        dict(metric_texts={"size": "letters"}, metrics=lambda self, sampler: {}),
        "`metrics` gives no 'size'",
    ),
    "a metric of many numbers": (
        dict(metric_texts={"size": "letters"}, metrics=lambda self, sampler: {"size": sampler.sample(3)["length"]}),
        "`metrics` gives int32 [3] for 'size', but it has to be one number",
    ),
    "a metric that fails": (
        dict(metric_texts={"size": "letters"}, metrics=lambda self, sampler: {"size": sampler.sample(3).mean()}),
        "`metrics` fails inside `jit`: AttributeError",
    ),
    "a metric's name is taken": (
        dict(metric_texts={"tv": "mine"}, metrics=lambda self, sampler: {"tv": 0.0}),
        "every sampler has a column of that name",
    ),
    "a chart of another rank": (
        dict(chart_text="letters", chart=lambda self, s: s["letters"]),
        "`chart` gives int8 [3] for one state, but it has to be float [H, W]",
    ),
    "log Z is another": (
        dict(known_log_z=lambda self: 1.0),
        "`known_log_z` is 1, but the rewards of all objects add up",
    ),
    "log Z is no number": (dict(known_log_z=lambda self: np.nan), "`known_log_z` is nan"),
    "columns of another length": (
        dict(table_columns=lambda self, objects: {"x": np.zeros(1)}),
        "`table_columns` gives float64 [1] for the column 'x' of 3 objects",
    ),
    "an image that fails": (dict(image=lambda self, s: s["length"][0]), "`image` fails: "),
    "actions of other tokens": (
        dict(encode=lambda self, s: s["letters"].astype(int), num_inputs=3, actions_per_token=3),
        "makes 9 actions for the 3 numbers of `encode`, but there are 4 besides stop",
    ),
}


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (1.0, []),
        (0.0, ["is 0 for every object tried"]),
        (2e3, ["lies between 0 and 6000: the rewards differ by a factor"]),
    ],
)
def test_rewards_that_are_rarely_meant_are_remarked_on(scale, said):
    world = altered(log_reward=lambda self, s: jnp.float32(scale) * s["length"])
    found = list(remarks_on(for_object(world)))
    assert len(found) == len(said) and all(words in remark for words, remark in zip(said, found, strict=True)), found


def test_what_a_world_has_by_choice_may_be_right():
    assert (
        check_world(
            altered(
                modes_counted=2,
                near_modes=lambda self, s: s["letters"][:2] > 0,
                metric_texts={"size": "letters", "log_p": "of the empty string"},
                metrics=lambda self, sampler: {
                    "size": sampler.sample(10)["length"].mean(),
                    "log_p": sampler.log_probability(jax.tree.map(lambda x: x[None], self.initial())).mean(),
                },
                chart_text="letters",
                chart=lambda self, s: s["letters"][None],
                image=lambda self, s: s["letters"][None],
            )
        )
        == []
    )


def test_states_of_64_bits_are_kept_as_32_without_a_word(recwarn):
    def initial(self):
        return {"length": np.int64(0), "letters": np.zeros(3, np.int8)}

    assert check_world(altered(initial=initial)) == []
    assert not recwarn.list


def test_forward_looking_flows_need_rewards_on_the_way():
    class Full(BitStrings):
        def log_reward(self, state):
            return jnp.where((state > 0).all(), 0.5, jnp.nan)

    assert check_world(Full(3)) == []
    with pytest.raises(UsageError, match=r"`--loss fldb` needs .* that of \[0, 0, 0\] is nan.* `--loss db`"):
        plan(Full(3), changes={"loss": "fldb"})
    plan(Full(3), changes={"loss": "db"})


@pytest.mark.parametrize(("changes", "said"), BAD.values(), ids=BAD)
def test_bad_worlds_are_told_what_is_wrong_with_them(changes, said):
    assert any(said in fault for fault in check_world(altered(**changes))), check_world(altered(**changes))


class Stairs(FlowWorld):
    """0 → 1 → 2 → 3, and 11 → 12 → 13 beside them."""

    num_actions, max_steps, listed = 2, 4, (0, 1, 2, 3)

    def initial(self):
        return jnp.zeros(1, jnp.int32)

    def forward_mask(self, state):
        return jnp.append((state < 3) | (state == 11) | (state == 12), True)

    def backward_mask(self, state):
        return state > 0

    def forward(self, state, action):
        return state + 1

    def backward(self, state, action):
        return state - 1

    def log_reward(self, state):
        return -0.5 * state[0]

    def states(self):
        return np.array(self.listed, np.int32)[:, None]


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (
            (0, 1, 2, 3, 12, 13),
            r"`states` lists \[12\] and 1 more, to which no steps from the initial state lead",
        ),
        ((1, 2, 3), r"`states` does not list the initial state \[0\]"),
        ((0, 1, 2), r"`states` does not list \[3\], to which `forward` leads"),
        ((0, 1, 2, 3, 3), "`states` lists some states more than once"),
    ],
)
def test_a_list_of_states_is_checked(listed, said):
    faults = check_world(type("Listed", (Stairs,), {"listed": listed})())
    assert any(re.search(said, fault) for fault in faults), faults
    assert check_world(Stairs()) == []


def test_good_worlds_are_left_alone_and_bad_ones_have_no_plan():
    assert check_world(Strings()) == []
    with pytest.raises(UsageError, match="allows nothing in state"):
        plan(for_object(altered(**BAD["nothing is allowed"][0])))
    with pytest.raises(UsageError, match=r"has to be a `FlowWorld`"):
        plan(f"flow/{user_code.give(object())}")
    with pytest.raises(UsageError, match=r"There is no world `flow/bitts`"):
        plan("flow/bitts")


@dataclass
class Unhashable(BitStrings):
    """A dataclass that compares its fields, one of which is an array."""

    length: int = 2
    bonus: np.ndarray = field(default_factory=lambda: np.zeros(2))

    def __post_init__(self):
        super().__init__(self.length)


def test_a_world_need_not_be_hashable():
    for world in (Unhashable(), Unhashable(bonus=np.ones(2))):
        assert check_world(world) == []
        assert plan(world).config.world.build().world.length == 2
    assert plan(Unhashable()).workload.name == "flow/tests.test_own_gflownet:Unhashable"


def test_a_reward_may_be_an_object_that_is_not_hashable():
    @dataclass
    class Hill:
        height: np.ndarray

        def __call__(self, cell):
            return -(cell * self.height).sum()

    made = plan("hypergrid", world={"reward": Hill(np.float32([1, 2])), "side": 3})
    assert made.config.world.build().log_reward(jnp.array([1, 1])) == -3


@pytest.mark.slow
def test_a_world_too_large_to_list_is_checked_on_random_trajectories():
    assert OwnWorld(BitStrings(length=20)).enumeration() is None
    wrong = type("Wrong", (BitStrings,), {"backward": lambda self, s, a: s.at[a % 20].set(0)})(length=20)
    assert any("not the inverse" in fault or "does not allow it" in fault for fault in check_world(wrong))


# ---- rewards of one's own on the hypergrid ---------------------------------------------------------------------------


def corners(cell):
    return -0.5 * ((cell - 2) ** 2).sum().astype(jnp.float32)


REWARDS = {
    "minus infinity": (lambda cell: jnp.log(cell.sum() * 1.0), r"returns -inf in cell \(0, 0\)"),
    "not a number": (lambda cell: jnp.where(cell[0] == 3, jnp.nan, 0.0), r"returns nan in cell \(3, 0\)"),
    "a Python float": (lambda cell: 1.0, "returns a Python float"),
    "a vector": (lambda cell: cell * 1.0, r"returns float32 \[2\] for one cell"),
    "no JAX": (lambda cell: float(cell[0]), "fails inside `jit`"),
    "nothing": (lambda cell: None, "returns a NoneType"),
    "not a logarithm": (lambda cell: -1e25 * cell.sum(), r"goes up to 8e\+25 in size, and 1e\+18 is possible"),
}


@pytest.mark.parametrize(("reward", "said"), REWARDS.values(), ids=REWARDS)
def test_bad_rewards_are_refused(reward, said):
    with pytest.raises(UsageError, match=rf"`--world.reward .*function.*` {said}"):
        plan("hypergrid", world={"reward": reward, "side": 5})


@pytest.mark.slow
def test_a_reward_of_ones_own_is_evaluated_exactly():
    made = plan("hypergrid", world={"reward": corners, "side": 5}, learner={"width": 16, "batch_size": 6})
    config, world = made.config, made.config.world.build()
    cells = np.indices((5, 5)).reshape(2, -1).T
    rewards = -0.5 * ((cells - 2) ** 2).sum(1)
    assert config.exact and world.log_z() == pytest.approx(np.logaddexp.reduce(rewards), abs=1e-6)
    np.testing.assert_allclose(
        world.target_picture(exact=True), np.exp(rewards - world.log_z()).reshape(5, 5), rtol=1e-5
    )
    np.testing.assert_allclose(config.world.host().log_reward(cells), rewards, rtol=1e-6)
    params = jax.jit(jax.vmap(GFlowNetLearner(config).init))(jax.random.split(jax.random.key(0), 1)).params
    columns, picture = evaluation.measure(config, params, 0, compiled)
    p = np.exp(evaluation.distribution(config, pick(params, 0), compiled))
    assert columns["tv"] == pytest.approx(np.abs(p - np.exp(rewards - world.log_z())).sum() / 2, abs=1e-5)
    assert picture.shape == (1, 5, 5) and columns["modes"] <= 1 == world.num_modes()


@pytest.mark.slow
def test_a_reward_of_ones_own_on_a_grid_too_large_to_enumerate_is_judged_by_samples():
    config = plan("hypergrid", world={"reward": corners, "side": 4, "dim": 11}).config
    assert not config.exact and not config.world.charted
    assert set(config.family.measured(config)) == {"correlation", "elbo", "mean_return"}
    assert Grid(11, 4).charted


# ---- as a user types it ----------------------------------------------------------------------------------------------

MINE = """
import jax.numpy as jnp
from tests.test_own_gflownet import Strings

class Mine(Strings):
    pass

def hill(cell):
    return -(cell * 1.0).sum()

def flat(cell):
    return 0.0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_flow_worlds.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_flow_worlds", None)
    user_code._named.pop("my_flow_worlds", None)


LITTLE = ["--iterations", "4", "--evaluate-every", "4", "--learner.width", "16", "--learner.batch-size", "6"]


@pytest.mark.slow
def test_train_eval_and_sample_on_the_command_line(folder, capsys):
    assert call("train", "flow/my_flow_worlds:Mine", *LITTLE, "--out", "run") == 0
    assert (folder / "run" / "media" / "scatter.png").exists()
    user_code._named.pop("my_flow_worlds")  # as in another process, which has not been told of it
    assert call("eval", "run") == 2
    assert "--import my_flow_worlds" in capsys.readouterr().err
    assert call("eval", "run", "--import", "my_flow_worlds") == 0
    assert "total variation" in capsys.readouterr().out
    assert call("sample", "run", "-n", "3", "--out", "-", "--import", "my_flow_worlds") == 0
    assert capsys.readouterr().out.startswith("state_1,state_2,state_3,state_4,reward,log_reward,log_probability")


def test_a_reward_on_the_command_line(folder, capsys):
    assert call("train", "hypergrid", "--world.reward", "my_flow_worlds:flat") == 2
    assert "`--world.reward my_flow_worlds:flat` returns a Python float" in capsys.readouterr().err
    assert call("train", "hypergrid", "--world.reward", "my_flow_worlds:hills") == 2
    assert "has no `hills`" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["my_flow_worlds.py"]


@pytest.mark.slow
def test_compare_finds_it_in_processes_of_its_own(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}:{folder}")
    words = ["--rungs", "torch,fused", "--iterations", "4", "--chart", "c.png"]
    assert call("compare", "flow/my_flow_worlds:Mine", *words) == 0
    assert call("train", "hypergrid", "--world.reward", "my_flow_worlds:hill", *LITTLE, "--out", "hill") == 0


@pytest.mark.slow
def test_the_world_on_the_host_is_the_world(monkeypatch):
    world = CONFIGS["strings"].world.build()
    host = JittedHost(world)
    states = world.enumeration().states
    for verb in ("forward_mask", "backward_mask", "encode", "log_reward"):
        np.testing.assert_allclose(getattr(host, verb)(states), jax.vmap(getattr(world, verb))(states))
    assert exact.tables(CONFIGS["strings"].world).terminal is None
    assert exact.tables(CONFIGS["bits"].world).terminal is not None
    assert Program(CONFIGS["strings"]).learner.world is world
