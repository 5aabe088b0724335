"""Torsos that users bring, on every rung, against their twins, and what is said of wrong ones; masks of actions."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tests.own_nets as own
from xladder import user_code
from xladder.cli.main import main
from xladder.errors import UsageError
from xladder.execution import execute
from xladder.families.value import acting, own_torsos, parity, torso_twins_torch
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value.learner_config import MEMBERS, LearnerConfig
from xladder.families.value.torch_backend import make_learner, make_net, make_torso
from xladder.learners.masks import MASKED_VALUE
from xladder.learners.value_torch import Draws, TorchLearner
from xladder.plans import plan
from xladder.registry import RungOptions
from xladder.replay.batch import Batch
from xladder.runs.nets import check_twin
from xladder.worlds.envs import EnvSpec

SMALL = {"width": 8, "batch_size": 8, "memory": 400, "learning_starts": 32, "steps_per_update": 4, "tau": 0.01}
ENVS = {"num_envs": 4}
ONE_THREAD = RungOptions(threads=1)


@pytest.fixture(autouse=True)
def named():
    """The user has named the module."""
    user_code.allow("tests.own_nets")


def planned(torso, rung="fused", **fields):
    learner = {**SMALL, "torso": torso, **fields.pop("learner", {})}
    options = ONE_THREAD if rung in ("torch", "hybrid") else None
    return plan(
        "cartpole",
        rung,
        steps=160,
        learner=learner,
        world=ENVS,
        evaluate_episodes=0,
        options=options,
        **fields,
    )


def command(words):
    return main(words.split())


def config_of(torso, **learner):
    return gymnax.Config(
        gymnax.WorldConfig(num_envs=4), LearnerConfig(**{**SMALL, "torso": torso, **learner}), steps=160
    )


# ---- rungs and parity ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "rung",
    ["torch", *(pytest.param(rung, marks=pytest.mark.slow) for rung in ("hybrid", "sequential", "parallel")), "fused"],
)
def test_an_own_torso_trains_on_every_rung(rung):
    result = execute(planned("tests.own_nets:Torso", rung))
    assert result.params["torso"]["Dense_0"]["kernel"].shape == (1, 4, 12)
    assert np.isfinite(result.metrics["loss"][0, -1])


@pytest.mark.slow
def test_every_level_of_parity_passes_and_names_are_found_by_structure():
    names = torso_twins_torch.torso_names("tests.own_nets:Torso", EnvSpec((4,), np.dtype(np.float32), 2), 1)
    pairs = {pair.torch.name: pair.flax.name for pair in names.match.pairs}
    assert pairs == {"first": "Dense_0", "norm": "LayerNorm_0", "second": "Dense_1", "gate": "Dense_2"}
    levels = parity.levels(config_of("tests.own_nets:Torso", **MEMBERS["double"]), 3)
    assert all(level.passed for level in levels), levels


def test_only_the_first_of_two_biases_is_trained_where_flax_has_one():
    twin = torso_twins_torch.make_twin("tests.own_nets:Gru", EnvSpec((4,), np.dtype(np.float32), 2), 3)
    twin(torch.randn(2, 3, 4)).sum().backward()
    reset_and_update, new = twin.cell.bias_hh_l0.grad.split([10, 5])
    assert not reset_and_update.any() and new.all(), "the new gate has two biases in Flax as well"
    assert twin.cell.bias_ih_l0.grad.all()


@pytest.mark.slow
def test_every_level_of_parity_passes_with_a_recurrent_torso():
    levels = parity.levels(config_of("tests.own_nets:Gru", **MEMBERS["double"]), 5)
    assert all(level.passed for level in levels), levels


@pytest.mark.slow
def test_a_twin_with_the_same_layers_that_computes_something_else_fails_the_forward_pass():
    levels = parity.levels(config_of("tests.own_nets:WrongNumbers"), 1)
    assert next(level.level for level in levels if not level.passed) == "forward"


def test_classes_functions_and_modules_may_be_given_in_python():
    for torso, width in ((own.Torso, 12), (own.make_wide, 20), (own.Torso(width=7), 7)):
        found = planned(torso).config.learner.torso
        assert isinstance(found, str) and found.startswith("tests.own_nets:")
        assert own_torsos.make(found).width == width
        twin = torso_twins_torch.make_twin(found, EnvSpec((4,), np.dtype(np.float32), 2), 1)
        assert twin.first.out_features == width


def test_parameters_cross_to_pytorch_and_back_bit_by_bit():
    config = config_of("tests.own_nets:Torso")
    program, other = acting.ActingProgram(config), make_learner(config)
    params = jax.device_get(jax.jit(program.init_params)(jax.random.key(0)))
    other.load(params)
    returned = other.to_jax(other.net.state_dict())
    assert jax.tree.structure(returned) == jax.tree.structure(params)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(returned), strict=True))


def test_making_the_map_leaves_pytorchs_generator_alone():
    config = config_of("tests.own_nets:Torso")
    torch.manual_seed(0)
    first = make_learner(config).net.state_dict()
    torso_twins_torch._matched.cache_clear()
    torch.manual_seed(0)
    second = make_learner(config).net.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_exported_for_pytorch_and_imported_again(tmp_path, capsys):
    run, file = tmp_path / "run", tmp_path / "net.pt"
    flags = "--steps 160 --world.num-envs 4 --evaluate-episodes 0 --learner.width 8 --learner.batch-size 8"
    torso = "--learner.torso tests.own_nets:Torso --learner.learning-starts 32 --learner.memory 400"
    assert command(f"train cartpole --rung fused --eval-episodes 0 {flags} {torso} --out {run}") == 0
    assert command(f"export {run} --to torch --out {file}") == 0
    state = torch.load(file, weights_only=True)
    torso = own.TorsoTorch((1, 4), 12)
    mine = {name.removeprefix("torso."): x for name, x in state.items() if name.startswith("torso.")}
    assert not torso.load_state_dict(mine, strict=False).unexpected_keys
    assert command(f"import {file} --workload cartpole --config {run}/config.json --out {tmp_path}/back") == 0
    capsys.readouterr()


def test_a_run_directory_imports_nothing_by_itself(tmp_path, monkeypatch):
    (tmp_path / "strange_nets.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    from xladder.plans import make_plan

    with pytest.raises(UsageError, match="--import strange_nets"):
        make_plan("cartpole", changes={"learner": {"torso": "strange_nets:Torso"}})


# ---- complaints ----------------------------------------------------------------------------------------------------

WRONG = {
    "mpl": "no torso `mpl`. Did you mean `mlp`?",
    "tests.own_nets:Missing": "has no `Missing`",
    "tests.own_nets:NOT_A_TORSO": "Flax Linen module",
    "tests.own_nets:TorsoTorch": "is a PyTorch module",
    "tests.own_nets:Raises": r"cannot take a state of `cartpole`, float32 \[1, 4\]: ",
    "tests.own_nets:Grid": r"returns \[1, 3\] for one state",
    "tests.own_nets:ByKey": "takes named parts",
    "tests.own_nets:Draws": "nothing in it may be random",
}
WRONG_TWINS = {
    "tests.own_nets:WrongShape": r"first pair that does not: `inside` \(Linear: weight \[9, 4\], bias \[9\]\)",
    "tests.own_nets:WrongFeatures": r"returns \[4, 9\] for a batch of 4, but the Flax module returns \[4, 8\]",
    "tests.own_nets:Attends": "cannot be matched with it: `m` is a MultiheadAttention, which cannot be converted yet",
}


@pytest.mark.parametrize("torso", WRONG)
def test_what_is_wrong_is_said_while_planning(torso):
    with pytest.raises(UsageError, match=WRONG[torso]):
        planned(torso)


@pytest.mark.parametrize("torso", WRONG_TWINS)
def test_a_wrong_twin_matters_only_where_it_is_needed(torso):
    made = planned(torso, "fused")
    assert "no `torch`, `compiled`, `hybrid`" in made.workload.family.note(made.config)
    for rung in ("torch", "compiled", "hybrid"):
        with pytest.raises(UsageError, match=f"`{rung}` cannot run this: .*{WRONG_TWINS[torso]}.*Use `sequential`"):
            planned(torso, rung)
    for needs_it in (lambda: parity.levels(made.config, 1), lambda: check_twin(made)):
        with pytest.raises(UsageError, match=WRONG_TWINS[torso]):
            needs_it()


def test_without_a_twin_all_rungs_run_but_those_of_pytorch():
    assert planned("tests.own_nets:Plain", "sequential")
    for rung in ("torch", "compiled", "hybrid"):
        with pytest.raises(UsageError, match=r"no PyTorch twin \(`PlainTorch` in its module.*Use `sequential`"):
            planned("tests.own_nets:Plain", rung)
    with pytest.raises(UsageError, match="nothing to compare with: the torso"):
        parity.levels(config_of("tests.own_nets:Plain"), 1)


# ---- parts by key --------------------------------------------------------------------------------------------------

FIELDS = (("far", (2,), "int32"), ("near", (2, 3), "float32"))
TREE = EnvSpec((8,), np.dtype(np.float32), 3, fields=FIELDS)


def test_a_torso_may_ask_for_the_parts_of_an_observation():
    config = LearnerConfig(**{**SMALL, "torso": "tests.own_nets:ByKey"})
    torso_twins_torch.check_twin(config.torso, TREE, 2, own_torsos.check(config.torso, TREE, 2, "somewhere"))
    learner = acting.build(config, TREE, 2)
    rng = np.random.default_rng(0)
    states = np.concatenate([rng.integers(0, 9, (5, 2, 2)), rng.normal(size=(5, 2, 6))], axis=-1).astype(np.float32)
    params = jax.jit(learner.net.init)(jax.random.key(0), states)["params"]
    values = jax.jit(lambda params, states: learner.values(params, states, None, None))(params, states)
    other = TorchLearner(
        config,
        make_net(config, torso_twins_torch.make_twin(config.torso, TREE, 2), TREE, 2),
        torso_names=torso_twins_torch.torso_names(config.torso, TREE, 2),
    )
    other.load(jax.tree.map(np.asarray, params))
    np.testing.assert_allclose(values, other.values(states), rtol=1e-5, atol=1e-6)


# ---- masks ---------------------------------------------------------------------------------------------------------

MASKED = EnvSpec((5 + 3,), np.dtype(np.float32), 3, masked=True)


def masked_states(rng, *lead):
    """States [..., F, D + A] in which some actions are available; only the newest frame's mask counts."""
    seen = rng.normal(size=(*lead, 2, 5))
    masks = rng.random((*lead, 2, 3)) < 0.5
    masks[..., 0] |= ~masks.any(-1)
    return np.concatenate([seen, masks], axis=-1).astype(np.float32)


