"""The value learner: losses worked out by hand for every head, rlax's opinion, and what an update changes.

The networks here are tables, states their rows, so that every number can be followed. Where PyTorch is asked too, it is
given the same tables. Shapes: S states, B batch, Q fractions, Z numbers per action, A actions.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import torch

from xladder.families.value.acting import build
from xladder.families.value.learner_config import MEMBERS, LearnerConfig
from xladder.learners import value, value_torch
from xladder.learners.value import Hyperparams, ValueLearner
from xladder.learners.value_torch import TorchLearner
from xladder.replay.batch import Batch
from xladder.replay.history import History, SampleIndices, Window
from xladder.replay.history_host import HostHistory
from xladder.worlds.envs import EnvSpec

INF = float("inf")
LN2, LN3 = np.log(2), np.log(3)


# ---- networks that are tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoNoise:
    """What a learner asks a head for."""

    factorised: bool = True

    def noise_shapes(self):
        return ()


@dataclass(frozen=True)
class Table:
    """Says of a state what its row holds, [Z, A]; with fractions τ, row 0 + τ · row 1."""

    head: NoNoise = NoNoise()

    def apply(self, variables, states, taus=None, noise=None):
        rows = variables["params"]["table"][states[..., 0].astype(jnp.int32)]
        return rows if taus is None else rows[..., :1, :] + taus[..., None] * rows[..., 1:, :]


class TorchTable(torch.nn.Module):
    """The same in PyTorch."""

    head = SimpleNamespace(split_noise=lambda normals: None)

    def __init__(self, table, implicit):
        super().__init__()
        self.table, self.implicit = torch.nn.Parameter(torch.tensor(np.float32(table))), implicit

    def forward(self, states, taus=None, noise=None):
        rows = self.table[states[:, 0].long()]
        return rows[:, :1] + taus[..., None] * rows[:, 1:] if self.implicit else rows


def table(*states):
    """[S, Z, A] from the returns of every action, [A] or [A, Z], state by state."""
    rows = [np.float32(state) for state in states]
    return np.stack([row[None] if row.ndim == 1 else row.T for row in rows])


def batch_of(*steps, next_state=1):
    """Transitions (state, action, return, discount), all to one next state."""
    states, actions, returns, discounts = zip(*steps, strict=True)
    count = len(steps)
    return Batch(
        states=np.array(states, np.int8)[:, None],
        actions=np.array(actions, np.int8),
        returns=np.float32(returns),
        discounts=np.float32(discounts),
        next_states=np.full((count, 1), next_state, np.int8),
        valid=np.ones(count, np.float32),
    )


def learner_of(**fields):
    return ValueLearner(LearnerConfig(clip=INF, **fields), Table())


def agent_of(learner, online, target, lr=0.1):
    agent = learner.init({"table": jnp.asarray(online)}, Hyperparams.of(learner.config)._replace(lr=jnp.float32(lr)))
    return agent._replace(target={"table": jnp.asarray(target)})


def torch_of(learner, online, target):
    """The PyTorch learner round tables instead of its own networks."""
    implicit = learner.config.head in ("implicit", "sorrel")
    other = TorchLearner(learner.config, TorchTable(online, implicit))
    other.target = TorchTable(target, implicit).requires_grad_(False)
    return other


# ---- losses by hand ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What two networks say, some transitions, and what their losses are."""

    fields: dict
    online: np.ndarray  # [S, Z, A]
    target: np.ndarray  # [S, Z, A]
    batch: Batch
    losses: list
    errors: list | None = None  # as the losses where there are none
    taus: tuple = ((), (), ())  # of the three passes, [Q] each


# One value. In the next state the online network prefers action 0 (5 to 3), the target network action 1 (4 to 0.5).
# What the target network says of the state itself must not matter. The second step is the end of a game.
ONE_ONLINE, ONE_TARGET = table([1, 2], [5, 3]), table([9, 9], [0.5, 4])
ONE_BATCH = batch_of((0, 1, 0.5, 0.9), (0, 1, 0.5, 0.0), (0, 0, 1.25, 0.0))

