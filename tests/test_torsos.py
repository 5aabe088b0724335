"""Torsos: equal to their PyTorch twins forwards and backwards, whichever way a convolution is computed."""

import subprocess
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xladder.families.value.torsos import suited, takes
from xladder.nets import torsos, torsos_torch
from xladder.nets.affine import PlainDense

BATCH = 3


def pictures(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def grids(rng, *shape):
    return rng.random(shape) < 0.3


def vectors(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


# name: torso, its twin, one state's shape, what states are made of
CASES = {
    "mlp": (torsos.Mlp((24, 16)), torsos_torch.Mlp(2 * 5, (24, 16)), (2, 5), vectors),
    "mlp_of_grids": (torsos.Mlp((12,), axes=3), torsos_torch.Mlp(2 * 4 * 3, (12,)), (2, 4, 3), grids),
    "mlp_norm": (torsos.Mlp((24, 16), norm=True), torsos_torch.Mlp(2 * 5, (24, 16), norm=True), (2, 5), vectors),
    "nature": (torsos.NatureCnn(), torsos_torch.NatureCnn(), (4, 84, 84), pictures),
    "nature_same": (torsos.NatureCnn(padded=True), torsos_torch.NatureCnn(2, padded=True), (2, 44, 41), pictures),
    "nature_odd": (torsos.NatureCnn(), torsos_torch.NatureCnn(frames=1), (1, 45, 50), pictures),
    "nature_colour": (
        torsos.NatureCnn(colour=True, max_value=9),
        torsos_torch.NatureCnn(6, max_value=9),
        (2, 40, 45, 3),
        pictures,
    ),
    "nature_norm": (torsos.NatureCnn(norm=True), torsos_torch.NatureCnn(2, norm=True), (2, 44, 40), pictures),
    "minatar": (torsos.MinAtarCnn(), torsos_torch.MinAtarCnn(4), (1, 10, 10, 4), grids),
    "minatar_stack": (torsos.MinAtarCnn(), torsos_torch.MinAtarCnn(6, frames=3), (3, 10, 7, 6), grids),
    "minatar_norm": (torsos.MinAtarCnn(norm=True), torsos_torch.MinAtarCnn(4, norm=True), (1, 10, 10, 4), grids),
}


def make_params(net, state):
    """Parameters for one state, drawn without compiling anything; none of them is zero or one."""
    shapes = jax.eval_shape(net.init, jax.random.key(0), state)["params"]
    rng = np.random.default_rng(0)
    spread = {1: 0.3, 2: 0.3, 4: 0.05}
    return jax.tree.map(lambda leaf: rng.normal(0, spread[leaf.ndim], leaf.shape).astype(np.float32), shapes)


def to_torch(params):
    """The same parameters under PyTorch's names and in its order of axes."""
    names = {"kernel": "weight", "scale": "weight", "bias": "bias"}
    turn = {1: lambda v: v, 2: np.transpose, 4: lambda v: v.transpose(3, 2, 0, 1)}
    return {
        f"{layer}.{names[name]}": torch.tensor(turn[np.ndim(v)](np.asarray(v)).copy())
        for layer, leaves in params.items()
        for name, v in leaves.items()
    }


def setup(name, *lead, seed=1, **fields):
    net, twin, shape, draw = CASES[name]
    x = draw(np.random.default_rng(seed), *lead, *shape)
    net = net.clone(**fields)
    return net, twin, make_params(net, x.reshape(-1, *shape)[0]), x


def features(net, params, x):
    return np.asarray(jax.jit(net.apply)({"params": params}, x))


def weights_for(x):
    """Weights for all features, which tell each apart."""
    return np.random.default_rng(2).normal(size=x.shape).astype(np.float32)


def features_and_gradients(net, params, x):
    """The gradients are those of a weighted sum of squares."""

    def score(params):
        outputs = net.apply({"params": params}, x)
        return jnp.sum(weights_for(outputs) * outputs**2), outputs

    gradients, outputs = jax.jit(jax.grad(score, has_aux=True))(params)
    return np.asarray(outputs), gradients


def assert_close(ours, theirs, tolerance, what=""):
    """To a share of the largest entry: sums in another order differ by that, wherever they end up."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max(), err_msg=what)


def assert_near(ours, theirs, tolerance):
    """On the whole: a feature near zero may be cut off on one side only, and takes its gradient with it."""
    assert np.linalg.norm(ours - theirs) < tolerance * np.linalg.norm(theirs)


WAYS = [(name, {}) for name in CASES]
WAYS += [(name, {"patches": False}) for name in ("nature_odd", "nature_norm", "minatar_stack")]


@pytest.mark.parametrize(("name", "fields"), WAYS)
def test_the_pytorch_twin_agrees_in_value_and_gradient(name, fields):
    net, twin, params, x = setup(name, BATCH, **fields)
    twin.load_state_dict(to_torch(params), strict=True)
    twin.zero_grad()
    outputs = twin(torch.tensor(x))
    ours, gradients = features_and_gradients(net, params, x)
    assert ours.dtype == np.float32
    assert ours.shape == outputs.shape
    assert (ours == 0).any() and (ours > 0).mean() > 0.1
    assert_close(ours, outputs.detach(), 2e-6)  # float32 sums of up to 576 terms
    (torch.tensor(weights_for(ours)) * outputs**2).sum().backward()
    expected = {path: value.grad for path, value in twin.named_parameters()}
    found = to_torch(gradients)
    assert found.keys() == expected.keys()
    for path, gradient in found.items():
        assert_close(gradient, expected[path], 2e-5, path)  # sums over up to 1200 cells of those


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nature_odd", "minatar_stack"])
def test_in_bfloat16_too_products_are_the_same_convolution(name):
    net, _, params, x = setup(name, BATCH, dtype=jnp.bfloat16)
    ours, gradients = features_and_gradients(net, params, x)
    theirs, expected = features_and_gradients(net.clone(patches=False), params, x)
    # Later layers may round a number up here and down there, which is 2⁻⁸ of one among many terms.
    assert_close(ours, theirs, 2e-3)
    jax.tree.map(lambda a, b: assert_near(a, b, 0.02), gradients, expected)


@pytest.mark.parametrize("name", ["mlp_norm", "nature_odd", "minatar_stack"])
def test_any_leading_axes_are_states_of_a_batch(name):
    net, _, params, x = setup(name, 2, BATCH)
    shape = x.shape[2:]
    both = features(net, params, x)
    one = features(net, params, x.reshape(-1, *shape))
    none = features(net, params, x[1, 2])
    assert both.shape == (2, BATCH, one.shape[-1])
    assert one.shape[:-1] == (2 * BATCH,)
    assert none.shape == one.shape[1:]
    assert_close(both.reshape(one.shape), one, 1e-6)
    assert_close(none, both[1, 2], 1e-6)
    mapped = jax.jit(jax.vmap(lambda x: net.apply({"params": params}, x)))(x)
    assert_close(mapped, both, 1e-6)


@pytest.mark.parametrize("name", ["mlp", "nature_odd", "minatar_norm"])
def test_bfloat16_is_close_and_leaves_float32(name):
    net, _, params, x = setup(name, BATCH)
    halved = net.clone(dtype=jnp.bfloat16)
    exact, expected = features_and_gradients(net, params, x)
    rounded, gradients = features_and_gradients(halved, params, x)
    assert rounded.dtype == np.float32
    assert {v.dtype for v in jax.tree.leaves((make_params(halved, x[0]), gradients))} == {np.dtype(np.float32)}
    assert_close(rounded, exact, 0.02)  # 8 bits in each factor, errors mostly cancelling
    assert np.abs(rounded - exact).max() > 1e-4 * np.abs(exact).max()  # it is another precision indeed
    # Sums are not rounded: few features are numbers of 8 bits.
    positive = rounded[rounded > 0]
    assert (positive != np.asarray(jnp.asarray(positive, jnp.bfloat16), np.float32)).mean() > 0.9
    jax.tree.map(lambda a, b: assert_near(a, b, 0.1), gradients, expected)


def test_a_dense_layer_in_float32_is_the_plain_product():
    x = vectors(np.random.default_rng(0), 7, 5)
    layer = PlainDense(4)
    params = layer.init(jax.random.key(0), x)
    plain = jnp.asarray(x) @ params["params"]["kernel"] + params["params"]["bias"][None, :]
    np.testing.assert_array_equal(layer.apply(params, x), plain)


@pytest.mark.parametrize(
    ("name", "layer", "inputs"),
    [("mlp", "hidden_0", 10), ("nature", "conv_0", 256), ("nature", "conv_2", 576), ("minatar", "conv_0", 36)],
)
def test_weights_begin_uniform_within_the_bound_of_pytorch(name, layer, inputs):
    net, _, shape, _ = CASES[name]
    params = jax.jit(net.init)(jax.random.key(0), np.zeros(shape, np.uint8))["params"]
    bound = inputs**-0.5
    for values in params[layer].values():
        assert np.abs(values).max() <= bound
    kernel = params[layer]["kernel"]
    assert np.prod(kernel.shape[:-1]) == inputs
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)  # of a uniform distribution


@pytest.mark.parametrize(("name", "count"), [("nature", 3136), ("nature_same", 7744), ("minatar", 1024)])
def test_features_are_as_many_as_published(name, count):
    net, _, shape, _ = CASES[name]
    shape = (4, 84, 84) if name == "nature_same" else shape  # Dopamine's
    outputs = jax.eval_shape(net.init_with_output, jax.random.key(0), jnp.zeros(shape, jnp.uint8))[0]
    assert outputs.shape == (count,)


@pytest.mark.slow
def test_padded_convolutions_are_flax_s_own():
    """Dopamine's are `flax.linen.Conv` with its default padding, SAME."""

    class Flax(nn.Module):
        @nn.compact
        def __call__(self, x):
            for layer, (width, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1))):
                x = nn.relu(nn.Conv(width, (size, size), (stride, stride), name=f"conv_{layer}")(x))
            return x.transpose(2, 0, 1).reshape(-1)

    x = pictures(np.random.default_rng(0), 1, 45, 38)
    net = torsos.NatureCnn(padded=True)
    params = make_params(net, x)
    theirs = Flax().apply({"params": params}, jnp.asarray(x.transpose(1, 2, 0), jnp.float32) / 255)
    np.testing.assert_allclose(net.apply({"params": params}, x), theirs, rtol=1e-4, atol=1e-4)


