"""The network: where its weights begin, and that the quick forms of its parts equal the plain ones."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.core.encoding import one_hot_encoding
from xladder.families.multi_agent.program import Program
from xladder.families.multi_agent.treasurehunt_presets import DEFAULT
from xladder.learners.iqn_torch import TorchAgent
from xladder.nets.affine import rounded_product
from xladder.nets.codes import CodesTorso
from xladder.nets.heads import cos_pi, modulate
from xladder.nets.noisy import noise_size, split_noise


@pytest.fixture(scope="module")
def default_params():
    """The default network: large enough for statistics."""
    learner = Program(DEFAULT).learner
    return flat(jax.tree.map(np.asarray, jax.jit(learner.init)(jax.random.key(0)).params))


def flat(params):
    """Layers by name, the torso among them."""
    return {"torso": params["torso"], **params["head"]}


@pytest.fixture(scope="module")
def torch_params():
    import torch

    from xladder import bridge

    learner = Program(DEFAULT).learner
    torch.manual_seed(0)
    agent = TorchAgent(DEFAULT.learner, learner.actions, learner.encoding)
    return flat(bridge.to_jax("value", agent.net.state_dict()))


BOUNDS = {
    # layer: inputs, and the numerator of bound² = numerator / inputs
    "torso": (750, 1.0),
    "embedding": (64, 1.0),
    "hidden": (250, 3.0),
    "advantage": (250, 3.0),
    "value": (250, 3.0),
}


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize("layer", BOUNDS)
def test_weights_begin_uniform_and_symmetric_within_their_bound(layer, side, request):
    params = request.getfixturevalue("default_params" if side == "jax" else "torch_params")
    inputs, numerator = BOUNDS[layer]
    bound = np.sqrt(numerator / inputs)
    kernel = params[layer]["kernel"]
    assert kernel.shape[0] == inputs
    assert np.abs(kernel).max() <= bound
    assert kernel.max() > 0.9 * bound, "the upper end is never reached"
    assert kernel.min() < -0.9 * bound, "the lower end is never reached"
    # A uniform distribution on ±b has variance b²/3; five standard errors of the mean.
    assert abs(kernel.mean()) < 5 * bound / np.sqrt(3 * kernel.size)
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    assert np.abs(params[layer]["bias"]).max() <= bound
    if kernel.shape[1] >= 250:
        assert params[layer]["bias"].min() < -0.5 * bound < 0.5 * bound < params[layer]["bias"].max()


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_noise_begins_with_a_scale_of_0_017_everywhere(side, request):
    params = request.getfixturevalue("default_params" if side == "jax" else "torch_params")
    for layer in ("hidden", "advantage", "value"):
        for name in ("sigma_kernel", "sigma_bias"):
            np.testing.assert_array_equal(params[layer][name], np.float32(0.017))
    assert "sigma_kernel" not in params["torso"]


def test_agents_of_one_experiment_begin_with_different_weights(tiny):
    run = jax.jit(Program(tiny).init)(jnp.int32(0))
    for kernel in (run.agents.params["torso"]["kernel"], run.agents.params["head"]["value"]["kernel"]):
        assert not np.array_equal(kernel[0], kernel[1])


@pytest.mark.slow
def test_looking_rows_up_is_the_product_with_the_encoding():
    layer = CodesTorso(width=32, encoding=one_hot_encoding(6, 25))
    codes = jax.random.randint(jax.random.key(1), (5, 25), 0, 6, jnp.int8)
    params = layer.init(jax.random.key(0), codes)
    product, lookup = layer.apply(params, codes), layer.apply(params, codes, method="look_up")
    np.testing.assert_allclose(lookup, product, atol=2e-6)  # the same 125 rows, added in another order
    assert np.abs(product).max() > 0.1


def test_in_bfloat16_weights_are_rounded_and_sums_are_not():
    exact, rounded = (CodesTorso(32, one_hot_encoding(6, 25), dtype) for dtype in (jnp.float32, jnp.bfloat16))
    codes = jax.random.randint(jax.random.key(0), (4, 5, 25), 0, 6, jnp.int8)
    params = exact.init(jax.random.key(1), codes)
    kernel = params["params"]["kernel"].astype(jnp.bfloat16).astype(jnp.float32)
    like = {"params": params["params"] | {"kernel": kernel}}
    one, other, plain = rounded.apply(params, codes), exact.apply(like, codes), exact.apply(params, codes)
    assert one.dtype == jnp.float32
    np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)  # the encoding is exact, so only the kernel is rounded
    assert 1e-4 < np.abs(one - plain).max() < 0.01


def test_gradients_of_a_rounded_product_are_products_of_rounded_factors():
    x, kernel, toward = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(7, 5), (5, 3), (7, 3)])
    )
    _, pull = jax.vjp(lambda *given: rounded_product(*given, jnp.bfloat16), x, kernel)
    low = [np.asarray(array.astype(jnp.bfloat16), np.float32) for array in (x, kernel, toward)]
    to_x, to_kernel = pull(toward)
    assert to_x.dtype == to_kernel.dtype == jnp.float32
    np.testing.assert_allclose(to_x, low[2] @ low[1].T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(to_kernel, low[0].T @ low[2], rtol=1e-5, atol=1e-5)


def test_an_all_empty_view_is_only_the_bias():
    layer = CodesTorso(width=8, encoding=one_hot_encoding(6, 9))
    codes = jnp.zeros((2, 9), jnp.int8)
    params = layer.init(jax.random.key(0), codes)
    for method in ("__call__", "look_up"):
        seen = layer.apply(params, codes, method=method)
        np.testing.assert_array_equal(seen, np.maximum(params["params"]["bias"], 0))


def test_cosines_are_right_to_2e_7():
    taus = np.random.default_rng(0).random(4000, dtype=np.float32)
    x = (taus[:, None] * np.arange(1, 65, dtype=np.float32)).ravel()
    exact = np.cos(np.pi * x.astype(np.float64))
    assert np.abs(np.asarray(jax.jit(cos_pi)(x)) - exact).max() < 2e-7


@pytest.mark.parametrize(
    ("x", "expected"), [(0.0, 1.0), (0.5, 0.0), (1.0, -1.0), (2.0, 1.0), (-1.0, -1.0), (63.0, -1.0)]
)
def test_cosines_at_known_points(x, expected):
    assert float(cos_pi(jnp.float32(x))) == pytest.approx(expected, abs=2e-7)


@pytest.mark.slow
def test_the_written_out_gradient_of_modulate_is_the_plain_one():
    features, embedding, weight = (
        jax.random.normal(key, shape)
        for key, shape in zip(jax.random.split(jax.random.key(0), 3), [(6,), (4, 6), (4, 6)], strict=True)
    )

    def loss(function, features, embedding):
        return jnp.sum(weight * jnp.sin(function(features, embedding)))

    def plain(features, embedding):
        return features[None, :] * embedding

    ours, theirs = (jax.grad(partial(loss, f), argnums=(0, 1))(features, embedding) for f in (modulate, plain))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.fixture
def small_net(tiny):
    learner = Program(tiny).learner
    agent = jax.jit(learner.init)(jax.random.key(0))
    codes = jax.random.randint(jax.random.key(1), (tiny.learner.n_frames, learner.cells), 0, 6, jnp.int8)
    taus = jax.random.uniform(jax.random.key(2), (tiny.learner.quantiles,))
    noise = learner.noise(jax.random.normal(jax.random.key(3), (learner.plain.noise_size,)))
    return learner, agent.params, codes, taus, noise


@pytest.mark.slow
def test_without_noise_the_network_is_that_of_sigma_nought(small_net):
    learner, params, codes, taus, noise = small_net
    silent = jax.tree.map_with_path(lambda path, x: x * (0.0 if "sigma" in jax.tree_util.keystr(path) else 1.0), params)
    apply = learner.net.apply
    evaluated = apply({"params": params}, codes, taus)
    np.testing.assert_allclose(apply({"params": silent}, codes, taus, noise), evaluated, atol=1e-6)
    assert np.abs(apply({"params": params}, codes, taus, noise) - evaluated).max() > 1e-3


def test_noise_is_cut_into_pieces_that_do_not_overlap():
    shapes = (("hidden", 3, 3), ("advantage", 3, 2), ("value", 3, 1))
    size = noise_size(shapes, factorised=False)
    noise = split_noise(jnp.arange(size), shapes, factorised=False)
    pieces = [piece for name, *_ in shapes for piece in noise[name]]
    assert sorted(np.concatenate([np.ravel(piece) for piece in pieces])) == list(range(size))
    assert [piece.shape for piece in pieces] == [(3, 3), (3,), (3, 2), (2,), (3, 1), (1,)]


@pytest.mark.slow
def test_the_mean_before_the_heads_is_the_mean_after_them(small_net):
    learner, params, codes, taus, _ = small_net
    quantiles = learner.net.apply({"params": params}, codes, taus)
    mean = learner.net.apply({"params": params}, codes, learner.embed(params, taus), method="mean_of_embedded")
    assert mean.shape == (4,)
    np.testing.assert_allclose(mean, quantiles.mean(0), atol=1e-6)


def test_advantages_are_dueling_so_their_mean_is_the_value(small_net):
    learner, params, codes, taus, _ = small_net
    quantiles = learner.net.apply({"params": params}, codes, taus)
    biased = jax.tree.map(lambda x: x, params)
    biased["head"]["advantage"]["bias"] += 5.0  # what all actions share is subtracted again
    np.testing.assert_allclose(learner.net.apply({"params": biased}, codes, taus), quantiles, atol=2e-6)
    biased["head"]["value"]["bias"] += 5.0
    np.testing.assert_allclose(learner.net.apply({"params": biased}, codes, taus), quantiles + 5.0, atol=2e-6)


def test_no_leaf_of_an_initial_state_is_weakly_typed(tiny):
    program = Program(tiny)
    shapes = jax.eval_shape(lambda seed: (program.init_counters(), program.init(seed)), jnp.int32(0))
    agent = jax.eval_shape(program.learner.init, jax.random.key(0))
    weak = [path for path, leaf in jax.tree_util.tree_leaves_with_path((shapes, agent)) if leaf.weak_type]
    assert not weak


def test_net_and_loss_need_no_implicit_dtype_promotion(small_net, tiny):
    learner, params, codes, taus, noise = small_net
    b = tiny.learner.batch_size
    from xladder.replay.batch import Batch

    scalars = jnp.zeros((b,), jnp.float32)
    states = jnp.broadcast_to(codes, (b, *codes.shape))
    batch = Batch(states, jnp.zeros((b,), jnp.int8), scalars, scalars, states, scalars)
    three = jnp.broadcast_to(taus, (3, b, *taus.shape))
    with jax.numpy_dtype_promotion("strict"):
        loss, _ = jax.eval_shape(learner.value.loss, params, params, batch, three, (noise, noise, noise))
        greedy = jax.eval_shape(lambda p: learner.greedy(p, codes, learner.embed(p, taus)), params)
    assert loss.dtype == jnp.float32
    assert greedy.dtype == jnp.int8