# Three atoms −1, 0, 1. The target network's next state: action 0 has mean 0.3, action 1 mean −0.4; online the second is
# better, 0.6 to −0.3. What was predicted of action 0: ¼, ¼, ½.
ATOMS = {"head": "categorical", "atoms": 3, "v_min": -1.0, "v_max": 1.0}
ATOMS_ONLINE = np.log(table([[0.25, 0.25, 0.5], [0.9, 0.05, 0.05]], [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
ATOMS_TARGET = np.log(table([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], [[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]]))
ATOMS_BATCH = batch_of((0, 0, 0.5, 0.5), (0, 0, 0.5, 0.0), (0, 0, 5.0, 1.0))

# Two quantiles, at ¼ and ¾. The target network prefers action 0 (mean 2 to 1.25), the online network action 1.
QUANTILES = {"head": "quantile", "quantiles": 2}
QUANTILES_ONLINE = table([[0, 2], [9, 9]], [[0, 0], [1, 1]])
QUANTILES_TARGET = table([[7, 7], [7, 7]], [[0, 4], [1, 1.5]])
QUANTILES_BATCH = batch_of((0, 0, 1.0, 0.5), (0, 0, 1.0, 0.0))

# Quantiles that are drawn: base + slope · τ. The next action is chosen at fractions 0.1 and 0.3. There the online
# network prefers action 1 (0.3 to a mean of 0.2), where at 0.5 and 1 it would prefer action 0 (0.75). The target
# network prefers action 1 there (1 to 0.8), where at 0.5 and 1 it would prefer action 0 (3); with a lower base, 0.
DRAWN = {"head": "implicit", "quantiles": 2}
DRAWN_ONLINE = table([[1, 2], [9, 9]], [[0, 1], [0.3, 0]])
DRAWN_TARGET = table([[7, 7], [7, 7]], [[0, 4], [1, 0]])
DRAWN_LOWER = table([[7, 7], [7, 7]], [[0, 4], [0.5, 0]])
DRAWN_TAUS = ((0.1, 0.3), (0.5, 1.0), (0.2, 0.6))

# Temperature ½. In the next state q = 0 and ½ ln 3, so π = ¼ and ¾. State 0 leaves both actions even, and in state 2
# action 0 is 3 worse.
SOFT = {"munchausen": True, "temperature": 0.5, "munchausen_scale": 0.9, "munchausen_floor": -1.0}
SOFT_BATCH = batch_of((0, 0, 1.0, 0.5), (0, 0, 1.0, 0.0), (2, 0, 1.0, 0.0))

CASES = {
    # Aims: 0.5 + 0.9 · 4 = 4.1, 0.5 and 1.25; errors: 2.1, −1.5 and 0.25; Huber: 2.1 − ½, 1.5 − ½, ½ · 0.0625
    "scalar": Case({}, ONE_ONLINE, ONE_TARGET, ONE_BATCH, [1.6, 1.0, 0.03125], [2.1, 1.5, 0.25]),
    # κ = 2: 2 · (2.1 − 1), ½ · 2.25
    "scalar, kappa 2": Case({"kappa": 2.0}, ONE_ONLINE, ONE_TARGET, ONE_BATCH, [2.2, 1.125, 0.03125], [2.1, 1.5, 0.25]),
    # The target network's value of the online network's choice is 0.5: the aim is 0.95, the error −1.05.
    "scalar, double": Case(
        {"double": True}, ONE_ONLINE, ONE_TARGET, ONE_BATCH, [0.55, 1.0, 0.03125], [1.05, 1.5, 0.25]
    ),
    "scalar, double, squared": Case(
        {"double": True, "loss": "squared"},
        ONE_ONLINE,
        ONE_TARGET,
        ONE_BATCH,
        [1.1025, 2.25, 0.0625],
        [1.05, 1.5, 0.25],
    ),
    # Atoms move to 0, ½ and 1: 0 gets 0.2 + 0.15, 1 gets 0.15 + 0.5; −0.35 ln ¼ − 0.65 ln ½ = 1.35 ln 2.
    # An end: all at ½, half of it at 0 and half at 1: −½ ln ¼ − ½ ln ½. Beyond the last atom: all at 1.
    "categorical": Case(ATOMS, ATOMS_ONLINE, ATOMS_TARGET, ATOMS_BATCH, [1.35 * LN2, 1.5 * LN2, LN2]),
    # 0 gets 0.6 + 0.1, 1 gets 0.1 + 0.2: −0.7 ln ¼ − 0.3 ln ½
    "categorical, double": Case(
        ATOMS | {"double": True}, ATOMS_ONLINE, ATOMS_TARGET, ATOMS_BATCH, [1.7 * LN2, 1.5 * LN2, LN2]
    ),
    # Aims 1 and 3, predictions 0 and 2. Errors of the first: 1, 3, with weights ¼; of the second: −1 with ¼, 1 with ¾.
    # ¼ · (0.5 + 2.5) + ¼ · 0.5 + ¾ · 0.5 = 1.25. An end: aims 1; 0.5 · ¼ four times. Both are means over two targets.
    "quantile": Case(QUANTILES, QUANTILES_ONLINE, QUANTILES_TARGET, QUANTILES_BATCH, [1.25 / 2, 0.5 / 2]),
    # Aims 1.5 and 1.75: ¼ · (1 + 1.25) + ¼ · (½ · 0.25 + ½ · 0.0625)
    "quantile, double": Case(
        QUANTILES | {"double": True},
        QUANTILES_ONLINE,
        QUANTILES_TARGET,
        QUANTILES_BATCH,
        [(0.5625 + 0.0390625) / 2, 0.5 / 2],
    ),
    # Predictions 1 + 2 · 0.2 = 1.4 and 2.2; the target's action 0 has 2 and 4: aims 2 and 3.
    # 0.2 · (½ · 0.36 + 1.6 − ½) + 0.4 · ½ · 0.04 + 0.6 · ½ · 0.64 = 0.256 + 0.2
    # An end: aims 1; 0.8 · ½ · 0.16 · 2 + 0.4 · 0.7 · 2 = 0.688
    "implicit": Case(DRAWN, DRAWN_ONLINE, DRAWN_LOWER, QUANTILES_BATCH, [0.456 / 2, 0.688 / 2], taus=DRAWN_TAUS),
    # sorrel's mean over the two predictions.
    "sorrel": Case(
        DRAWN | {"head": "sorrel"}, DRAWN_ONLINE, DRAWN_LOWER, QUANTILES_BATCH, [0.456 / 4, 0.688 / 4], taus=DRAWN_TAUS
    ),
    # The target network's own choice is action 1: aims 1.5, as below.
    "implicit, chosen at other fractions": Case(
        DRAWN, DRAWN_ONLINE, DRAWN_TARGET, QUANTILES_BATCH, [0.198 / 2, 0.688 / 2], taus=DRAWN_TAUS
    ),
    # Action 1 of the target is 1 at all fractions: aims 1.5. 0.2 · ½ · 0.01 · 2 + 0.4 · ½ · 0.49 · 2 = 0.198
    "implicit, double": Case(
        DRAWN | {"double": True},
        DRAWN_ONLINE,
        DRAWN_TARGET,
        QUANTILES_BATCH,
        [0.198 / 2, 0.688 / 2],
        taus=DRAWN_TAUS,
    ),
    # The soft value of the next state is ½ ln(1 + 3) = ln 2. The bonus is 0.9 · ½ ln ½ where actions are even, and the
    # floor, 0.9 · −1, where ½ ln π < −3. Aims: 1 − 0.45 ln 2 + ½ ln 2, 1 − 0.45 ln 2 and 0.1; predictions 2, 2 and 1.
    "munchausen": Case(
        SOFT | {"loss": "squared"},
        table([2, 0], [5, 0], [1, 5]),
        table([0, 0], [0, LN3 / 2], [0, 3]),
        SOFT_BATCH,
        [(1 - 0.05 * LN2) ** 2, (1 + 0.45 * LN2) ** 2, 0.81],
        [1 - 0.05 * LN2, 1 + 0.45 * LN2, 0.9],
    ),
    # The same means as quantiles ½ or 1 below and above them. Those of the soft value are Σ π · (z − ½ ln π):
    # ¼ · (∓1 + ln 2) + ¾ · (½ ln 3 ∓ ½ + ln 2 − ½ ln 3) = ln 2 ∓ ⅝. Half of that, 1 and the bonus are the aims,
    # 1 + x ∓ 5/16 with x = 0.05 ln 2. Predictions are 0 and 1; and so on as for quantiles.
    "munchausen with quantiles": Case(
        SOFT | QUANTILES,
        table([[0, 1], [9, 9]], [[5, 5], [0, 0]], [[0, 1], [9, 9]]),
        table([[0, 0], [-1, 1]], [[-1, 1], [LN3 / 2 - 0.5, LN3 / 2 + 0.5]], [[0, 0], [3, 3]]),
        batch_of((0, 0, 1.0, 0.5)),
        [
            (
                0.25 * (0.5 * (0.05 * LN2 + 11 / 16) ** 2 + (0.05 * LN2 + 21 / 16 - 0.5))
                + 0.25 * 0.5 * (0.05 * LN2 - 5 / 16) ** 2
                + 0.75 * 0.5 * (0.05 * LN2 + 5 / 16) ** 2
            )
            / 2
        ],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_losses_by_hand_in_both(case):
    learner, count = learner_of(**case.fields), len(case.losses)
    taus = np.float32([[one] * count for one in case.taus])  # [3, B, Q]
    none = (None, None, None)
    params, target = {"table": case.online}, {"table": case.target}
    losses, errors = jax.jit(learner.losses)(params, target, case.batch, taus, none)
    np.testing.assert_allclose(losses, case.losses, rtol=1e-5)
    np.testing.assert_allclose(errors, case.errors or case.losses, rtol=1e-5)

    other = torch_of(learner, case.online, case.target)
    draws = value_torch.Draws(torch.tensor(taus), torch.zeros(3, 0))
    for ours, theirs in zip((losses, errors), other.losses(case.batch, draws), strict=True):
        np.testing.assert_allclose(theirs.detach(), ours, rtol=1e-5)


def test_only_what_was_predicted_of_the_action_taken_has_a_gradient():
    """Targets are numbers, online networks that only choose an action included."""
    for name in ("scalar, double", "categorical, double", "quantile, double", "munchausen"):
        case = CASES[name]
        learner, batch = learner_of(**case.fields), jax.tree.map(lambda x: x[:1], case.batch)

        def loss(params, target, learner=learner, batch=batch):
            return learner.loss(params, target, batch, jnp.zeros((3, 1, 0)), (None, None, None))[0]

        by_online, by_target = jax.jit(jax.grad(loss, argnums=(0, 1)))({"table": case.online}, {"table": case.target})
        touched = np.zeros(case.online.shape, bool)
        touched[batch.states[0, 0], :, batch.actions[0]] = True
        assert np.all((by_online["table"] != 0) == touched), name
        assert not np.any(by_target["table"]), name


def test_a_cut_game_bootstraps_from_its_last_frame_and_a_finished_one_does_not():
    """Two copies of one game of two steps, 0 → 1 → 2; one ends there for good, the other is cut. γ = ½, two steps."""
    memory = HostHistory(2, Window(stack=1, n_step=2, length=8), (), np.int8)
    no, end = np.zeros(2, bool), np.array([True, False])
    for frame, action, reward, over, is_first in [
        (0, 0, 1, no, ~no),
        (1, 1, 2, ~no, no),
        (2, 0, 0, no, no),
        (3, 0, 0, no, ~no),
    ]:
        both = (np.full(2, x) for x in (frame, action, reward))
        memory.add(History(*both, over & end, over & ~end, is_first))
    indices = SampleIndices(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), np.ones(4, np.float32))
    batch = memory.gather(indices, 0.5)
    learner = learner_of()
    online, target = table([1, 0], [0, 1], [0, 0], [7, 7]), table([9, 9], [9, 9], [4, 8], [7, 7])
    _, errors = jax.jit(learner.losses)({"table": online}, {"table": target}, batch, np.zeros((3, 4, 0)), (None,) * 3)
    # Aims: 1 + ½ · 2 = 2, and with ¼ · 8 of the last frame 4; from the second step 2, and with ½ · 8 of it 6.
    np.testing.assert_allclose(errors, [2 - 1, 4 - 1, 2 - 1, 6 - 1], rtol=1e-6)


def test_the_loss_is_a_mean_weighted_by_valid_and_errors_are_not_weighted():
    case, weights = CASES["scalar"], np.float32([0.5, 0.0, 3.0])
    learner, batch = learner_of(), case.batch._replace(valid=weights)

    def loss(params):
        return learner.loss(params, {"table": case.target}, batch, jnp.zeros((3, 3, 0)), (None,) * 3)

    (found, errors), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))({"table": case.online})
    assert float(found) == pytest.approx((0.5 * 1.6 + 0 + 3 * 0.03125) / 3, rel=1e-6)
    np.testing.assert_allclose(errors, case.errors, rtol=1e-6)
    # By the value of action 0 it is −3 · 0.25 / 3; by that of action 1 only the first counts, beyond κ: −½ · 1 / 3.
    np.testing.assert_allclose(gradient["table"][0, 0], [-0.25, -0.5 / 3], rtol=1e-5)
    other = torch_of(learner, case.online, case.target)
    theirs, _ = other.loss(batch, value_torch.Draws(torch.zeros(3, 3, 0), torch.zeros(3, 0)))
    assert float(theirs.detach()) == pytest.approx(float(found), rel=1e-6)


# ---- somebody else's opinion ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["scalar", "categorical", "quantile"])
def test_rlax_agrees_with_and_without_double_q(head):
    rng, count, states, actions = np.random.default_rng(0), 6, 5, 4
    fields = {"head": head, "atoms": 7, "quantiles": 7, "v_min": -2.0, "v_max": 3.0}
    numbers = 1 if head == "scalar" else 7
    online, target = (rng.normal(size=(states, numbers, actions)).astype(np.float32) * 2 for _ in range(2))
    batch = Batch(
        states=rng.integers(0, states, (count, 1)).astype(np.int8),
        actions=rng.integers(0, actions, count).astype(np.int8),
        returns=rng.normal(size=count).astype(np.float32),
        discounts=np.float32([0.9, 0.9, 0.0, 0.81, 0.5, 1.0]),
        next_states=rng.integers(0, states, (count, 1)).astype(np.int8),
        valid=np.ones(count, np.float32),
    )
    support, middles = jnp.linspace(-2.0, 3.0, 7), jnp.asarray(value.midpoints(7))

    def oracle(now, action, reward, discount, later, selector):
        """All said of one state is [Z, A]."""
        if head == "scalar":
            return rlax.huber_loss(rlax.double_q_learning(now[0], action, reward, discount, later[0], selector[0]))
        if head == "quantile":
            given = now, middles, action, reward, discount, selector, later
            return rlax.quantile_q_learning(*given, huber_param=1.0)
        means = jnp.sum(jax.nn.softmax(selector, axis=0) * support[:, None], axis=0)
        return rlax.categorical_double_q_learning(support, now.T, action, reward, discount, support, later.T, means)

    def both(online, target):
        found = []
        for double in (False, True):
            learner = learner_of(double=double, **fields)
            ours, _ = learner.losses({"table": online}, {"table": target}, batch, jnp.zeros((3, count, 0)), (None,) * 3)
            now, later = online[batch.states[:, 0]], target[batch.next_states[:, 0]]
            selector = online[batch.next_states[:, 0]] if double else later
            given = now, batch.actions.astype(np.int32), batch.returns, batch.discounts, later, selector
            found.append((ours, jax.vmap(oracle)(*given)))
        return found

    with jax.numpy_rank_promotion("allow"):  # rlax mixes ranks
        (plain, plain_oracle), (double, double_oracle) = jax.jit(both)(online, target)
    np.testing.assert_allclose(plain, plain_oracle, rtol=1e-5)
    np.testing.assert_allclose(double, double_oracle, rtol=1e-5)
    assert np.abs(plain - double).max() > 0.01, "online and target networks chose the same everywhere"


def test_rlax_agrees_about_iqn_which_draws_fractions_for_each_of_its_three_passes():
    rng, count, states, actions, drawn = np.random.default_rng(1), 6, 4, 3, 5
    online, target = (rng.normal(size=(states, 2, actions)).astype(np.float32) for _ in range(2))  # base and slope
    taus = rng.random((3, count, drawn), np.float32)
    batch = batch_of(*((s, s % actions, 0.3 * s, 0.9 * (s != 3)) for s in (0, 1, 2, 3, 1, 0)))
    learner = learner_of(head="implicit", quantiles=drawn)
    given = {"table": online}, {"table": target}, batch, taus, (None,) * 3
    losses, _ = jax.jit(learner.losses)(*given)

    def quantiles(table, fractions):
        return table[:1] + fractions[:, None] * table[1:]

    for i, state in enumerate(batch.states[:, 0]):
        now, later = quantiles(online[state], taus[2, i]), quantiles(target[1], taus[1, i])
        chosen_by, transition = quantiles(target[1], taus[0, i]), (batch.returns[i], batch.discounts[i])
        with jax.numpy_rank_promotion("allow"):
            theirs = rlax.quantile_q_learning(
                now, taus[2, i], batch.actions[i], *transition, chosen_by, later, huber_param=1.0
            )
        assert float(losses[i]) == pytest.approx(float(theirs), rel=1e-5)


@pytest.mark.parametrize("n", [1, 3])
def test_rlax_agrees_about_the_returns_of_several_steps(n):
    """Returns and discounts as the replay memory gathers them, with the value of the state that they lead to."""
    rng, steps, gamma = np.random.default_rng(2), 9, 0.9
    rewards, values = rng.normal(size=steps).astype(np.float32), rng.normal(size=steps + 1).astype(np.float32)
    ends = np.arange(steps) == 5
    memory, no = HostHistory(1, Window(stack=1, n_step=n, length=32), (), np.int8), np.zeros(1, bool)
    for t in range(steps):
        memory.add(History(np.full(1, t), no, rewards[t : t + 1], ends[t : t + 1], no, no))
    starts = np.arange(4 - n + 1 if n > 1 else 4)  # windows before the end
    indices = SampleIndices(np.zeros(len(starts), int), starts, np.ones(len(starts), np.float32))
    batch = memory.gather(indices, gamma)
    ours = batch.returns + batch.discounts * values[batch.next_states[:, 0].astype(int)]
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        theirs = rlax.n_step_bootstrapped_returns(
            jnp.asarray(rewards), jnp.asarray(gamma * ~ends, jnp.float32), jnp.asarray(values[1:]), n=n
        )
    np.testing.assert_allclose(ours, np.asarray(theirs)[starts], rtol=1e-5)


# ---- updates -------------------------------------------------------------------------------------------------------


# An update of a table towards returns, nothing being bootstrapped: the gradient of (r − q)² / 2 transitions is q − r.
TOWARDS = [batch_of((0, 0, r, 0.0), (1, 1, -2 * r, 0.0)) for r in (1.0, -0.5, 2.0)]
START = table([0.3, 7], [7, -0.1])


def follow(learner, agent, batches):
    """What becomes of an agent, and all losses and errors."""
    update, outputs = jax.jit(learner.update_with), []
    for batch in batches:
        agent, *one = update(agent, batch, jnp.zeros((3, len(batch.returns), 0)), (None,) * 3)
        outputs.append(one)
    return agent, outputs


def test_rmsprop_is_centred_with_eps_inside_the_root():
    lr, eps, decay = 0.1, 0.01, 0.95
    learner = learner_of(loss="squared", optimiser="rmsprop", optimiser_eps=eps)
    agent, outputs = follow(learner, agent_of(learner, START, START, lr), TOWARDS)
    q, mean, square = np.array([0.3, -0.1]), np.zeros(2), np.zeros(2)  # of the two entries that are learned
    for batch, (loss, errors) in zip(TOWARDS, outputs, strict=True):
        g = q - batch.returns
        assert float(loss) == pytest.approx(np.mean(g**2), rel=1e-5)
        np.testing.assert_allclose(errors, np.abs(g), rtol=1e-5)
        mean, square = decay * mean + (1 - decay) * g, decay * square + (1 - decay) * g**2
        q = q - lr * g / np.sqrt(square - mean**2 + eps)
    found = agent.params["table"]
    np.testing.assert_allclose([found[0, 0, 0], found[1, 0, 1]], q, rtol=1e-5)
    # With ε outside the root, as PyTorch has it, or not centred, it would end elsewhere.
    assert np.abs(q - [0.3, -0.1]).min() > 0.1
    np.testing.assert_array_equal([found[0, 0, 1], found[1, 0, 0]], 7)
    np.testing.assert_array_equal(agent.target["table"], START)


def test_rmsprop_torch_is_pytorch_s_own():
    learner = learner_of(loss="squared", optimiser="rmsprop_torch", optimiser_eps=0.01)
    agent, _ = follow(learner, agent_of(learner, START, START, 0.1), TOWARDS)
    weights = torch.tensor([0.3, -0.1], requires_grad=True)  # of the two entries that are learned
    optimiser = torch.optim.RMSprop([weights], lr=0.1, alpha=0.95, eps=0.01, centered=True)
    for batch in TOWARDS:
        optimiser.zero_grad()
        torch.mean((weights - torch.tensor(batch.returns)) ** 2).backward()
        optimiser.step()
    found = agent.params["table"]
    np.testing.assert_allclose([found[0, 0, 0], found[1, 0, 1]], weights.detach(), rtol=1e-5)


RADAM = "PyTorch's RAdam adds eps to the root before it corrects its bias, Optax afterwards"


@pytest.mark.parametrize(
    ("optimiser", "eps", "rtol"),
    [
        ("adam", 1e-2, 1e-5),
        ("rmsprop", 1e-2, 1e-5),
        ("rmsprop_torch", 1e-2, 1e-5),
        ("radam", 1e-8, 5e-4),  # Optax counts in float32 how far to trust the variance: 1e-4 in the sixth step
        pytest.param("radam", 1e-2, 5e-4, marks=pytest.mark.xfail(strict=True, reason=RADAM)),
    ],
)
def test_optimisers_are_those_of_pytorch_and_gradients_are_clipped_before_them(optimiser, eps, rtol):
    fields = {"loss": "squared", "optimiser": optimiser, "optimiser_eps": eps, "tau": 0.25}
    learner = ValueLearner(LearnerConfig(clip=0.5, **fields), Table())
    batches = TOWARDS * 3  # RAdam changes its mind after five steps
    agent, _ = follow(learner, agent_of(learner, START, START), batches)
    other = torch_of(learner, START, START)
    other._params, other._targets = [list(net.parameters()) for net in (other.net, other.target)]
    other.optimiser = value_torch.make_optimiser(learner.config, other.net.parameters(), 0.1)
    for batch in batches:
        other.update(batch, value_torch.Draws(torch.zeros(3, 2, 0), torch.zeros(3, 0)))
    np.testing.assert_allclose(agent.params["table"], other.net.table.detach(), rtol=rtol)
    np.testing.assert_allclose(agent.target["table"], other.target.table, rtol=rtol)
    assert np.abs(agent.params["table"] - START).max() > 0.1


def test_a_gradient_is_scaled_to_the_largest_norm_and_a_shorter_one_is_left():
    gradient = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    cut, short, free = jax.jit(lambda g: [value.clip(g, largest) for largest in (1.0, 6.0, INF)])(gradient)
    np.testing.assert_allclose(cut["a"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(cut["b"], [[0.8]], rtol=1e-6)
    np.testing.assert_array_equal([short["b"], free["b"]], 4.0)
    # What an update hands to Adam is clipped: its mean is then a tenth of it. The gradient is (0.3 − 1, −0.1 + 2).
    learner = ValueLearner(LearnerConfig(loss="squared", clip=0.5), Table())
    agent, _ = follow(learner, agent_of(learner, START, START), TOWARDS[:1])
    mean = agent.opt_state.mu["table"]
    wanted = np.array([-0.7, 1.9]) * 0.5 / np.hypot(0.7, 1.9) / 10
    np.testing.assert_allclose([mean[0, 0, 0], mean[1, 0, 1]], wanted, rtol=1e-5)


def test_the_target_follows_by_a_share_or_becomes_the_online_network():
    learner = learner_of(loss="squared", tau=0.25)
    before = table([0, 1], [2, 3])
    agent, _ = follow(learner, agent_of(learner, START, before), TOWARDS[:1])
    online, target = np.asarray(agent.params["table"]), np.asarray(agent.target["table"])
    assert np.abs(online - START).max() > 0.05
    np.testing.assert_allclose(target, before + 0.25 * (online - before), rtol=1e-6)  # of what was learned just now
    np.testing.assert_array_equal(learner.sync(agent, jnp.bool_(False)).target["table"], target)
    np.testing.assert_array_equal(learner.sync(agent, jnp.bool_(True)).target["table"], online)


def test_the_learning_rate_is_a_knob():
    learner = learner_of(loss="squared")
    moved = [
        np.asarray(follow(learner, agent_of(learner, START, START, lr), TOWARDS[:1])[0].params["table"]) - START
        for lr in (0.0, 0.1, 0.2)
    ]
    assert not moved[0].any()
    np.testing.assert_allclose(moved[2], 2 * moved[1], rtol=1e-5)
    assert np.abs(moved[1]).max() == pytest.approx(0.1, rel=1e-4)  # Adam's first step


def test_a_fresh_target_is_a_copy_and_not_the_same_buffer():
    learner = learner_of()
    agent = learner.init({"table": jnp.asarray(START)}, Hyperparams.of(learner.config)._replace(lr=jnp.float32(0)))
    np.testing.assert_array_equal(agent.target["table"], agent.params["table"])
    assert agent.target["table"] is not agent.params["table"]


# ---- with networks -------------------------------------------------------------------------------------------------

SMALL = LearnerConfig(hidden=(8,), width=8, batch_size=6, atoms=5, quantiles=4, act_quantiles=3, cosines=8)


@pytest.mark.parametrize("member", MEMBERS)
def test_net_and_loss_need_no_implicit_dtype_promotion_and_draws_fit(member):
    learner = build(replace(SMALL, **MEMBERS[member]), EnvSpec((4,), np.dtype(np.float32), 3), 2)
    draws = jax.eval_shape(learner.draw_update, jax.random.key(0), jax.random.key(1))
    assert draws.taus.shape == (3, 6, 4 if member == "iqn" else 0)
    # Factors of four layers, hidden 8 → 8 and outputs 8 → 5 · 3 and 8 → 5.
    assert draws.noise.shape == (3, 16 + 23 + 13 + 16 if member == "rainbow" else 0)

    def loss(key, states, batch, draws):
        noise = tuple(learner.split_noise(draws.noise[i]) for i in range(3))
        params = learner.net.init(key, states[0], draws.taus[0, 0], noise[0])["params"]
        with jax.numpy_dtype_promotion("strict"):
            values = learner.values(params, states, draws.taus[0], noise[0])
            return learner.loss(params, params, batch, draws.taus, noise), values

    states = np.zeros((6, 2, 4), np.float32)
    batch = Batch(states, np.zeros(6, np.int8), *(np.zeros(6, np.float32),) * 2, states, np.zeros(6, np.float32))
    (found, errors), values = jax.eval_shape(loss, jax.random.key(0), states, batch, draws)
    assert (found.shape, found.dtype) == ((), jnp.float32)
    assert (errors.shape, errors.dtype) == ((6,), jnp.float32)
    assert (values.shape, values.dtype) == ((6, 3), jnp.float32)


def test_the_three_passes_draw_apart_from_each_other():
    learner = build(replace(SMALL, head="implicit", noisy=True), EnvSpec((4,), np.dtype(np.float32), 3), 1)
    draws = jax.jit(learner.draw_update)(jax.random.key(0), jax.random.key(1))
    numbers = np.concatenate([np.ravel(draws.taus), np.ravel(draws.noise)])
    assert len(np.unique(numbers)) == len(numbers)


def test_expected_returns_by_hand():
    categorical = learner_of(**ATOMS)
    np.testing.assert_allclose(categorical.expected(jnp.asarray(ATOMS_TARGET[1])), [0.3, -0.4], atol=1e-6)
    np.testing.assert_allclose(categorical.head.support, [-1, 0, 1])
    quantile = learner_of(**QUANTILES)
    np.testing.assert_allclose(quantile.expected(jnp.asarray(QUANTILES_TARGET[1])), [2, 1.25], atol=1e-6)
    np.testing.assert_allclose(learner_of().expected(jnp.asarray(ONE_TARGET)), [[9, 9], [0.5, 4]])
    np.testing.assert_allclose(value.midpoints(4), [0.125, 0.375, 0.625, 0.875])