def twins(member):
    config = LearnerConfig(**{**SMALL, **MEMBERS[member], "quantiles": 4, "act_quantiles": 4, "atoms": 5})
    config = replace(config, noisy=False, prioritised=False)
    learner = acting.build(config, MASKED, 2)
    taus = jnp.zeros((4,)) if learner.fractions else None
    init = jax.jit(lambda i: learner.net.init(jax.random.key(i), jnp.zeros((2, 5)), taus)["params"])
    params, target = init(0), init(1)
    other = TorchLearner(config, make_net(config, make_torso(config, MASKED, 2), MASKED, 2), masked=True)
    other.load(jax.tree.map(np.asarray, params))
    other.load(jax.tree.map(np.asarray, target), target=True)
    return learner, params, target, other


@partial(jax.jit, static_argnums=0)
def judge(learner, params, target, batch, taus):
    """The values of states for acting, losses and errors."""
    values = learner.values(params, batch.states, taus[0] if learner.fractions else None, None)
    return values, *learner.losses(params, target, batch, taus, (None, None, None))


def batch_of(rng, states, next_states):
    actions = np.argmax(states[:, -1, -3:], axis=1).astype(np.int8)
    returns, discounts = np.float32(rng.normal(size=len(states))), np.full(len(states), 0.9, np.float32)
    return Batch(states, actions, returns, discounts, next_states, np.ones(len(states), np.float32))