def test_255_stands_for_1():
    conv = torsos.Conv(32, 8, 4, 255, jnp.float32, True)
    white = np.full((1, 1, 8, 8), 255, np.uint8)
    params = conv.init(jax.random.key(0), white)
    outputs = conv.apply(params, white)[0, 0, 0]
    np.testing.assert_allclose(outputs, params["params"]["kernel"].sum((0, 1, 2)) + params["params"]["bias"], atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "torso"),
    [
        ((), "mlp"),
        ((4,), "mlp"),
        ((84, 84), "nature"),
        ((36, 40), "nature"),
        ((35, 84), None),
        ((10, 10, 4), "minatar"),
        ((3, 3, 1), "minatar"),
        ((10, 2, 4), None),
        ((84, 84, 3, 2), None),
    ],
)
def test_frames_find_the_torso_that_can_take_them(shape, torso):
    assert suited(shape) == torso
    assert [name for name in ("mlp", "nature", "minatar") if takes(name, shape)] == [torso] * (torso is not None)


@pytest.mark.parametrize(
    ("net", "shape"),
    [(torsos.NatureCnn(), (1, 36, 36)), (torsos.MinAtarCnn(), (1, 3, 3, 1)), (torsos.Mlp((3,), axes=1), (2,))],
)
def test_the_smallest_frames_leave_something(net, shape):
    assert takes({"NatureCnn": "nature", "MinAtarCnn": "minatar", "Mlp": "mlp"}[type(net).__name__], shape[1:])
    outputs = jax.eval_shape(net.init_with_output, jax.random.key(0), jnp.zeros(shape, jnp.uint8))[0]
    assert outputs.shape == ({"NatureCnn": 64, "MinAtarCnn": 16, "Mlp": 3}[type(net).__name__],)


def test_an_unknown_torso_is_an_error():
    with pytest.raises(ValueError, match="`resnet`"):
        takes("resnet", (84, 84))


def test_asking_which_torso_is_suited_imports_nothing_heavy():
    code = "import sys, xladder.families.value.torsos; sys.exit('jax' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
