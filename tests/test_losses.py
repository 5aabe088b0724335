"""Quantile Huber loss: numbers worked out by hand, somebody else's implementation, and the PyTorch twin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xladder.families.multi_agent import config as multi_agent
from xladder.families.value.learner_config import LearnerConfig
from xladder.losses import heads, heads_torch, quantile, quantile_torch
from xladder.losses.quantile import mean_quantile_huber, quantile_huber


def test_two_by_two_by_hand():
    prediction, taus, target = jnp.array([0.0, 2.0]), jnp.array([0.25, 0.75]), jnp.array([0.5, -1.0])
    # δ = target − prediction, κ = 1:
    #   prediction 0 (τ = 0.25):  δ =  0.5 → huber ½·0.25 = 0.125,      weight |0.25 − 0| = 0.25 → 0.03125
    #                             δ = −1.0 → huber ½·1    = 0.5,        weight |0.25 − 1| = 0.75 → 0.375
    #   prediction 2 (τ = 0.75):  δ = −1.5 → huber 1.5 − ½ = 1.0,       weight |0.75 − 1| = 0.25 → 0.25
    #                             δ = −3.0 → huber 3.0 − ½ = 2.5,       weight |0.75 − 1| = 0.25 → 0.625
    # The mean over targets, added up over predictions: (0.03125 + 0.375 + 0.25 + 0.625) / 2. sorrel's: 1.28125 / 4.
    assert float(quantile_huber(prediction, taus, target)) == pytest.approx(0.640625, abs=1e-7)
    assert float(mean_quantile_huber(prediction, taus, target)) == pytest.approx(0.3203125, abs=1e-7)
    batch = [torch.from_numpy(np.array(x))[None] for x in (prediction, taus, target)]
    assert float(quantile_torch.quantile_huber(*batch)) == pytest.approx(0.640625, abs=1e-7)
    assert float(quantile_torch.mean_quantile_huber(*batch)) == pytest.approx(0.3203125, abs=1e-7)


def test_another_kappa_by_hand():
    # κ = 2, τ = 0.5. δ = 1 → ½·1 = 0.5;  δ = −4 → 2·(4 − 1) = 6.  Each × 0.5 / κ: 0.125 and 1.5; mean 0.8125
    loss = quantile_huber(jnp.array([0.0]), jnp.array([0.5]), jnp.array([1.0, -4.0]), kappa=2.0)
    assert float(loss) == pytest.approx(0.8125, abs=1e-7)


def test_the_weight_belongs_to_the_predictions_tau_not_to_the_targets():
    # With as many targets as predictions a transposed weight has the same shape, so only numbers can tell.
    # prediction (0, 0), target (1, −1): τ = 0.9 pays 0.9·½ + 0.1·½ = 0.5, τ = 0.1 the same either way.
    # With target (1, 1): τ = 0.9 pays 2·0.45, τ = 0.1 pays 2·0.05; the gradient for each is −τ·1·2/2.
    gradient = jax.grad(quantile_huber)(jnp.zeros(2), jnp.array([0.9, 0.1]), jnp.ones(2))
    np.testing.assert_allclose(gradient, [-0.9, -0.1], atol=1e-7)


def test_no_gradient_passes_through_the_target_or_taus_sign():
    args = jnp.array([0.3, -0.2]), jnp.array([0.2, 0.8]), jnp.array([1.0, 0.1, -3.0])
    by_prediction, by_target = jax.grad(quantile_huber, argnums=(0, 2))(*args)
    assert not np.any(by_target)
    assert np.all(np.asarray(by_prediction) != 0)


def random_case(seed: int, predictions: int, targets: int):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(0, 2, predictions).astype(np.float32),
        rng.random(predictions, dtype=np.float32),
        rng.normal(0, 2, targets).astype(np.float32),
    )


@pytest.mark.parametrize(("predictions", "targets"), [(12, 12), (3, 7), (1, 1)])
@pytest.mark.parametrize("kappa", [1.0, 0.5])
def test_rlax_agrees_in_scale_up_to_kappa(predictions, targets, kappa):
    import rlax

    prediction, taus, target = random_case(predictions, predictions, targets)
    with jax.numpy_rank_promotion("allow"):  # rlax broadcasts ranks on its own account
        theirs = rlax.quantile_regression_loss(prediction, taus, target, huber_param=kappa)
    # It does not divide by κ, as Dabney et al. 2018b do; with κ = 1 the two are the same.
    ours = quantile_huber(prediction, taus, target, kappa)
    assert float(kappa * ours) == pytest.approx(float(theirs), rel=1e-5)
    mean = mean_quantile_huber(prediction, taus, target, kappa)
    assert float(mean) == pytest.approx(float(ours) / predictions, rel=1e-5)


@pytest.mark.parametrize("kappa", [1.0, 0.5])
@pytest.mark.parametrize("name", ["quantile_huber", "mean_quantile_huber"])
def test_the_pytorch_twin_agrees_in_value_and_gradient(name, kappa):
    cases = [random_case(seed, 5, 8) for seed in range(6)]
    prediction, taus, target = (np.stack(column) for column in zip(*cases, strict=True))
    ours, gradient = jax.vmap(jax.value_and_grad(lambda p, t, a: getattr(quantile, name)(p, t, a, kappa)))(
        prediction, taus, target
    )
    leaf, aim = torch.from_numpy(prediction).requires_grad_(), torch.from_numpy(target)
    theirs = getattr(quantile_torch, name)(leaf, torch.from_numpy(taus), aim, kappa)
    theirs.sum().backward()
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-6)
    np.testing.assert_allclose(gradient, leaf.grad, atol=1e-7)


def test_the_treasure_hunt_has_sorrel_s_loss_and_the_value_learners_the_papers():
    """Which is meant is decided by the kind of head, in both twins, and never by accident."""
    prediction, taus, target = jnp.array([0.0, 2.0]), jnp.array([0.25, 0.75]), jnp.array([0.5, -1.0])
    batch = [torch.from_numpy(np.array(x))[None] for x in (prediction, target, taus)]
    mean, total = 0.3203125, 0.640625  # as worked out above
    for config, expected in [
        (multi_agent.LearnerConfig(quantiles=2), mean),
        (LearnerConfig(head="implicit", quantiles=2), total),
        (LearnerConfig(head="quantile", quantiles=2), total),  # its fractions are ¼ and ¾, too
    ]:
        assert float(heads.make_head(config).loss(prediction, target, taus)[0]) == pytest.approx(expected, abs=1e-7)
        assert float(heads_torch.make_head(config).loss(*batch)[0]) == pytest.approx(expected, abs=1e-7)
