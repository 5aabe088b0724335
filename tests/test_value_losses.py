"""Pieces of value learners' losses: numbers worked out by hand, rlax, definitions in float64, and the PyTorch twins."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import torch

from xladder.losses import value, value_torch
from xladder.losses.lambda_returns import q_lambda_targets
from xladder.losses.quantile import quantile_huber

INF = float("inf")


@pytest.fixture(autouse=True)
def strict():
    """Our functions mix no types; `theirs` lifts this for rlax."""
    with jax.numpy_dtype_promotion("strict"):
        yield


def theirs(function, *args, **options):
    """What rlax says; it promotes ranks and types on its own account."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        # One program is compiled faster than all of its operations one by one.
        return jax.tree.map(np.asarray, jax.jit(partial(function, **options))(*(jnp.asarray(arg) for arg in args)))


def normal(seed, *shape, size=1.0):
    return np.random.default_rng(seed).normal(0, size, shape).astype(np.float32)


def distribution(seed, *shape):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.5), shape[:-1]).astype(np.float32)


# ---- errors --------------------------------------------------------------------------------------------------------

ERRORS = [-3.0, -2.0, -0.5, 0.0, 1.0, 2.0, 5.0]


@pytest.mark.parametrize(
    ("kappa", "expected", "slope"),
    [
        # beyond 1: |e| − ½
        (1.0, [2.5, 1.5, 0.125, 0, 0.5, 1.5, 4.5], [-1, -1, -0.5, 0, 1, 1, 1]),
        # beyond 2: 2·(|e| − 1); at 2 both say 2
        (2.0, [4, 2, 0.125, 0, 0.5, 2, 8], [-2, -2, -0.5, 0, 1, 2, 2]),
        # ½e² throughout
        (INF, [4.5, 2, 0.125, 0, 0.5, 2, 12.5], ERRORS),
    ],
)
def test_huber_by_hand_in_both(kappa, expected, slope):
    error = jnp.array(ERRORS)
    np.testing.assert_array_equal(value.huber(error, kappa), np.float32(expected))
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(value.huber), (0, None)))(error, kappa), np.float32(slope))
    leaf = torch.tensor(ERRORS, requires_grad=True)
    twin = value_torch.huber(leaf, kappa)
    twin.sum().backward()
    np.testing.assert_array_equal(twin.detach(), np.float32(expected))
    np.testing.assert_array_equal(leaf.grad, np.float32(slope))


def test_squared_has_no_half_in_either():
    error = jnp.array(ERRORS)
    np.testing.assert_array_equal(value.squared(error), [9, 4, 0.25, 0, 1, 4, 25])
    np.testing.assert_array_equal(jax.vmap(jax.grad(value.squared))(error), 2 * error)
    leaf = torch.tensor(ERRORS)
    mse = torch.nn.functional.mse_loss(leaf, torch.zeros(7), reduction="none")
    np.testing.assert_array_equal(value_torch.squared(leaf), mse)
    np.testing.assert_array_equal(value.squared(error), mse)


@pytest.mark.parametrize("kappa", [1.0, 0.3, 1.5])
def test_rlax_and_pytorch_agree_about_huber(kappa):
    error = normal(0, 200, size=2)
    np.testing.assert_allclose(value.huber(error, kappa), theirs(rlax.huber_loss, error, delta=kappa), rtol=1e-6)
    builtin = torch.nn.functional.huber_loss(torch.tensor(error), torch.zeros(200), reduction="none", delta=kappa)
    np.testing.assert_allclose(value_torch.huber(torch.tensor(error), kappa), builtin, rtol=1e-6)
    ours = jax.jit(jax.vmap(jax.grad(value.huber), (0, None)))(error, kappa)
    np.testing.assert_allclose(ours, np.clip(error, -kappa, kappa), rtol=1e-6)