SLOW = [pytest.param(member, marks=pytest.mark.slow) for member in ("double", "qrdqn", "iqn")]


@pytest.mark.parametrize("member", ["dqn", "c51", "munchausen", *SLOW])
def test_unavailable_actions_are_never_chosen_nor_bootstrapped_from(member):
    learner, params, target, other = twins(member)
    rng = np.random.default_rng(1)
    batch = batch_of(rng, masked_states(rng, 8), masked_states(rng, 8))
    taus = rng.random((3, 8, learner.fractions), np.float32)
    values, *losses = jax.device_get(judge(learner, params, target, batch, taus))
    available, next_available = (states[:, -1, -3:] > 0 for states in (batch.states, batch.next_states))
    assert np.all((values == np.float32(MASKED_VALUE)) == ~available)
    np.testing.assert_allclose(values, other.values(batch.states, taus[0]), rtol=1e-4, atol=1e-5)
    theirs = other.losses(batch, Draws(torch.from_numpy(taus), torch.zeros(3, 0)))
    for ours, twin in zip(losses, theirs, strict=True):
        assert np.all(np.isfinite(ours))
        np.testing.assert_allclose(ours, twin.detach().numpy(), rtol=1e-3, atol=1e-5)

    # What is said of an action that is not available changes nothing, however good it looks.
    advantage = target["head"]["advantage"]
    for action in range(3):
        bias = np.array(advantage["bias"]).reshape(-1, 3)
        bias[-1, action] += 50.0
        tempting = {**target, "head": {**target["head"], "advantage": {**advantage, "bias": bias.reshape(-1)}}}
        _, again, _ = jax.device_get(judge(learner, params, tempting, batch, taus))
        shut = ~next_available[:, action] & ~available[:, action]
        assert shut.any()
        np.testing.assert_allclose(again[shut], losses[0][shut], rtol=1e-5, atol=1e-6)
        open_ = next_available[:, action] & (batch.discounts > 0)
        assert member == "double" or not np.allclose(again[open_], losses[0][open_])


def test_a_state_in_which_nothing_is_available_stays_finite():
    learner, params, target, other = twins("munchausen")
    rng, states = np.random.default_rng(2), np.zeros((8, 2, 8), np.float32)
    batch, taus = batch_of(rng, states, states), np.zeros((3, 8, 0), np.float32)
    _, losses, _ = jax.device_get(judge(learner, params, target, batch, taus))
    theirs, _ = other.losses(batch, Draws(torch.from_numpy(taus), torch.zeros(3, 0)))
    np.testing.assert_allclose(losses, theirs.detach().numpy(), rtol=1e-4, atol=1e-6)
