"""Value learners in JAX against their twins, in rising order; and planted faults, each of which shows at its level."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.test_value_rungs import PONG, SMALL
from xladder.core import keys
from xladder.errors import UsageError
from xladder.families.value import config as value
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value import parity
from xladder.families.value.program import Program
from xladder.learners import value_torch
from xladder.learners.value_torch import TorchLearner
from xladder.losses import heads_torch
from xladder.nets import torsos_torch
from xladder.parity import learner as learner_levels
from xladder.replay.history import SampleIndices
from xladder.replay.history_host import HostHistory
from xladder.replay.priorities_host import HostPriorities

UPDATES = 4
ORDER = ["memory twins", "forward", "loss", "gradients", "one update", f"{UPDATES} updates"]
# With a gradient that is always too long and a target that also follows slowly, so that both are compared.
CARTPOLE = gymnax.Config(gymnax.WorldConfig(num_envs=4), replace(SMALL, clip=0.05, tau=0.05), steps=128)
MEMBERS = {name: value.members(CARTPOLE)[name] for name in ("dqn", "rainbow", "iqn", "c51", "qrdqn", "munchausen")}
BREAKOUT = replace(
    CARTPOLE,
    world=gymnax.WorldConfig("minatar/breakout", num_envs=2, stack=2),
    learner=replace(CARTPOLE.learner, torso="minatar", batch_size=32),
)
NATURE = replace(PONG, learner=replace(PONG.learner, optimiser="rmsprop", optimiser_eps=0.01 / 32**2, loss="huber"))


@pytest.fixture(autouse=True)
def short_games(monkeypatch):
    """Enough that games end in every world, and that the memory is gone round."""
    monkeypatch.setattr(parity, "RECORDED", 160)


def first_failure(config, seed: int = 0) -> str | None:
    return next((level.level for level in parity.levels(config, UPDATES, seed) if not level.passed), None)


# ---- every level passes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member", [pytest.param(m, marks=() if m in ("dqn", "iqn") else pytest.mark.slow) for m in MEMBERS]
)
def test_every_level_passes_and_small_nets_agree_far_better_than_demanded(member):
    levels = parity.levels(MEMBERS[member], UPDATES)
    assert [level.level for level in levels] == ORDER
    assert all(level.passed for level in levels), levels
    assert all(level.max_abs_diff < 1e-5 for level in levels), levels


@pytest.mark.parametrize("config", [BREAKOUT, NATURE], ids=lambda config: config.name)
@pytest.mark.slow
def test_every_level_passes_with_pictures(config):
    levels = parity.levels(config, 2)
    assert [level.level for level in levels] == [*ORDER[:-1], "2 updates"]
    assert all(level.passed for level in levels), levels


def test_what_is_compared_has_ends_of_games_a_full_memory_and_gradients_that_are_cut():
    """Else a level would pass without having looked."""
    config = MEMBERS["dqn"]
    program = Program(config)
    steps = parity.record(config, 0)
    assert sum(made.step.is_first.sum() for made in steps) > 2
    _, _, _, host = parity.remember(program, steps)
    assert host.history.size == program.window.length < len(steps)
    agent = parity.draw_agent(program, program.learner, keys.root(0))
    other = learner_levels.to_torch(agent, lambda: parity.make_learner(config))
    draws = parity.compiled(Program.draw_learn)(program, keys.root(0), 0)
    _, batch = host.sample(np.asarray(draws.indices), 0.99)
    loss, _ = other.loss(batch, learner_levels.torch_draws(draws.learner))
    loss.backward()
    assert torch.nn.utils.get_total_norm([param.grad for param in other.net.parameters()]) > 2 * config.learner.clip


def test_pqn_says_that_it_has_no_twin():
    with pytest.raises(UsageError, match="no PyTorch twin"):
        parity.levels(replace(CARTPOLE, algorithm="pqn"), 1)


def test_what_pytorch_cannot_multiply_in_is_not_compared():
    with pytest.raises(UsageError, match=r"compare with `--learner\.precision float32`"):
        parity.levels(replace(CARTPOLE, learner=replace(CARTPOLE.learner, precision="bfloat16")), 1)


# ---- planted faults ------------------------------------------------------------------------------------------------


def test_a_host_memory_with_another_gamma_fails_the_memory(monkeypatch):
    gather = HostHistory.gather
    monkeypatch.setattr(HostHistory, "gather", lambda self, indices, gamma: gather(self, indices, gamma - 1e-4))
    assert first_failure(MEMBERS["dqn"]) == "memory twins"


def test_a_host_memory_that_takes_steps_between_games_fails_the_memory(monkeypatch):
    sample_indices = HostHistory.sample_indices

    def careless(self, uniforms, strata=1):
        return SampleIndices(
            *(x for x in sample_indices(self, uniforms[:, :1], strata)[:2]), np.ones(len(uniforms), np.float32)
        )

    monkeypatch.setattr(HostHistory, "sample_indices", careless)
    assert first_failure(MEMBERS["dqn"]) == "memory twins"


@pytest.mark.slow
def test_a_host_memory_with_other_priorities_fails_the_memory(monkeypatch):
    admit = HostPriorities.admit

    def forgetful(self, history):
        admit(self, history)
        self.sums[0] = 0

    monkeypatch.setattr(HostPriorities, "admit", forgetful)
    assert first_failure(MEMBERS["rainbow"]) == "memory twins"


@pytest.mark.slow
def test_importance_weights_without_their_power_fail_the_memory(monkeypatch):
    sample_indices = HostPriorities.sample_indices
    monkeypatch.setattr(
        HostPriorities, "sample_indices", lambda self, uniforms, beta: sample_indices(self, uniforms, 1.0)
    )
    assert first_failure(MEMBERS["rainbow"]) == "memory twins"


@pytest.mark.slow
def test_a_row_rated_twice_whose_last_error_counts_fails_the_memory(monkeypatch):
    def careless(self, indices, values):
        place = indices.slot // self.times, indices.slot % self.times, indices.env
        self.blocks[place] = np.where(self.blocks[place] > 0, values, np.float32(0))
        self.largest = np.maximum(self.largest, values.max())
        self.sums[:] = self.blocks.sum(axis=(1, 2))

    monkeypatch.setattr(HostPriorities, "assign", careless)
    assert first_failure(MEMBERS["rainbow"]) == "memory twins"


@pytest.mark.slow
@pytest.mark.parametrize("member", ["dqn", "rainbow", "iqn"])
def test_one_weight_changed_on_the_way_to_pytorch_fails_the_forward_pass(member, monkeypatch):
    to_torch = learner_levels.to_torch

    def with_a_scratch(agent, twin):
        other = to_torch(agent, twin)
        with torch.no_grad():
            other.target.head.advantage.bias[0] += 0.001
        return other

    monkeypatch.setattr(learner_levels, "to_torch", with_a_scratch)
    assert first_failure(MEMBERS[member]) == "forward"


@pytest.mark.slow
def test_other_atoms_fail_the_forward_pass(monkeypatch):
    """They are part of what acting looks at."""
    support = heads_torch.Categorical.support
    monkeypatch.setattr(heads_torch.Categorical, "support", lambda self, device: support(self, device) * 1.001)
    assert first_failure(MEMBERS["c51"]) == "forward"


@pytest.mark.parametrize("member", ["dqn", *(pytest.param(m, marks=pytest.mark.slow) for m in ("rainbow", "qrdqn"))])
def test_a_discount_applied_twice_fails_the_loss(member, monkeypatch):
    losses = TorchLearner.losses

    def discounted_again(self, batch, draws):
        return losses(self, batch._replace(discounts=batch.discounts * np.float32(0.99)), draws)

    monkeypatch.setattr(TorchLearner, "losses", discounted_again)
    assert first_failure(MEMBERS[member]) == "loss"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "field", "wrong"),
    [
        ("rainbow", "double", False),
        ("munchausen", "munchausen_scale", 0.8),
        ("dqn", "kappa", 0.9),
        ("dqn", "clip", 1e9),
    ],
)
def test_an_ingredient_that_only_one_side_has_fails_where_it_enters(member, field, wrong, monkeypatch):
    start = TorchLearner.__init__

    def differing(self, *arguments):
        start(self, replace(arguments[0], **{field: wrong}), *arguments[1:])

    monkeypatch.setattr(TorchLearner, "__init__", differing)
    seed = 2  # of two actions, online and target networks prefer another there; with seed 0 both prefer the same
    assert first_failure(MEMBERS[member], seed) == ("one update" if field == "clip" else "loss")


@pytest.mark.parametrize("member", ["dqn", "rainbow"])
def test_half_a_gradient_for_the_torso_fails_the_gradients(member, monkeypatch):
    forward = torsos_torch.Mlp.forward

    def halved(self, x):
        features = forward(self, x)
        return 0.5 * features + 0.5 * features.detach()

    monkeypatch.setattr(torsos_torch.Mlp, "forward", halved)
    assert first_failure(MEMBERS[member]) == "gradients"


def test_a_gradient_that_is_missing_fails_the_gradients(monkeypatch):
    forward = torsos_torch.Mlp.forward
    monkeypatch.setattr(torsos_torch.Mlp, "forward", lambda self, x: forward(self, x).detach())
    assert first_failure(MEMBERS["dqn"]) == "gradients"


def test_another_learning_rate_fails_the_first_update(monkeypatch):
    make = value_torch.make_optimiser
    monkeypatch.setattr(value_torch, "make_optimiser", lambda config, params, lr: make(config, params, 1.05 * lr))
    assert first_failure(MEMBERS["dqn"]) == "one update"


def test_no_soft_update_fails_the_first_update(monkeypatch):
    monkeypatch.setattr(torch, "_foreach_lerp_", lambda *args: None)
    assert first_failure(MEMBERS["dqn"]) == "one update"


def test_a_missing_hard_update_fails_only_many_updates(monkeypatch):
    monkeypatch.setattr(TorchLearner, "sync", lambda self: None)
    assert first_failure(MEMBERS["dqn"]) == f"{UPDATES} updates"