def test_rlax_l2_loss_is_huber_without_a_bound_and_half_of_squared():
    error = normal(1, 50, size=3)
    half = theirs(rlax.l2_loss, error)
    np.testing.assert_allclose(value.huber(error, INF), half, rtol=1e-6)
    np.testing.assert_allclose(value.squared(error), 2 * half, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_double_q_loss_made_of_the_pieces_is_rlax_s(seed):
    now, later, selector = normal(seed, 5), normal(seed + 10, 5), normal(seed + 20, 5)
    action, reward, discount = np.int32(seed), np.float32(0.7), np.float32(0.0 if seed == 3 else 0.99)

    def ours(now, later):
        target = jax.lax.stop_gradient(reward + discount * later[jnp.argmax(selector)])
        return value.huber(target - now[action], 1.0)

    def oracle(now, later):
        return rlax.huber_loss(rlax.double_q_learning(now, action, reward, discount, later, jnp.asarray(selector)))

    loss, gradients = jax.jit(jax.value_and_grad(ours, (0, 1)))(now, later)
    expected = theirs(jax.value_and_grad(oracle, (0, 1)), now, later)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), (loss, gradients), expected)
    assert np.count_nonzero(gradients[0]) == 1
    assert not np.any(gradients[1])


# ---- fixed atoms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probabilities", "target_support", "expected"),
    [
        # The support is −1, 0, 1, 2. Target atoms where it has some: nothing moves.
        ([0.1, 0.2, 0.3, 0.4], [-1, 0, 1, 2], [0.1, 0.2, 0.3, 0.4]),
        # A quarter of the way from 0 to 1: ¾ and ¼; half way from 1 to 2: half each; −5 and 7 go to the ends.
        # −1: 0.2;  0: 0.4 · ¾ = 0.3;  1: 0.4 · ¼ + 0.2 · ½ = 0.2;  2: 0.2 · ½ + 0.2 = 0.3
        ([0.2, 0.4, 0.2, 0.2], [-5, 0.25, 1.5, 7], [0.2, 0.3, 0.2, 0.3]),
        # After a terminal step all atoms are the reward, 0.25, whatever their probabilities are.
        ([0.1, 0.2, 0.3, 0.4], [0.25] * 4, [0, 0.75, 0.25, 0]),
        # A target's order does not matter.
        ([0.2, 0.8], [1.5, -1], [0.8, 0, 0.1, 0.1]),
    ],
)
def test_projection_by_hand_in_both(probabilities, target_support, expected):
    support, p, z = (np.float32(x) for x in ([-1, 0, 1, 2], probabilities, target_support))
    ours = value.project(jnp.asarray(support), jnp.asarray(p), jnp.asarray(z))
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, expected, atol=1e-7)
    twin = value_torch.project(torch.tensor(support), torch.tensor(p)[None], torch.tensor(z)[None])
    np.testing.assert_allclose(twin[0], expected, atol=1e-7)


SUPPORTS = [(-10, 10, 51), (0, 1, 2), (-1, 30, 7), (-0.1, 0.1, 201)]


def projections(low, high, atoms, count=8):
    support = np.linspace(low, high, atoms, dtype=np.float32)
    reward, discount = normal(5, count, 1, size=(high - low) / 4), np.float32([[0.99], [0.0]] * (count // 2))
    return support, distribution(6, count, atoms), reward + discount * support[None, :]


@pytest.mark.parametrize(("low", "high", "atoms"), SUPPORTS)
def test_projections_keep_mass_and_mean_and_agree_with_rlax(low, high, atoms):
    support, p, z = projections(low, high, atoms)
    ours = np.asarray(jax.jit(jax.vmap(value.project, (None, 0, 0)))(support, p, z))
    expected = theirs(jax.vmap(rlax.categorical_l2_project, (0, 0, None)), z, p, support)
    rounding = atoms * 2**-23  # an atom's position is a float32 number up to Z; its fraction becomes the share
    np.testing.assert_allclose(ours, expected, atol=rounding)
    assert np.all(ours >= 0)
    np.testing.assert_allclose(ours.sum(1), p.sum(1), rtol=5e-7)
    np.testing.assert_allclose(ours @ support, (p * np.clip(z, low, high)).sum(1), atol=1e-6 * (high - low))
    twin = value_torch.project(*(torch.tensor(x) for x in (support, p, z)))
    np.testing.assert_allclose(ours, twin, atol=rounding)


def test_cross_entropy_by_hand_in_both():
    # softmax(ln 1, ln 2, ln 5) = (1/8, 2/8, 5/8); −(½·ln ⅛ + ½·ln ⅝) = ½·(3 ln 2) + ½·(3 ln 2 − ln 5) = 3 ln 2 − ½ ln 5
    logits, p = np.log(np.float32([1, 2, 5])), np.float32([0.5, 0, 0.5])
    expected = 3 * np.log(2) - 0.5 * np.log(5)
    loss, gradient = jax.jit(jax.value_and_grad(value.cross_entropy))(logits, p)
    assert loss.dtype == jnp.float32
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient, [1 / 8 - 1 / 2, 2 / 8, 5 / 8 - 1 / 2], atol=1e-7)  # softmax − p
    leaf = torch.tensor(logits[None], requires_grad=True)
    twin = value_torch.cross_entropy(leaf, torch.tensor(p[None]))
    twin.sum().backward()
    assert float(twin[0].detach()) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient, leaf.grad[0], atol=1e-7)


def test_cross_entropy_survives_large_logits():
    # softmax is (1, 0): the loss is the difference of the logits
    logits, p = np.float32([1000, -1000]), np.float32([0, 1])
    assert float(value.cross_entropy(logits, p)) == 2000
    assert float(value_torch.cross_entropy(torch.tensor(logits)[None], torch.tensor(p)[None])[0]) == 2000


@pytest.mark.parametrize("seed", range(3))
def test_a_categorical_double_q_loss_made_of_the_pieces_is_rlax_s(seed):
    support = np.linspace(-10, 10, 51, dtype=np.float32)
    now, later, selector = normal(seed, 4, 51), normal(seed + 10, 4, 51), normal(seed + 20, 4)
    action, reward, discount = np.int32(seed), np.float32(1.3), np.float32(0.0 if seed == 2 else 0.97)

    def ours(now, later):
        target = value.project(support, jax.nn.softmax(later[jnp.argmax(selector)]), reward + discount * support)
        return value.cross_entropy(now[action], target)

    def oracle(now, later):
        atoms = jnp.asarray(support)
        return rlax.categorical_double_q_learning(
            atoms, now, action, reward, discount, atoms, later, jnp.asarray(selector)
        )

    loss, gradients = jax.jit(jax.value_and_grad(ours, (0, 1)))(now, later)
    expected, expected_gradient = theirs(jax.value_and_grad(oracle), now, later)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(gradients[0], expected_gradient, atol=1e-5)
    assert np.count_nonzero(np.any(gradients[0], axis=1)) == 1
    assert not np.any(gradients[1])


def test_no_gradient_passes_through_a_projection_or_a_cross_entropy_s_target():
    support, p, z = projections(-10, 10, 51)
    logits = normal(3, 51)

    def projected(*args):
        return jnp.sum(value.project(*args) * logits)

    for gradient in jax.jit(jax.grad(projected, (0, 1, 2)))(support, p[0], z[0]):
        assert not np.any(gradient)
    by_logits, by_target = jax.jit(jax.grad(value.cross_entropy, (0, 1)))(logits, p[0])
    assert np.all(by_logits)
    assert not np.any(by_target)
    leaves = [torch.tensor(x, requires_grad=True) for x in (support, p, z)]
    assert not value_torch.project(*leaves).requires_grad
    assert not value_torch.cross_entropy(torch.tensor(logits)[None], leaves[1][:1]).requires_grad


# ---- quantiles -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_fractions_of_qr_dqn_make_quantile_huber_rlax_s_quantile_q_learning(seed):
    quantiles, actions = 7, 4
    middles = ((2 * np.arange(quantiles) + 1) / (2 * quantiles)).astype(np.float32)  # τ̂_i = (2i + 1) / 2N
    now, later, selector = (normal(seed + s, quantiles, actions, size=2) for s in (0, 10, 20))
    action, reward, discount = np.int32(seed), np.float32(-0.4), np.float32(0.99)

    def ours(now):
        best = jnp.argmax(jnp.mean(selector, axis=0))
        return quantile_huber(now[:, action], middles, reward + discount * later[:, best])

    def oracle(now):
        fixed = (jnp.asarray(x) for x in (middles, action, reward, discount, selector, later))
        return rlax.quantile_q_learning(now, *fixed, huber_param=1.0)

    later = jnp.asarray(later)
    loss, gradient = jax.jit(jax.value_and_grad(ours))(now)
    expected, expected_gradient = theirs(jax.value_and_grad(oracle), now)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


# ---- Munchausen ----------------------------------------------------------------------------------------------------


def test_soft_values_by_hand_in_both():
    # τ = 2, q = 7 + 2·(ln 1, ln 2, ln 5): π = (1/8, 2/8, 5/8)
    values = np.float32(7 + 2 * np.log([1, 2, 5]))
    policy, scaled = value.soft_values(jnp.asarray(values), 2.0)
    assert policy.dtype == scaled.dtype == jnp.float32
    np.testing.assert_allclose(policy, [1 / 8, 2 / 8, 5 / 8], rtol=1e-6)
    np.testing.assert_allclose(scaled, 2 * np.log([1 / 8, 2 / 8, 5 / 8]), rtol=1e-6)
    # Σ π·(q − τ·log π) is τ·log Σ exp(q/τ) = 7 + 2·ln 8
    assert float(jnp.sum(policy * (values - scaled))) == pytest.approx(7 + 2 * np.log(8), rel=1e-6)
    for ours, twin in zip((policy, scaled), value_torch.soft_values(torch.tensor(values)[None], 2.0), strict=True):
        np.testing.assert_allclose(ours, twin[0], rtol=1e-6)


@pytest.mark.parametrize(("action", "expected"), [(0, -0.9), (1, -0.9), (2, 1.8 * np.log(5 / 8))])
@pytest.mark.parametrize("kind", [np.int8, np.int32])
def test_munchausen_bonus_by_hand_in_both(action, expected, kind):
    # As above, with l₀ = −1 and α = 0.9. 2·ln ⅛ = −4.16 and 2·ln ¼ = −2.77 are cut off; 2·ln ⅝ = −0.94 is not.
    values, action = np.float32(7 + 2 * np.log([1, 2, 5])), kind(action)
    bonus = value.munchausen_bonus(jnp.asarray(values), jnp.asarray(action), 2.0, -1.0, 0.9)
    assert bonus.dtype == jnp.float32
    assert float(bonus) == pytest.approx(expected, rel=1e-6)
    twin = value_torch.munchausen_bonus(torch.tensor(values)[None], torch.tensor([action]), 2.0, -1.0, 0.9)
    assert float(twin[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_rlax_s_softmax_agrees_about_the_policy(temperature):
    values = normal(7, 6)
    policy, scaled = jax.jit(value.soft_values)(values, temperature)
    softmax = rlax.softmax(temperature)
    np.testing.assert_allclose(policy, theirs(softmax.probs, values), rtol=1e-5)
    logs = theirs(jax.vmap(softmax.logprob, (0, None)), np.arange(6, dtype=np.int32), values)
    np.testing.assert_allclose(scaled, temperature * logs, rtol=1e-5, atol=1e-6)
    entropy = -jnp.sum(policy * scaled) / temperature
    assert float(entropy) == pytest.approx(float(theirs(softmax.entropy, values)), rel=1e-5)


@pytest.mark.parametrize("offset", [0, 300, -300])
@pytest.mark.parametrize("spread", [0.1, 5])
def test_small_temperatures_keep_their_digits(offset, spread):
    # Values of 300 over the paper's τ are 10,000: dividing first would lose 5e-4 · τ, and exp would overflow.
    tau, values = 0.03, np.float32(offset) + normal(8, 16, 9, size=spread)
    exact = values.astype(float) - values.astype(float).max(1, keepdims=True)
    exact -= tau * np.log(np.exp(exact / tau).sum(1, keepdims=True))
    policy, scaled = jax.jit(jax.vmap(partial(value.soft_values, temperature=tau)))(values)
    np.testing.assert_allclose(scaled, exact, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(policy, np.exp(exact / tau), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(policy.sum(1), np.ones(16), rtol=3e-7)
    twin_policy, twin_scaled = value_torch.soft_values(torch.tensor(values), tau)
    np.testing.assert_allclose(scaled, twin_scaled, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(policy, twin_policy, rtol=1e-5, atol=1e-7)
    actions = np.arange(16, dtype=np.int32) % 9
    bonus = jax.jit(jax.vmap(partial(value.munchausen_bonus, temperature=tau, floor=-1.0, scale=0.9)))(values, actions)
    np.testing.assert_allclose(bonus, 0.9 * np.clip(exact[np.arange(16), actions], -1, 0), rtol=1e-6, atol=1e-7)
    twin = value_torch.munchausen_bonus(torch.tensor(values), torch.tensor(actions), tau, -1.0, 0.9)
    np.testing.assert_allclose(bonus, twin, rtol=1e-6, atol=1e-7)


def test_the_soft_value_has_the_policy_as_its_gradient_and_the_bonus_has_none():
    values = normal(9, 5)

    def soft(values):
        policy, scaled = value.soft_values(values, 0.7)
        return jnp.sum(policy * (values - scaled))

    np.testing.assert_allclose(jax.jit(jax.grad(soft))(values), value.soft_values(values, 0.7)[0], atol=1e-6)
    assert not np.any(jax.jit(jax.grad(value.munchausen_bonus))(values, 2, 0.7, -5.0, 0.9))
    leaf = torch.tensor(values[None], requires_grad=True)
    policy, scaled = value_torch.soft_values(leaf, 0.7)
    (policy * (leaf - scaled)).sum().backward()
    np.testing.assert_allclose(leaf.grad, policy.detach(), atol=1e-6)
    assert not value_torch.munchausen_bonus(leaf, torch.tensor([2]), 0.7, -5.0, 0.9).requires_grad


# ---- Q(λ) ----------------------------------------------------------------------------------------------------------


def test_lambda_targets_by_hand():
    # λ = ½, γ = ½. Step 1 is terminal, after step 3 the game is cut, step 5 is the last.
    rewards = jnp.array([1.0, 2.0, 0.0, 4.0, -1.0, 3.0])
    discounts = jnp.array([0.5, 0.0, 0.5, 0.5, 0.5, 0.5])
    next_values = jnp.array([4.0, 100.0, 8.0, 6.0, 2.0, 10.0])
    restart = jnp.array([False, False, False, True, False, False])
    # G₅ =  3 + ½·10                =  8
    # G₄ = −1 + ½·(½·8 + ½·2)      =  1.5
    # G₃ =  4 + ½·6                =  7      and not 4 + ½·(½·1.5 + ½·6)
    # G₂ =  0 + ½·(½·7 + ½·8)      =  3.75
    # G₁ =  2                      =  2      the 100 is the value of what never comes
    # G₀ =  1 + ½·(½·2 + ½·4)      =  2.5
    targets = q_lambda_targets(rewards, discounts, next_values, restart, 0.5)
    assert targets.dtype == jnp.float32
    np.testing.assert_array_equal(targets, [2.5, 2, 3.75, 7, 1.5, 8])


def trajectory(seed, steps=40):
    rng = np.random.default_rng(seed)
    discounts = np.where(rng.random(steps) < 0.15, 0.0, 0.97)
    rewards, next_values = rng.normal(0, 1, steps), rng.normal(0, 3, steps)
    return *(x.astype(np.float32) for x in (rewards, discounts, next_values)), rng.random(steps) < 0.15


def one_by_one(rewards, discounts, next_values, restart, lam):
    """The definition as a loop in float64."""
    steps = len(rewards)
    targets = np.zeros(steps)
    for t in reversed(range(steps)):
        if t == steps - 1 or restart[t]:
            ahead = float(next_values[t])
        else:
            ahead = lam * targets[t + 1] + (1 - lam) * float(next_values[t])
        targets[t] = float(rewards[t]) + float(discounts[t]) * ahead
    return targets


@pytest.mark.parametrize("lam", [0.0, 0.65, 1.0])
def test_lambda_targets_are_the_loop_and_rlax_s_lambda_returns(lam):
    trajectories = [trajectory(seed) for seed in range(5)]
    batch = [np.stack(column, axis=1) for column in zip(*trajectories, strict=True)]  # [T, N]
    together = jax.jit(q_lambda_targets)(*batch, lam)
    mapped = jax.jit(jax.vmap(q_lambda_targets, (1, 1, 1, 1, None), 1))(*batch, lam)
    np.testing.assert_allclose(together, mapped, rtol=1e-6, atol=1e-6)
    expected = np.stack([one_by_one(*columns, lam) for columns in trajectories], axis=1)
    # Up to 40 rewards of size one are added up in float32.
    np.testing.assert_allclose(together, expected, rtol=1e-5, atol=1e-5)
    rewards, discounts, next_values, restart = batch
    lambdas = np.where(restart, 0, lam).astype(np.float32)  # rlax has no restarts, but λ may depend on the step
    oracle = theirs(jax.vmap(rlax.lambda_returns, 1, 1), rewards, discounts, next_values, lambdas)
    np.testing.assert_allclose(together, oracle, rtol=1e-5, atol=1e-5)


def test_lambda_targets_make_rlax_s_q_lambda_error():
    rewards, discounts, _, _ = trajectory(11)
    now, later, actions = normal(1, 40, 3), normal(2, 40, 3), np.arange(40, dtype=np.int32) % 3
    targets = jax.jit(q_lambda_targets)(rewards, discounts, later.max(1), np.zeros(40, bool), 0.8)
    oracle = theirs(rlax.q_lambda, now, actions, rewards, discounts, later, np.float32(0.8))
    np.testing.assert_allclose(targets - now[np.arange(40), actions], oracle, rtol=1e-5, atol=1e-5)


def test_lambda_targets_have_their_limits():
    rewards, discounts, next_values, restart = trajectory(12)
    targets, never = jax.jit(q_lambda_targets), np.zeros(40, bool)
    one_step = rewards + discounts * next_values
    for flags, lam in ((never, 0.0), (restart, 0.0), (~never, 0.9)):
        np.testing.assert_allclose(targets(rewards, discounts, next_values, flags, lam), one_step, rtol=1e-6)
    # λ = 1: as many rewards as there are, and one bootstrap.
    whole = theirs(rlax.n_step_bootstrapped_returns, rewards, discounts, next_values, n=40)
    np.testing.assert_allclose(targets(rewards, discounts, next_values, never, 1.0), whole, rtol=1e-5, atol=1e-5)
    last = [x[-1:] for x in (rewards, discounts, next_values, never)]
    np.testing.assert_allclose(targets(*last, 0.9), one_step[-1:], rtol=1e-6)


def test_nothing_reaches_back_over_a_restart_not_even_nan():
    rewards, discounts, next_values, restart = trajectory(13)
    restart[:], restart[20] = False, True
    targets = jax.jit(q_lambda_targets)
    before = targets(rewards, discounts, next_values, restart, 0.9)
    later = np.arange(40) > 20
    after = targets(np.where(later, np.nan, rewards), discounts, np.where(later, np.nan, next_values), restart, 0.9)
    np.testing.assert_array_equal(before[:21], after[:21])
    assert np.all(np.isnan(after[21:]))


def test_no_gradient_passes_through_lambda_targets():
    rewards, discounts, next_values, restart = trajectory(14)

    def total(next_values):
        return jnp.sum(q_lambda_targets(rewards, discounts, next_values, restart, 0.9))

    assert not np.any(jax.jit(jax.grad(total))(next_values))
